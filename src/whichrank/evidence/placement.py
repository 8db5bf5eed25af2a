"""Where ranks run, as people and launch files note it: layouts, host files, visible devices, bus ids.

Only short texts are looked at as notes, and only clauses that fit as a whole: a sentence that mentions a rank is none.
Programs that introduce themselves in their own log are read by launchers.py.

>>> from whichrank.evidence.sample import facts
>>> def members(text):
...     return [(fact.rank, fact.who.host, fact.who.pid) for fact in facts(READER, text) if fact.kind == "member"]
>>> members("master-0: rank 0,1 ; worker-0: rank 2,3")
[(0, 'master-0', None), (1, 'master-0', None), (2, 'worker-0', None), (3, 'worker-0', None)]
>>> members("node3 -> ranks 24..25"), members("rank 3 cn-417 GPU 3 (0000:81:00.0)"), members("rank 3 was slow")
([(24, 'node3', None), (25, 'node3', None)], [(3, 'cn-417', None)], [])
>>> members('''torchrun: vx-1 node_rank 0, vx-2 node_rank 1, 2 processes each
... pids in local-rank order: vx-1 20100..20101, vx-2 20104..20105''')
[(0, 'vx-1', 20100), (1, 'vx-1', 20101), (2, 'vx-2', 20104), (3, 'vx-2', 20105)]
>>> [(fact.rank, fact.who.host, fact.who.pid) for fact in facts(READER, "rank host local_rank pid\\n3 cn-01 3 4242\\n4 cn-02 0 977")]
[(3, 'cn-01', 4242), (4, 'cn-02', 977)]
>>> facts(READER, "torchrun runs with CUDA_VISIBLE_DEVICES=0,1,3,2 on hgx-32 (cable order)")[0]["devices"]
[0, 1, 3, 2]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.envelope import Part
from whichrank.evidence.scan import Line, Reader, Row
from whichrank.facts import Fact, Identity, Source

_BUS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
_PAIR = re.compile(rf"(?<![\w:.])(?:GPU ?)?(?P<index>\d{{1,2}})(?:\s*(?:->|=>|[=:,|])\s*|\s+)(?P<bus>{_BUS})(?![\w:])")


def bus_id(text: str) -> str:
    """A bus id as the kernel writes a GPU: domain, bus, device, lower case.

    >>> bus_id("18:00"), bus_id("00000000:BA:00.0")
    ('0000:18:00', '0000:ba:00')
    """
    parts = text.lower().split(".")[0].split(":")
    return ":".join([parts[-3][-4:].rjust(4, "0") if len(parts) > 2 else "0000", parts[-2], parts[-1]])


def read_visible(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    devices = [int(name) if name.isdecimal() else name for name in match["devices"].split(",") if name]
    host = re.match(r"[\"']? (?:is set )?on (?P<host>[A-Za-z][\w.-]*[\w])", row.raw[match.end() :])
    before = re.search(r"(?:^|\s)(?:on )?(?P<host>[A-Za-z][\w.-]*\d[\w.-]*): +(?:export +)?$", row.raw[: match.start()])
    found = host or before
    yield row.fact(
        "visible_devices", who=Identity(host=found["host"] if found else None), name=match["name"], devices=devices
    )


def read_bus_ids(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    pairs = [(int(found["index"]), bus_id(found["bus"])) for found in _PAIR.finditer(row.raw)]
    if len(pairs) < 2:
        return
    host = re.search(r"\bon (?!both|all|each|every|the|host)(?P<host>[A-Za-z][\w.-]*\w)", row.raw)
    yield row.fact("bus_ids", who=Identity(host=host["host"] if host else None), ids=pairs)


def read_note(part: Part, source: Source) -> Iterator[Fact]:
    """Notes have many patterns of their own: they are compiled when a text that may be one turns up."""
    from whichrank.evidence import notes

    yield from notes.read_note(part, source)


LINES = (
    Line(
        "visible_devices",
        "VISIBLE_DEVICES",
        r"(?P<name>(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES)(?: set to |[\"']?\s?[=:]\s?)[\"']?(?P<devices>(?:\d+|GPU-[\w-]+|MIG-[\w/-]+)(?:,(?:\d+|GPU-[\w-]+|MIG-[\w/-]+))*)",
        read=read_visible,
    ),
    Line("pid_map", "NSpid:", r"NSpid:\s+(?P<pid>\d+)(?:\s+\d+)*?\s+(?P<inner>\d+)\s*$"),
    Line("bus_ids", (" bus", "Bus", "PCI"), r"(?i:bus|pci)", read=read_bus_ids),
)

READER = Reader(
    "placement",
    LINES,
    note=read_note,
    title="where ranks run: layouts, host files, notes, bus ids",
    versions="free text and host files: no version",
    collect=("srun -l hostname",),
)
