"""What sort of source a file is: a line proves only what its kind of source can know.

A training script that prints "Killed process" is not the kernel; a person's note is not a log.
"""

from __future__ import annotations

import re

from whichrank.evidence.scan import regular
from whichrank.facts import Source, slashed

_BY_NAME = (
    (
        "kernel",
        re.compile(r"dmesg|kern(?:el)?[._-]?log|kern\.|journal|syslog|(?:^|[._-])messages(?:[._-]|$)|kmsg", re.I),
    ),
    ("scheduler", re.compile(r"sacct|squeue|scontrol|describe|events?\b|kubectl|scheduler", re.I)),
    ("stack", re.compile(r"py-?spy|gdb|stack|pystack|traceback\.txt", re.I)),
    (
        "metrics",
        re.compile(
            r"(?:nvidia|rocm|amd)-?smi|\bsmi\b|dcgm|perfquery|ethtool|iostat|mountstats|netstat|pressure|counters?",
            re.I,
        ),
    ),
)
_KERNEL = re.compile(
    r"^(?:<\d+>)?(?:\[ *\d+\.\d{6}\]|\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\]|\w{3} +\d+ [\d:]{8} \S+ kernel:|\d{4}-\d\d-\d\dT\S+ \S+ kernel:)"
)
_TRAINING = re.compile(
    r"\[rank\d+\]|ProcessGroup|NCCL (?:INFO|WARN)|Traceback|it/s|s/it|\bstep\b|\bepoch\b|\bloss\b|torch[/.]distributed|torchrun|\bckpt\b|checkpoint",
    re.I,
)
# What a program says, and no person writes: labels, stamps, places in source files.
_SPOKEN = re.compile(
    r"\[rank\d+\]|ProcessGroup|NCCL (?:INFO|WARN)|Traceback|\bit/s\b|\bs/it\b|\bloss\b|\.(?:py|cpp|cc):\d+\]|^\W{0,2}\d{4}[-/]\d\d[-/]\d\d[T ]|^\W{0,2}\d\d:\d\d:\d\d"
)
_STACK = re.compile(
    r"^Process \d+: |^Traceback for thread \d+ |^Thread (?:0x)?[0-9A-Fa-f]+ \((?:idle|active)|^#\d+ +0x[0-9a-f]+ in |^Thread \d+ \(Thread 0x"
)
# Frames as only dumps of stacks show them: py-spy, pystack, gdb, faulthandler. A traceback's have a comma before "in".
_FRAME = re.compile(
    r"^ {2,}(?:\((?:Python|C|Other)\) File \"|[\w.<>]+ \([^()]+:\d+\)$|File \"[^\"]+\", line \d+ in )|^#\d+ +(?:0x[0-9a-f]+ in )?\S+ \("
)
_SCHEDULER = re.compile(
    r"^\s*(?:- )?\"?apiVersion\"?: |^(?:Name|Namespace|Reason|Status|Node): {2,}|^ *JOBID +PARTITION|^LAST SEEN +TYPE|^JobId=|^JobID *\|",
    re.I,
)
_METRICS = re.compile(
    r"utilization\.gpu|^\s*(?:rx|tx)_\w+:|^#\s+Rank\s+\d+ Group|LinkDownedCounter|%util|NVIDIA-SMI|^(?:DCGM_FI_DEV|node)_\w+[{ ]|avg60=\d|\|bytes    packets errs|^TcpOutSegs|GFX%|GPU use \(%\)|^oom_kill \d|^MemTotal:|"
    r"\bCPU Affinity\b|^State +Recv-Q|^Active Internet connections|seconds (?:slow|fast) of NTP time|"
    r"st t when poll reach|^MS Name/IP address|^ *r +b +swpd"
)


def of(source: Source, text: str) -> str:
    """The kind of `source`, by what it holds, then by its name."""
    lines = [line for line in text[:400_000].split("\n") if line.strip()][:2000]
    if not lines:
        return "unknown"
    if (
        "placement" in source.readers
        and (len(lines) <= 40 or regular(lines))
        and not any(_SPOKEN.search(line) for line in lines)
    ):
        return "note"

    def share(pattern: re.Pattern[str]) -> float:
        return sum(bool(pattern.search(line)) for line in lines) / len(lines)

    training = share(_TRAINING)
    if share(_KERNEL) > 0.6 and training < 0.2:
        return "kernel"
    dumped = any(_STACK.search(line) for line in lines)
    if (dumped and training < 0.3) or share(_FRAME) > (0.1 if dumped else 0.35):
        return "stack"
    if any(_SCHEDULER.search(line) for line in lines[:40]) and training < 0.2:
        return "scheduler"
    if any(_METRICS.search(line) for line in lines[:60]) and training < 0.2:
        return "metrics"
    name = slashed(source.path).rsplit("/", 1)[-1]
    for kind, pattern in _BY_NAME:
        if pattern.search(name) and training < 0.3:
            return kind
    if source.path.endswith((".py", ".sh", ".yaml", ".yml", ".sbatch", ".toml", ".cfg")):
        return "note"
    if training > 0.05 or len(lines) > 40:
        return "training"
    return "training" if any(_TRAINING.search(line) for line in lines) and len(lines) > 12 else "note"
