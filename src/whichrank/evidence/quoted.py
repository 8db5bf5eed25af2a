r"""Lines that only look like another source's word: a training program printed them.

Models are trained on logs, and print samples of them. A program's output that says "Out of memory: Killed process" is
not the kernel; "srun: error: node-3: task 1: Killed" within a sentence is not Slurm. Who really speaks frames its lines:
the kernel stamps them or syslog names it, Slurm's tools, launchers and NCCL put their names first. What lacks
the frame, or stands between lines of quite another day, is no proof; it is said that it was seen.

>>> by_frame("xid", "2026-03-02 09:06:39 INFO data.py:118 sample 9: NVRM: Xid (PCI:0000:05:00): 79")
'the kernel'
>>> by_frame("xid", "[41231.250000] NVRM: Xid (PCI:0000:05:00): 79")
>>> by_frame("task_exit", "srun: error: gx-1: task 1: Killed"), by_frame("task_exit", "> srun: error: gx-1: task 1: Killed")
(None, 'Slurm')
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone

from whichrank.evidence.frame import from_path
from whichrank.evidence.stamps import YEARLESS
from whichrank.facts import Fact, Gap, Said, Source

SHOWN = 3
AROUND = 5  # lines with a stamp before and after, that agree with each other
DATED = 400 * 86400 * 10**9  # ns since 1970: what is less is a time of day
FAR = timedelta(hours=26)  # more than any two time zones are apart
# What no tool prints as well: a link's state or a lost GPU may come from `ip` or nvidia-smi.
KERNEL = frozenset(
    {
        "hung_task",
        "io_error",
        "mce",
        "oom_constraint",
        "oom_kill",
        "oom_tasks",
        "pcie_error",
        "segfault",
        "storage_stall",
        "sxid",
        "xid",
    }
)
SLURM = frozenset({"oom_event", "step_cancelled", "task_exit", "task_oom"})
LOOSE = frozenset({"pod_evicted", "pod_preempted"})  # a sentence that anybody may write
PODS = frozenset({"container_exit", "pod_evicted", "pod_oom", "pod_preempted"})
_NEVER_A_RANK = {
    **dict.fromkeys(KERNEL, "the kernel"),
    **dict.fromkeys(PODS, "Kubernetes"),
    "job_state": "Slurm",
    "gpu_lost": "nvidia-smi",
}
_STAMP = r"(?:\[?\d{4}-\d\d-\d\d[T ][\d:]{8}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? ?|[A-Z][a-z]{2} +\d{1,2} [\d:]{8} )"
_TASK = r"(?:\s*\d{1,5}: ?)?"
_KERNEL = re.compile(
    rf"{_TASK}{_STAMP}?(?:<\d+>)?(?:\[ *\d+\.\d{{6}}\]|\[\w{{3}} \w{{3}} +\d+ |(?:[A-Za-z][\w.-]* )?(?:kernel|systemd(?:-\w+)?|NetworkManager)(?:\[\d+\])?: )"
    r"|.{0,120}\b(?:OOMKilling|SystemOOM|kernel-monitor)\b"  # an event that carries the kernel's word
)
_SLURM = re.compile(rf"{_TASK}{_STAMP}?(?:[A-Za-z][\w.-]*: )?(?:slurm[\w-]+|srun|sbatch|salloc)(?:\[[^\]]*\])?: ")
# Ray tells the driver who it killed, and why: by its own process, or in the error that the driver gets.
_RAY = re.compile(
    r"\((?:raylet|gcs_server|autoscaler)[^)]*\) |(?:\([^)]*pid=[^)]*\) )?(?:ray\.exceptions\.\w+: |Memory on the node \(IP: )"
)
_NCCL = re.compile(r"[A-Za-z0-9][\w.-]*:\d+:\d+ \[-?\d+\] (?:\S+:\d+ )?(?:\([\w:<>]+\) )?NCCL (?:WARN|INFO) ")
_REASON = re.compile(r"\b(?:Evict\w+|Preempt\w+|Warning|kubelet|kube-scheduler|[Rr]eason|[Mm]essage)\b\W")
_LOGGED = re.compile(r"\[rank\d+\]|\.py:\d+|^\s*\|")
_AGENT = re.compile(r"failed \(exitcode: ")
# Launchers are no rank either. What they say of a process begins with their own name, or with DeepSpeed's logger.
_LAUNCHER = re.compile(
    r"\[launch\.py:\d+:\w+\] |\b(?:mpirun|mpiexec|orterun|prterun|prun) noticed that process|\bMPI_ABORT was invoked"
    r"|\btorch\.multiprocessing\.spawn\.Process\w+Exception: "
)
_OF_PROCESSES = frozenset({"exit", "launcher_kill", "launcher_stop"})
_BAR = re.compile(r"\d+%\|[^|]{0,300}\|[^\[|]{0,100}\[[^\]]{0,100}\]")  # it leaves its line open: others land behind it
_RANKED = re.compile(r"\[(?:rank|default)\d+\]")
# PyTorch's C++ begins its line itself: an opening quote right before it is another program's.
_IN_QUOTES = re.compile(
    r"""[=:(,\[] ?[furb]{0,2}["'`](?:\[rank\d+\]:? ?)?\[(?:[EWIF] ?[\d :.]*\w+\.cpp:\d+|PG |Rank \d)"""
)
_RANKS = re.compile(r"\[rank(\d+)\]: ?\[rank(\d+)\]")
# What stands before a program's own words: labels, stamps, levels, places in source files, names of loggers.
_FRAME = re.compile(
    rf"{_STAMP}(?:[A-Za-z][\w.-]* (?=[\w.-]+\[\d+\]: ))?|\[[^\]]{{0,80}}\]|\{{[^}}]{{0,200}}\}}|\([^)]*pid=[^)]*\)"
    r"|[IWEFCV]\d{3,4} [\d:.]+ +\d+ (?=[\w/.-]+\.(?:py|cpp):\d+\])|[\w/.-]+\.(?:py|cpp|cc|cu|h):\d+[:\]]*"
    r"|\b(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b:?|\S+:(?= |$)"
)
_WORDS = re.compile(r"[A-Za-z]{2}|\|")


def by_frame(kind: str, line: str, launcher: object = None) -> str | None:
    """Who alone could have said this, where the line is not framed as theirs."""
    if kind in KERNEL and not _KERNEL.match(line):
        return "the kernel"
    if kind in PODS and (_LOGGED.search(line) or (kind in LOOSE and not _REASON.search(line))):
        return "Kubernetes"
    if launcher == "ray" and kind in SLURM:
        return None if _RAY.match(line) else "Ray"
    if kind in SLURM and not _SLURM.match(line):
        return "Slurm"
    if (ranks := _RANKS.match(line)) and ranks[1] != ranks[2]:
        return f"rank {ranks[2]}"
    if _IN_QUOTES.search(line) and not line.lstrip().startswith("{"):
        return "PyTorch"
    if (match := _NCCL.search(line)) and _WORDS.search(_FRAME.sub(" ", line[: match.start()])):
        return "NCCL"
    if (match := _AGENT.search(line)) and _spoken(line[: match.start()]):
        return "torchrun"
    if kind in _OF_PROCESSES and (match := _LAUNCHER.search(line)) and _spoken(line[: match.start()]):
        return "a launcher"
    return None


def _spoken(before: str) -> bool:
    """Are there a rank's label or a program's own words in what stands before a launcher's line? It is no rank."""
    return bool(_RANKED.search(before) or _WORDS.search(_FRAME.sub(" ", _BAR.sub(" ", before))))


def sift(facts: Sequence[Fact], said: Sequence[Said], source: Source) -> tuple[list[Fact], list[Gap]]:
    """The facts of a training program's output that may be taken at their word, and a gap for the others."""
    kept: list[Fact] = []
    quoted: list[tuple[Fact, str]] = []
    days = _Days(said)
    for fact in facts:
        owner = (
            None
            if source.headed
            else by_place(fact, source) or by_frame(fact.kind, fact.spot.excerpt, fact["launcher"])
        )
        if owner is None and days.strange(fact):
            owner = "another run"
        if owner:
            quoted.append((fact, owner))
        else:
            kept.append(fact)
    return kept, list(_gaps(quoted, source))


def by_place(fact: Fact, source: Source) -> str | None:
    """Who alone could have said this, where the source is no place for it: a rank's own file holds its output."""
    if source.identity.rank is None:
        return None
    if fact.kind == "exit" and fact["launcher"] == "deepspeed":
        return "a launcher"
    return _NEVER_A_RANK.get(fact.kind)


def foreign(facts: Sequence[Fact], sources: Sequence[Source]) -> tuple[list[Fact], list[Gap]]:
    """The facts without those under a rank's label in another rank's own file, and gaps for these.

    Only where that rank speaks in a file of its own.
    """
    named = {source.path: rank for source in sources if (rank := from_path(source.path).rank) is not None}
    at_home = {
        rank for source in sources if (rank := named.get(source.path)) is not None and source.identity.rank == rank
    }
    guests: dict[Source, list[Fact]] = {}
    for fact in facts if len(named) > 1 else ():
        home = named.get(fact.spot.source.path)
        if home is not None and fact.rank not in (None, home) and fact.rank in at_home and _labelled(fact):
            guests.setdefault(fact.spot.source, []).append(fact)
    # One file for several ranks may be named after its first.
    few = {source: found for source, found in guests.items() if len({fact.rank for fact in found}) <= 2}
    out = {id(fact) for found in few.values() for fact in found}
    gaps = [
        gap for source, found in few.items() for gap in _gaps([(fact, f"rank {fact.rank}") for fact in found], source)
    ]
    return [fact for fact in facts if id(fact) not in out], gaps


def _labelled(fact: Fact) -> bool:
    return fact.spot.excerpt.startswith(f"[rank{fact.rank}]")


def _gaps(quoted: Sequence[tuple[Fact, str]], source: Source) -> Iterable[Gap]:
    by_owner: dict[str, list[Fact]] = {}
    for fact, owner in quoted:
        by_owner.setdefault(owner, []).append(fact)
    for owner, facts in by_owner.items():
        lines = sorted({fact.spot.line or 0 for fact in facts})
        where = ", ".join(str(line) for line in lines[:SHOWN]) + (", …" if len(lines) > SHOWN else "")
        why = f"looks like the word of {owner}, but stands in what a program printed: not used as proof"
        would_help = {
            "the kernel": ("the kernel's own log", "dmesg -T"),
            "Slurm": ("Slurm's own word", "sacct -j JOB -o jobid,state,exitcode,nodelist"),
            "Kubernetes": ("the cluster's own word", "kubectl describe pod POD"),
        }.get(owner, ("", ""))
        yield Gap(f"{source.path}:{where}", why, *would_help)


def _accuses(fact: Fact) -> bool:
    """Does it say of somebody how the job ended, by the stamp of its own line? Summaries come later than they say."""
    if fact["echo"] or fact.kind == "exit":
        return False
    return fact.rank is not None or fact.kind in KERNEL | SLURM | PODS | {"exception"}


class _Days:
    """When the lines around a fact were printed."""

    def __init__(self, said: Sequence[Said]) -> None:
        # Times of day without a date count from 1970.
        stamped = [(line.spot.place, line.at_ns) for line in said if line.at_ns is not None and line.at_ns > DATED]
        stamped.sort()
        self.lines = [number for number, _ in stamped]
        self.times = [at for _, at in stamped]

    def strange(self, fact: Fact) -> bool:
        """Does a fact stand between lines of one day with a stamp of quite another?"""
        if fact.at_ns is None or fact.clock != "wall" or not _accuses(fact):
            return False
        at = bisect(self.lines, fact.spot.place)
        if not AROUND <= at <= len(self.lines) - AROUND:
            return False
        times = (*self.times[at - AROUND : at + AROUND], fact.at_ns)
        *around, when = (datetime.fromtimestamp(time / 1e9, timezone.utc) for time in times)
        if any(date.year == YEARLESS for date in (*around, when)):
            try:
                *around, when = (date.replace(year=YEARLESS) for date in (*around, when))
            except ValueError:
                return False
            if not 35 < around[0].timetuple().tm_yday < 330:
                return False  # around New Year the order of days without a year tells nothing
        first, last = min(around), max(around)
        return last - first < FAR and not first - FAR <= when <= last + FAR
