r"""NCCL's own list of operations: what each process enqueued on each communicator, last of all.

NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL (or ALL) prints a line for every call. Format: NCCL 2.14 to 2.30, src/enqueue.cc
(ncclEnqueueCheck), the same in all of them: ``op: opCount %lx … count %zu datatype %d op %d root %d comm %p [nranks=%d]
stream %p``. What the numbers are:

- `opCount` is hexadecimal and counts the *launches* of this communicator on this rank: calls in one ncclGroup share it.
  Up to 2.26 every launch counts, from 2.27 only those that need the proxy thread (network, shared memory), so that it
  stands still where NVLink does it all. Ranks are therefore compared by the order of their lines.
- `root` of Send and Recv is the peer (a rank in the communicator); `datatype` and `op` are the enums of nccl.h.

Such logs are large: one fact a process and communicator, with the last `KEPT` operations. Each is (place among all lines
of the process, opCount, operation, count, datatype, op, root); `spots` are their lines.

>>> from whichrank.evidence.sample import facts
>>> fact, = facts(READER, '''gx-3:911:1290 [1] NCCL INFO AllReduce: opCount 1a sendbuff 0x7f02a4000000 recvbuff 0x7f02a4000000 count 1048576 datatype 9 op 0 root 0 comm 0x55d0c8f0 [nranks=16] stream 0x55d0c41f2e60
... gx-3:911:1290 [1] NCCL INFO Broadcast: opCount 1b sendbuff 0x7f02b0000000 recvbuff 0x7f02b0000000 count 2 datatype 4 op 0 root 3 comm 0x55d0c8f0 [nranks=16] stream 0x55d0c41f2e60''')
>>> fact.kind, fact.who.host, fact.who.pid, fact.seq, fact["comm"], fact["nranks"], fact["total"], fact.spot.line
('nccl_operations', 'gx-3', 911, 27, '0x55d0c8f0', 16, 2, 2)
>>> fact["last"]
((1, 26, 'AllReduce', 1048576, 'bfloat16', 'sum', 0), (2, 27, 'Broadcast', 2, 'int64', 'sum', 3))
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from whichrank.evidence.scan import Reader, Row, State
from whichrank.facts import Fact, Spot

KEPT = 128  # operations of one communicator
MOST = 64  # communicators of one process
P2P = frozenset({"Send", "Recv"})

# (place, opCount, operation, count, datatype, op, root)
Operation = tuple[int, int, str, int, str, str, int]

# nccl.h: ncclDataType_t, ncclRedOp_t. Numbers above are of types and operators that the application made.
DATATYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8e4m3",
    "float8e5m2",
)
OPERATORS = ("sum", "prod", "max", "min", "avg")
_LINE = re.compile(
    r"\b(?P<name>[A-Z][A-Za-z]{2,20}): opCount (?P<op_count>[0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+ count (?P<count>\d{1,20})"
    r" datatype (?P<datatype>\d{1,10}) op (?P<op>\d{1,10}) root (?P<root>-?\d{1,10}) comm (?P<comm>0x[0-9a-f]+) \[nranks=(?P<nranks>\d{1,7})\]"
)


@dataclass(slots=True)
class _Communicator:
    """What a process did on one communicator so far."""

    first: Row
    row: Row
    nranks: int
    began: int  # opCount of the first line
    total: int = 0
    collectives: int = 0
    lost: int = 0  # jumps of opCount by more than one: lines that are missing
    op_count: int = -1
    last: deque[Operation] = field(default_factory=lambda: deque(maxlen=KEPT))
    spots: deque[Spot] = field(default_factory=lambda: deque(maxlen=KEPT))


class Operations:
    """All operations of one speaker: its block stays open to the end of the file."""

    anchors = (": opCount ",)

    def start(self, row: Row) -> State | None:
        state = _Operations()
        return state if state.take(row) else None


class _Operations:
    patient = True

    def __init__(self) -> None:
        self.found: dict[tuple[str | None, int | None, str], _Communicator] = {}
        self.places: dict[tuple[str | None, int | None], int] = {}

    def take(self, row: Row) -> bool | None:
        if ": opCount " not in row.text or (match := _LINE.search(row.text)) is None:
            return None
        process = row.who.host, row.who.pid
        key = (*process, match["comm"])
        op_count = int(match["op_count"], 16)
        comm = self.found.get(key)
        if comm is not None and op_count < comm.op_count:
            comm = None  # another communicator at the same address
        if comm is None:
            if len(self.found) >= MOST and key not in self.found:
                return True
            comm = self.found[key] = _Communicator(row, row, int(match["nranks"]), op_count)
        place = self.places[process] = self.places.get(process, 0) + 1
        comm.row = row
        comm.total += 1
        comm.collectives += match["name"] not in P2P
        comm.lost += comm.op_count >= 0 and op_count > comm.op_count + 1
        comm.op_count = op_count
        comm.spots.append(row.spot())
        comm.last.append(
            (
                place,
                op_count,
                match["name"],
                int(match["count"]),
                _named(DATATYPES, int(match["datatype"])),
                _named(OPERATORS, int(match["op"])),
                int(match["root"]),
            )
        )
        return True

    def facts(self) -> Iterable[Fact]:
        for (_, _, pointer), comm in self.found.items():
            yield comm.row.fact(
                "nccl_operations",
                seq=comm.op_count,
                comm=pointer,
                nranks=comm.nranks,
                total=comm.total,
                collectives=comm.collectives,
                lost=comm.lost,
                from_line=comm.first.no,
                first=comm.began,
                last=tuple(comm.last),
                spots=tuple(comm.spots),
            )


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else str(number)


READER = Reader(
    "nccl_operations",
    blocks=(Operations(),),
    title="NCCL's list of operations (`NCCL_DEBUG_SUBSYS=COLL`), compared over the ranks",
    versions="NCCL 2.14 to 2.30",
    collect=("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL NCCL_DEBUG_FILE=/tmp/nccl.%h.%p",),
)
