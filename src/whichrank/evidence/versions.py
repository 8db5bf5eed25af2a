r"""Which versions a host runs, and how much memory it may pin: what people collect to compare nodes.

Reads `pip freeze`, `pip list`, `conda list`, `python -m torch.utils.collect_env` (PyTorch 1.8 to 2.14), the head of
nvidia-smi, `nvcc --version`, `ulimit -a` and /proc/PID/limits. Only what has to fit between nodes; what is
equal everywhere is in order, and one host's alone says nothing.

>>> from whichrank.evidence.sample import facts
>>> text = "n3: torch==2.4.0+cu121\nn4: torch==2.5.1+cu124"
>>> [(fact.who.host, fact["what"], fact["value"]) for fact in facts(READER, text)]
[('n3', 'torch', '2.4.0+cu121'), ('n4', 'torch', '2.5.1+cu124')]
>>> [(fact["what"], fact["value"]) for fact in facts(READER, "max locked memory           (kbytes, -l) 64")]
[('memlock_kb', 64)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.evidence.section import is_host
from whichrank.facts import Fact, Identity

_PACKAGES = {
    "torch": "torch",
    "pytorch": "torch",
    "nvidia-nccl-cu11": "nccl",
    "nvidia-nccl-cu12": "nccl",
    "nvidia-nccl-cu13": "nccl",
    "nccl": "nccl",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "transformers": "transformers",
    "megatron-core": "megatron-core",
}
_NAMES = "|".join(sorted(_PACKAGES, key=len, reverse=True))


def _who(row: Row, match: re.Match[str]) -> Identity:
    """pdsh's label, where the frame did not take it for one."""
    host = match["host"]
    return Identity(host=host) if row.who.host is None and host and is_host(host) else Identity()


def _package(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    yield row.fact("version", who=_who(row, match), what=_PACKAGES[match["name"].lower()], value=match["value"])


def _told(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    what = "torch" if "PyTorch" in match[0] else "driver"
    yield row.fact("version", who=_who(row, match), what=what, value=match["value"])


def _limit(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    found = match.groupdict()
    value: Any = found.get("kb") or found.get("bytes")
    if value != "unlimited":
        value = int(value) if found.get("kb") else int(value) // 1024
    yield row.fact("version", what="memlock_kb", value=value)


_HEAD = r"^(?:(?P<host>[A-Za-z][\w.-]{0,60}): )?"

READER = Reader(
    "versions",
    lines=(
        # pip freeze, and collect_env's lines of it; an installer's own words do not begin with the name
        Line(
            "version",
            tuple(f"{name}==" for name in _PACKAGES),
            rf"{_HEAD}(?:\[(?:pip3?|conda)\] )?(?P<name>{_NAMES})==(?P<value>\d[\w.+!-]*)\s*$",
            read=_package,
        ),
        # pip list, conda list
        Line(
            "version",
            tuple(f"{name}   " for name in _PACKAGES),
            rf"{_HEAD}(?:\[conda\] )?(?P<name>{_NAMES})\s{{2,}}(?P<value>\d[\w.+!-]*)(?:\s+\S+(?:\s+\S+)?)?\s*$",
            read=_package,
        ),
        Line("version", "PyTorch version: ", rf"{_HEAD}PyTorch version: (?P<value>\d\S*)\s*$", read=_told),
        Line(
            "version",
            "Nvidia driver version: ",
            rf"{_HEAD}Nvidia driver version: (?P<value>\d[\d.]*)\s*$",
            read=_told,
        ),
        Line(
            "version",
            "Driver Version: ",
            r"\| NVIDIA-SMI \S+ +Driver Version: (?P<value>\d[\d.]*) ",
            {"what": "driver"},
        ),
        Line(
            "version",
            "Cuda compilation tools, release",
            r"Cuda compilation tools, release [\d.]+, V(?P<value>\d[\d.]*)",
            {"what": "nvcc"},
        ),
        Line(
            "version", "max locked memory", r"max locked memory\s+\(kbytes, -l\) (?P<kb>\d+|unlimited)\s*$", read=_limit
        ),
        Line(
            "version",
            "Max locked memory",
            r"Max locked memory\s+(?P<bytes>\d+|unlimited)\s+(?:\d+|unlimited)\s+bytes",
            read=_limit,
        ),
    ),
    machine=True,
    title="versions and limits that must fit between nodes",
    versions="pip, conda, `torch.utils.collect_env` of PyTorch 1.8 to 2.14, nvcc, `ulimit -a`",
    collect=(
        "pip freeze > $(hostname)-pip.txt",
        "python -m torch.utils.collect_env > $(hostname)-env.txt",
        "ulimit -a",
    ),
)
