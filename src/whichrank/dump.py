"""One rank's Flight Recorder ring as columns: what a reader of dumps hands on.

A ring of 2,000 calls is some 50 bytes a call here, and 2 kB as Python objects: thousands of ranks fit in memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whichrank.facts import Source

Ints = npt.NDArray[np.signedinteger[Any]]  # as few bytes as they fit in
Small = npt.NDArray[np.signedinteger[Any]]
Flags = npt.NDArray[np.bool_]

UNKNOWN, SCHEDULED, STARTED, COMPLETED = 0, 1, 2, 3
COLLECTIVE, SINGLE, PART, BATCH = 0, 1, 2, 3  # a send or recv by itself; one of a batch; what closes a batch
UNVERSIONED = "without a version"  # the bare list of PyTorch 2.2
NEVER = -1  # a number that a rank has not reached yet; a time that is not known


class GroupOf(NamedTuple):
    """A process group as one rank calls it.

    members: global ranks, None where the dump does not list them. Ranks at equal distances are always a range: on each
    of N ranks the group of all lists N.
    """

    name: str
    desc: str
    members: tuple[int, ...] | range | None
    pg_id: int


class Signature(NamedTuple):
    """What was passed to a call: shapes and dtypes, one for each tensor."""

    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()


class Frame(NamedTuple):
    function: str
    file: str
    line: int


class Status(NamedTuple):
    """The counters of one group (pg_status); after a send or recv they are its number instead."""

    enqueued: int
    started: int
    completed: int


@dataclass(slots=True)
class Dump:
    """The calls that a ring still holds, oldest first, as columns of one length.

    record      number of the entry over all groups of this process (counted from 0)
    group       index into `groups`
    name        index into `names`: the operation without its backend ("all_reduce", "send 0->1")
    signature   index into `signatures`
    site        index into `sites` (stacks, innermost frame first); 0 is the empty one
    seq         collective_seq_id; before format 2.1 the one counter there was
    p2p_seq     p2p_seq_id
    op          op_id: counts calls of the group, also those that the recorder does not hold
    kind        COLLECTIVE, SINGLE, PART or BATCH
    open        not finished as far as this process knew
    created, started, completed   ns since 1970 on that host's clock, NEVER where unknown. Starts and completions are
                when somebody looked: the watchdog (100 ms) or the dump
    """

    source: Source
    rank: int | None
    version: str
    backend: str
    groups: Sequence[GroupOf]
    names: tuple[str, ...]
    signatures: tuple[Signature, ...]
    sites: tuple[tuple[Frame, ...], ...]
    record: Ints
    group: Small
    name: Small
    signature: Small
    site: Small
    seq: Ints
    p2p_seq: Ints
    op: Ints
    kind: npt.NDArray[np.int8]
    open: Flags
    state: npt.NDArray[np.int8]
    retired: Flags
    created: Ints
    started: Ints
    completed: Ints
    timeout_ms: Small
    status: dict[int, Status] = field(default_factory=dict)  # by pg_id
    library: str = ""

    def __len__(self) -> int:
        return len(self.record)

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes as one piece of bytes: twenty arrays would cost more than what is in them."""
        return _joined, (*(getattr(self, name) for name in _PLAIN), *self.packed())

    def share(self, known: dict[Any, Any]) -> None:
        """Names, shapes and stacks that other dumps of the job have as well are kept once, in `known`."""
        self.names = known.setdefault(self.names, self.names)
        self.signatures = known.setdefault(self.signatures, self.signatures)
        self.sites = known.setdefault(self.sites, self.sites)

    def packed(self) -> tuple[int, str, bytearray]:
        """The columns end to end: how many calls, what sort of number each column has, and their bytes."""
        columns = [getattr(self, name) for name in COLUMNS]
        return len(self), "".join(column.dtype.char for column in columns), bytearray().join(columns)

    @property
    def overflowed(self) -> bool:
        """Has the ring lost its first calls?"""
        return bool(len(self.record)) and int(self.record[0]) > 0

    @property
    def last_ns(self) -> int:
        """The latest moment of which this dump knows; NEVER if of none."""
        times = [int(column.max()) for column in (self.created, self.started, self.completed) if len(column)]
        return max(times, default=NEVER)


COLUMNS = (
    "record", "group", "name", "signature", "site", "seq", "p2p_seq", "op", "kind", "open", "state", "retired",
    "created", "started", "completed", "timeout_ms",
)  # fmt: skip
_PLAIN = ("source", "rank", "version", "backend", "groups", "names", "signatures", "sites", "status", "library")


def unpacked(calls: int, sorts: str, data: bytearray) -> dict[str, npt.NDArray[Any]]:
    """The columns of `Dump.packed`. ValueError where they do not fit."""
    columns, at = {}, 0
    for name, sort in zip(COLUMNS, sorts, strict=True):
        columns[name] = np.frombuffer(data, sort, calls, at)
        at += columns[name].nbytes
    return columns


def _joined(
    source: Source, rank: int | None, version: str, backend: str, groups: Sequence[GroupOf], names: tuple[str, ...],
    signatures: tuple[Signature, ...], sites: tuple[tuple[Frame, ...], ...], status: dict[int, Status], library: str,
    calls: int, sorts: str, data: bytearray,
) -> Dump:  # fmt: skip
    columns = unpacked(calls, sorts, data)
    return Dump(
        source, rank, version, backend, groups, names, signatures, sites, **columns, status=status, library=library
    )


STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
_IN_WORDS = {number: name for name, number in STATES.items()} | {UNKNOWN: "in an unknown state"}


def describe(dump: Dump, at: int) -> str:
    """One entry in words: "all_reduce #1842 of default_pg, scheduled"."""
    group = dump.groups[int(dump.group[at])]
    name = dump.names[int(dump.name[at])]
    if dump.kind[at] in (SINGLE, PART) and group.members:
        name = _with_rank(name, group.members)
    number = f"p2p {int(dump.p2p_seq[at])}" if dump.kind[at] else f"#{int(dump.seq[at])}"
    done = dump.retired[at] and dump.backend == "gloo"
    state = "done" if done else _IN_WORDS[int(dump.state[at])]
    return f"{name} {number} of {group_name(group)}, {state}"


def _with_rank(name: str, members: Sequence[int]) -> str:
    """Ranks in the name of a transfer are numbered within the group.

    >>> _with_rank("send 0->3", (0, 4, 8, 12)), _with_rank("recv 1<-0", (2, 6))
    ('send to rank 12', 'recv from rank 2')
    """
    ends = transfer(name)
    if ends is None or ends.peer >= len(members):
        return name
    return f"{'send to' if ends.sends else 'recv from'} rank {members[ends.peer]}"


class Ends(NamedTuple):
    """The two ends of a send or recv, numbered within the group."""

    sends: bool
    me: int
    peer: int

    @property
    def half(self) -> str:
        """What the other end calls it.

        >>> transfer("send 0->3").half, transfer("recv 1<-0").half
        ('recv 3<-0', 'send 0->1')
        """
        return f"recv {self.peer}<-{self.me}" if self.sends else f"send {self.peer}->{self.me}"


_TRANSFER = re.compile(r"(?:(send) (\d{1,9})->|recv (\d{1,9})<-)(\d{1,9})", re.ASCII)


@lru_cache(4096)
def transfer(name: str) -> Ends | None:
    """Who sends to whom by the name of a call, None where it names no transfer.

    >>> transfer("send 0->3"), transfer("all_reduce")
    (Ends(sends=True, me=0, peer=3), None)
    """
    found = _TRANSFER.fullmatch(name)
    return Ends(bool(found[1]), int(found[2] or found[3]), int(found[4])) if found else None


def purpose(desc: str) -> str:
    """A group's description where it says something: torch writes "undefined" where nobody gave one."""
    return "" if desc == "undefined" else desc


def group_name(group: GroupOf) -> str:
    """The description where it says something, else the name."""
    return purpose(group.desc) or f"group {group.name or group.pg_id}"


# Some members may be done with these before others have come.
_ENDS_EARLY = ("broadcast", "reduce", "gather", "scatter", "coalesced", "all_to_all", "alltoall")


def ends_early(name: str) -> bool:
    """May this call end on a member before all others have made it?"""
    return name.startswith(_ENDS_EARLY) and not name.startswith("reduce_scatter")
