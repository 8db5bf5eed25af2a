"""Settings that bear on a cause: timeouts, workers, what a batch script asked for, environment variables.

From programs' logs, launch lines, YAML, Python and shell excerpts. A duration gets `seconds`. What a library merely
advises ("try NCCL_P2P_DISABLE=1") is no setting. Options of a launcher's own line are read by launchers.py, variables
that NCCL names itself by nccl.py.

>>> from whichrank.evidence.sample import facts
>>> def settings(text):
...     return [(fact["name"], fact["value"], fact["seconds"]) for fact in facts(READER, text)]
>>> settings("  ddp_timeout=7200,"), settings("pg_timeout=45min, heartbeat_timeout=3000")
([('ddp_timeout', 7200, 7200)], [('pg_timeout', '45min', 2700), ('heartbeat_timeout', 3000, 3000)])
>>> settings("dist.init_process_group('nccl', timeout=timedelta(hours=2))")
[('init_process_group timeout', 'timedelta(hours=2)', 7200)]
>>> settings("rank 6/8 ready (init_process_group timeout 0:10:00)"), settings("--distributed-timeout-minutes 10")
([('init_process_group timeout', '0:10:00', 600)], [('distributed_timeout_minutes', 10, 600)])
>>> settings("export NCCL_TIMEOUT=7200"), settings("Consider setting NCCL_TIMEOUT=7200"), settings("requests.get(u, timeout=30)")
([('NCCL_TIMEOUT', 7200, 7200)], [], [])
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.facts import Fact

_DELTA = r"(?:datetime\.)?timedelta\((?P<args>[\w=., ]*)\)"
_CLOCK = r"(?:\d+ days?, )?\d{1,3}:\d\d:\d\d(?:\.\d+)?"
_NUMBER = r"\d+(?:\.\d+)?(?:e\d)?"
_UNIT = r"(?:ms|msecs?|milliseconds|s|secs?|seconds|m|mins?|minutes|h|hrs?|hours)"
TIMEOUT = re.compile(
    rf"(?<![\w.])(?:--)?(?P<name>(?:[A-Za-z][\w.-]{{0,60}}?[_-])?timeout(?:[_-][a-z]+)*)[\"']?\s{{0,9}}(?P<tie>[=:]\s*|\s+)[\"']?(?P<value>{_DELTA}|{_CLOCK}|{_NUMBER}\s?(?:{_UNIT}\b)?)(?![\w(])",
    re.I,
)
PHRASE = re.compile(
    rf"\b(?P<name>(?:init_process_group|process[ _]group|pg|nccl|collective|ddp|dist(?:ributed)?) timeout)\s{{0,9}}(?:is|of|set to|[=:])?\s*(?P<value>{_DELTA}|{_CLOCK}|{_NUMBER}\s?(?:{_UNIT}\b)?)",
    re.I,
)
# Whose timeout is a bare `timeout=`: only one that stands among words of process groups is a collective's.
_GROUP = re.compile(
    r"init_process_group|init_distributed|process[ _]group|\bbackend\b|\bnccl\b|\bgloo\b|\bdist(?:ributed)?\b|\bddp\b|\bworld(?:_size)?\b|InitProcessGroupKwargs|new_group|FullyShardedDataParallel|\bddp_",
    re.I,
)
_FOREIGN = re.compile(
    r"WorkNCCL|Watchdog|store_based_barrier|\bFile \"|timed out|TimeoutError|\bwill time ?out\b|\.cpp:\d+\]"
)
_ADVICE = re.compile(
    r"\b(?:run with|rerun|consider|passing|by setting|try|set the|please|you can|you may|could|should|recommend|e\.g\.|for example|alternatively|hint|increase|to enable|to disable|to avoid|to work ?around|instead of|unless|if you)\b",
    re.I,
)
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds_of(name: str, value: str) -> float | None:
    """A duration in seconds: by the value's unit, else by the name's, else in seconds.

    >>> seconds_of("timeout_minutes", "1"), seconds_of("x", "0:30:00"), seconds_of("x_ms", "500"), seconds_of("x", "1 day, 2:00:00")
    (60, 1800, 0.5, 93600)
    """
    if "timedelta" in value:
        return _timedelta(value)
    if match := re.fullmatch(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)", value):
        return _tidy(int(match[1] or 0) * 86400 + int(match[2]) * 3600 + int(match[3]) * 60 + float(match[4]))
    match = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d)?|\.\d+)\s?([a-z]*)", value, re.I)
    if not match:
        return None
    unit = match[2].lower() or _unit_of(name)
    return _tidy(
        float(match[1]) * (0.001 if unit in ("ms", "msec", "msecs", "milliseconds") else _SECONDS.get(unit[:1], 1))
    )


def _unit_of(name: str) -> str:
    match = re.search(
        r"[_-](ms|msec|milsec|millis(?:econds)?|minutes|mins?|m|hours|hrs?|h|days?|s|secs?|seconds)$", name.lower()
    )
    if not match:
        return "s"
    return "ms" if match[1].startswith(("ms", "mil")) else match[1]


def _timedelta(text: str) -> float | None:
    match = re.search(_DELTA, text)
    if not match:
        return None
    total, names = 0.0, ("days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks")
    for position, argument in enumerate(part for part in match["args"].split(",") if part.strip()):
        name, _, number = argument.rpartition("=")
        name = name.strip() or names[min(position, 6)]
        if not re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", number):
            return None
        total += float(number) * {"microseconds": 1e-6, "milliseconds": 1e-3}.get(name, _SECONDS.get(name[:1], 1))
    return _tidy(total)


def _tidy(value: float) -> float:
    return int(value) if value == int(value) else value


def _fact(row: Row, kind: str, name: str, value: str, **more: Any) -> Fact:
    return row.fact(kind, name=name, value=int(value) if value.isdecimal() else value, **more)


def read_timeout(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """Every timeout that the line sets."""
    text = row.text
    if _FOREIGN.search(text) or _ADVICE.search(text):
        return
    taken: list[tuple[int, int]] = []
    grouped = bool(_GROUP.search(text))
    for found in (*PHRASE.finditer(text), *TIMEOUT.finditer(text)):
        if any(first < found.end() and found.start() < last for first, last in taken):
            continue
        name, value = _name(text, found, grouped), found["value"].strip()
        if (
            name is None
            or name.isupper()
            or "on_timeout" in name.lower()
            or (
                "tie" in found.groupdict()
                and not found["tie"].strip()
                and not text[: found.start("name")].endswith("--")
            )
        ):
            continue
        seconds = seconds_of(name, value)
        if seconds is not None:
            taken.append(found.span())
            yield _fact(row, "config", name, value, seconds=seconds)


def _name(text: str, found: re.Match[str], grouped: bool) -> str | None:
    """What the timeout is called, None if it is not known whose it is; `grouped`: the line speaks of process groups."""
    name = found["name"].replace("-", "_") if " " not in found["name"] else found["name"]
    if name.lower() not in ("timeout", "timeout_s", "timeout_sec", "timeout_seconds", "timeout_minutes", "timeout_ms"):
        return name
    before = text[max(0, found.start() - 2000) : found.start()]
    if re.search(r"rdzv|rendezvous", before, re.I):
        return f"rdzv_{name}"
    if call := re.search(r"(init_process_group|init_distributed|new_group|InitProcessGroupKwargs)\([^)]*$", before):
        return f"{call[1]} {name}"
    if name.lower() == "timeout" and re.search(r"\w\([^()]*$", before) and not grouped:
        return None
    return name if grouped or name.lower() != "timeout" else None


_VARIABLE = re.compile(
    r"(?<![\w$-])(?P<name>(?:T?NCCL|RCCL|TORCH(?:ELASTIC|INDUCTOR)?|PYTORCH|GLOO|TP|UCX|FI|OFI|HSA|CUDA|RAY|OMP|TOKENIZERS|HF|MASTER|KINETO|DS|DEEPSPEED|MKL|PYTHON)(?:_[A-Z0-9]+)+|PYTHONFAULTHANDLER|WORLD_SIZE|LOGLEVEL)"
    r"(?P<tie>=|: )[\"']?(?P<value>[^\s\"';,]*(?:,[^\s\"';,]+)*)[\"']?"
)
_SETS = re.compile(
    r"^\s*(?:[+$#>%]\s+|\S+[$#%]\s+|-\s+)*(?:(?:export|env|setenv|set)\b|[A-Z][A-Z0-9_]{3,}=\S|[A-Z][A-Z0-9_]{5,}: [\"']?\S+\s*$|env(?:ironment)?\s*:)"
    r"|\b(?:torchrun|python[\d.]*|srun|mpirun|mpiexec|accelerate|deepspeed|ray|sbatch|docker|kubectl)\b|(?:^|\s)(?:-x|-e|--env|--export[= ]?\S*)\s",
    re.I,
)
_NOT_SECONDS = ("NCCL_IB_TIMEOUT", "UCX_RC_TIMEOUT")


def read_variables(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """Environment variables that a line sets: an export, a launch line, a dump of the environment, YAML."""
    text = row.text
    if not _SETS.search(text) or ("export" not in text and _ADVICE.search(text)) or "set by environment" in text:
        return
    for found in _VARIABLE.finditer(text):
        name, value = found["name"], found["value"].rstrip(",)")
        if not value or name.endswith("_VISIBLE_DEVICES"):
            continue
        seconds = (
            seconds_of(name, value)
            if re.search(r"(?<!ON_)TIMEOUT(?:_\w+)?$", name) and name not in _NOT_SECONDS and value.isdecimal()
            else None
        )
        yield _fact(row, "env_set", name, value, **({"seconds": seconds} if seconds is not None else {}))


_KNOBS = (
    r"(?P<name>(?:dataloader_)?num_workers|(?:dataloader_)?prefetch_factor|(?:dataloader_)?persistent_workers|gradient_checkpointing|use_reentrant|find_unused_parameters|static_graph|broadcast_buffers"
    r"|dispatch_batches|split_batches|drop_last|async_save|pin_memory|(?:ddp_)?bucket_cap_mb|num_processes|num_machines|nproc_per_node|nnodes|main_process_port)"
)


def read_knobs(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """Knobs of the training loop: `num_workers=8`, YAML, JSON, printed arguments."""
    if 'File "' in row.text or _ADVICE.search(row.text):
        return
    for found in re.finditer(
        rf"(?<![\w.]){_KNOBS}[\"']?\s*[=:]\s*[\"']?(?P<value>\d+|true|false|null|none)\b", row.text, re.I
    ):
        yield _fact(row, "config", found["name"], found["value"])


def read_sbatch(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """`#SBATCH --mem=64G --time=24:00:00`. Under torchrun `ntasks` is no world size: the names keep their origin."""
    for found in re.finditer(
        r"(?:--(?P<long>[a-z][a-z-]+)|-(?P<short>[Nntct]))(?:=|\s+)(?P<value>[^\s#]+)", match["rest"]
    ):
        name = found["long"] or {"N": "nodes", "n": "ntasks", "t": "time", "c": "cpus-per-task"}.get(
            found["short"], found["short"]
        )
        seconds = seconds_of(name, found["value"]) if name == "time" and ":" in found["value"] else None
        yield _fact(
            row,
            "config",
            f"sbatch_{name.replace('-', '_')}",
            found["value"],
            **({"seconds": seconds} if seconds is not None else {}),
        )


LINES = (
    Line("config", ("timeout", "Timeout"), r"[Tt]imeout", read=read_timeout),
    Line(
        "env_set",
        (
            "NCCL_",
            "TORCH",
            "GLOO_",
            "CUDA_",
            "UCX_",
            "RAY_",
            "TP_",
            "FI_",
            "HSA_",
            "TOKENIZERS_",
            "MASTER_",
            "WORLD_SIZE",
            "OMP_",
            "PYTHONFAULT",
            "HF_",
        ),
        r"[A-Z]{2,}_?[A-Z]*[=:]|[A-Z]=",
        read=read_variables,
    ),
    Line(
        "config",
        (
            "num_workers",
            "prefetch_factor",
            "persistent_workers",
            "gradient_checkpointing",
            "use_reentrant",
            "find_unused_parameters",
            "static_graph",
            "dispatch_batches",
            "async_save",
            "num_processes",
            "num_machines",
            "nproc_per_node",
            "nnodes",
            "bucket_cap_mb",
        ),
        _KNOBS,
        read=read_knobs,
    ),
    Line("config", "#SBATCH", r"^\s*#SBATCH\s+(?P<rest>-.*)$", read=read_sbatch),
)

READER = Reader(
    "settings",
    LINES,
    title="settings: launch lines, YAML, batch scripts, environment",
    versions="free text, YAML, shell: no version",
    collect=("scontrol write batch_script JOBID -", "env | grep -E '^(NCCL|TORCH|CUDA|GLOO)_'"),
)
