"""Lines that tie a rank to a process, a host, a GPU or the size of the world, however a program words them.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> def member(text):
...     found, = facts(Reader("members", LINES), text)
...     return found.rank, found.who.host, found.who.pid, found["world_size"]
>>> member("[job 30771 11:00:00] rank 0 of 8 on lk-04, pid 15100")
(0, 'lk-04', 15100, 8)
>>> member("2026-05-12 09:00:00 | rank 3/8 | host dn-21 | pid 60413 | cuda:3")
(3, 'dn-21', 60413, 8)
>>> member("2026-12-02T06:40:00Z INFO rank=0 pid=910 host=ap-11 world=8 start")
(0, 'ap-11', 910, 8)
>>> member("rank 3/8 host node-03 pid 4242"), member("Hello from rank 5 of 16 on gpu-a07")
((3, 'node-03', 4242, 8), (5, 'gpu-a07', None, 16))
>>> member("Process rank: 0, world size: 2, device: cuda:0, distributed training: True")
(0, None, None, 2)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from whichrank.evidence.scan import Line, Row
from whichrank.facts import Fact, Identity

# "on gpu 3", "on gpu-3" are no hosts; gpu-a07, gpu07 and node-03 are what clusters call theirs.
_NAME = r"(?!(?i:cuda|device|step|epoch|rank|local|localhost|pid|port)[\W_]?\d*\b)(?!(?i:gpu)[\W_]?(?!0\d)\d{0,2}(?![\w-]|\.\w))(?:[A-Za-z][\w-]*(?:\.[\w-]+)*\d[\w.-]*|[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)+|(?:\d{1,3}\.){3}\d{1,3})"
# Ranks that write at once to one pipe lose the ends of lines between them: "rank 1 on n42026-11-30 19:32:47 rank 2 …"
_NEXT_LINE = r"(?=\d{4}-\d\d-\d\d[ T]\d\d:)"
_HOST_NAME = rf"[A-Za-z][\w-]*?\d[\w.-]*?{_NEXT_LINE}|(?![\w.-]+?{_NEXT_LINE}){_NAME}"
_RANK = (
    r"(?<![\w.])(?i:global[ _-]?|world[ _-]?|process )?(?i:rank)(?: ?[=:#] ?| |-|(?=\d))(?P<rank>\d{1,6})\b(?! ?:\d)"
)
_OF = r"(?<![\w.])(?i:global[ _-]?|world[ _-]?|process )?(?i:rank)(?: ?[=:#] ?| |-|(?=\d))\d{1,6}(?: of |/| / )(?P<of>\d{1,6})\b"
_PID = r"(?<![\w.])(?i:pid)(?: ?[=:#] ?| )(?P<pid>\d{2,8})\b"
_HOST = rf"(?<![\w.])(?i:host(?:[ _]?name)?|node(?:[ _]?name)?|on(?: host| node)?)(?: ?[=:] ?| )['\"]?(?P<host>{_HOST_NAME})"
_WORLD = r"(?<![\w.])(?i:world(?:[ _-]?size)?|nranks|num_ranks)(?: ?[=:] ?| )(?P<world_size>\d{1,6})\b"
_LOCAL = r"(?<![\w.])(?i:local[ _-]?rank)(?: ?[=:] ?| )(?P<local_rank>\d{1,4})\b"
_GPU = r"(?<![\w.])(?P<gpu>cuda:\d+)\b"
_ATTEMPT = r"(?<![\w.])(?i:attempt|restart)(?: ?[=:#] ?| )(?P<attempt>\d{1,3})\b"
_NOT = r"(?!.{1200})(?!.*(?:\.cpp:\d+\]|\[PG |\[Rank \d|WorkNCCL|NCCL (?:INFO|WARN)|\[PID:\d+\] \[RANK:|store_based_barrier|commId|\bexited\b|\bexits\b|\bkilled\b|terminated|noticed that|MPI_ABORT|JobEnvironment|world_rank=|=   ))"


def _maybe(pattern: str) -> str:
    return rf"(?:(?=.*?{pattern}))?"


def _world(values: dict[str, Any]) -> None:
    """`rank 3/8` says the size of the world too."""
    of = values.pop("of", None)
    if of is not None:
        values.setdefault("world_size", of)


# The size may stand behind the second word "rank" of a line: "[rank0]: … rank 0/4".
_REST = _maybe(_OF) + _maybe(_LOCAL) + _maybe(_WORLD) + _maybe(_GPU) + _maybe(_ATTEMPT)


def _range(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    """ "host loch-9: 8 GPUs, ranks 8-15": one fact a rank."""
    first, last = int(match["first"]), int(match["last"])
    if 0 <= last - first < 1024:
        for offset in range(last - first + 1):
            yield row.fact("member", who=Identity(rank=first + offset, local_rank=offset, host=match["host"]))


def _mapping(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    """DeepSpeed: global_rank_mapping=defaultdict(<class 'list'>, {'quill-a': [0, 1], 'quill-b': [2, 3]})."""
    for host, ranks in re.findall(r"'([^']+)': \[([\d, ]*)\]", match["map"])[:4096]:
        for local, rank in enumerate(re.findall(r"\d+", ranks)):
            yield row.fact("member", who=Identity(rank=int(rank), local_rank=local, host=host))


def _environ(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """RANK in a process's environment, where the line or the command above it says whose: /proc/PID/environ."""
    path = re.search(r"/proc/(\d+)/environ", row.text) or re.search(r"/proc/(\d+)/environ", row.command)
    local = re.search(r"\bLOCAL_RANK=(\d{1,4})\b", row.text)
    if path:
        who = Identity(rank=int(match["rank"]), local_rank=int(local[1]) if local else None, pid=int(path[1]))
        yield row.fact("member", who=who)


LINES = (
    Line(
        "member",
        "ranks ",
        rf"(?i:host|node) (?P<host>{_NAME})\b.{{0,40}}?\branks (?P<first>\d+) ?(?:-|to|\.\.) ?(?P<last>\d+)\b",
        read=_range,
    ),
    Line("member", "RANK=", r"(?<![A-Z_])RANK=(?P<rank>\d{1,6})\b", read=_environ),
    Line("member", "global_rank_mapping", r"global_rank_mapping=.*?(?P<map>\{.*\})", read=_mapping),
    Line("member", ("pid", "PID", "Pid"), rf"^{_NOT}(?=.*?{_RANK})(?=.*?{_PID}){_maybe(_HOST)}{_REST}", tidy=_world),
    Line(
        "member",
        ("host", "Host", "HOST", " on ", "node", "Node"),
        rf"^{_NOT}(?!.*?{_PID.replace('?P<pid>', '')})(?=.*?{_RANK}.{{0,40}}?{_HOST}){_REST}",
        tidy=_world,
    ),
    # No host and no pid: the size of the world, or the GPU of a rank.
    Line(
        "member",
        ("orld", "WORLD", "nranks", "num_ranks", "device"),
        rf"^{_NOT}(?!.*?{_PID.replace('?P<pid>', '')})(?!.*?{_HOST.replace('?P<host>', '')})(?=.*?{_RANK}\W.{{0,60}}?(?:{_WORLD}|(?i:device)\W{{1,3}}{_GPU})){_maybe(_LOCAL)}{_maybe(_OF)}",
        tidy=_world,
    ),
    Line(
        "member",
        "orld",
        rf"^{_NOT}(?!.*?{_RANK.replace('?P<rank>', '')}\W.{{0,60}}?(?i:world))(?=.*?(?i:world[ _-]?size)(?: ?[=:] ?| )(?P<world_size>\d{{1,6}})\b)(?!.*(?i:worker_count|group|tensor|data parallel|pipeline|_world_size|world-size \d+$))",
    ),
    # PyTorch Lightning
    # srun wrappers: "[garnet02] task 6 pid 48866 local 2"
    Line(
        "member",
        "task",
        r"^\[?(?P<host>[A-Za-z][\w.-]{0,80}\d[\w.-]{0,80})\]?:? task (?P<rank>\d{1,6}),? pid (?P<pid>\d+)(?:,? local (?P<local_rank>\d+))?",
    ),
    Line("member", "GLOBAL_RANK", r"GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<world_size>\d+)"),
    # submitit
    Line(
        "member",
        "JobEnvironment(",
        r"JobEnvironment\(job_id=(?P<world>\w+), hostname=(?P<host>[^,]+), local_rank=(?P<local_rank>\d+)\(\d+\), node=\d+\(\d+\), global_rank=(?P<rank>\d+)\((?P<world_size>\d+)\)",
        {"launcher": "submitit"},
    ),
    # fairseq
    Line("member", "initialized host", r"initialized host (?P<host>\S+) as rank (?P<rank>\d+)"),
    # DeepSpeed
    Line(
        "member",
        "spawned with command",
        r"process (?P<pid>\d+) spawned with command: .*--local[_-]rank=(?P<local_rank>\d+)",
        {"launcher": "deepspeed"},
    ),
    # Ray Train
    Line(
        "member",
        "world_rank=",
        r"ip=(?P<host>[\w.:-]+), pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+), local_rank=(?P<local_rank>\d+)",
        {"launcher": "ray"},
    ),
    # nccl-tests
    Line(
        "member",
        "Group",
        r"#\s+Rank\s+(?P<rank>\d+) Group\s+\d+ Pid\s+(?P<pid>\d+) on\s+(?P<host>\S+) device\s+(?P<gpu>\d+)",
    ),
)
