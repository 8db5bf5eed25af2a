"""The ring of one rank as it stands when it is dumped.

After FlightRecorderDetail.hpp and ProcessGroupNCCL.cpp. `collective_seq_id` counts collectives of the group on this
rank, `p2p_seq_id` its sends and receives, a batch counting once; `op_id` counts calls. `time_discovered_*` are set when
the watchdog retires a work or at the dump, never in between, so both stamps of a retired entry are of the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.simulate.engine import Rank
from lab.simulate.layout import Group, Layout
from lab.simulate.ops import COLLECTIVE, P2P, Op, Part, Shape
from lab.simulate.watchdog import Looks


@dataclass(slots=True)
class Record:
    """An entry. Times are seconds of the job's own clock."""

    record_id: int
    op: Op
    group: Group
    pg_id: int
    seq: int  # the only counter before format 2.1
    collective_seq: int
    p2p_seq: int
    op_id: int
    name: str
    inputs: list[Shape]
    outputs: list[Shape]
    input_dtypes: list[str]
    output_dtypes: list[str]
    created: float
    is_p2p: bool
    started: float | None = None
    completed: float | None = None
    retired: bool = False
    duration_ms: float | None = None


@dataclass(slots=True)
class Status:
    enqueued: int = -1
    started: int = -1
    completed: int = -1
    polled: float = -1.0


@dataclass(slots=True)
class Counters:
    """Of one group on one rank."""

    seq: int = 0
    collective: int = 0
    p2p: int = 0
    op: int = 0


@dataclass(slots=True)
class Recording:
    """What a dump of the rank holds."""

    rank: int
    records: list[Record]
    status: dict[int, Status] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)  # by pg_id: all that were ever used
    recorded: int = 0  # entries ever made, evicted ones included


@dataclass(frozen=True, slots=True)
class Options:
    """How the recorder was set up."""

    backend: str = "nccl"
    timing: bool = False
    ring: int = 2000


def record(
    rank: Rank, layout: Layout, looks: Looks, options: Options, base: dict[int, Counters], first_id: int
) -> Recording:
    """Everything issued before the rank's dump. base: counters of each group before the simulated part of the job."""
    until = looks.at[rank.number]
    out = Recording(rank.number, [])
    counts = {index: Counters(c.seq, c.collective, c.p2p, c.op) for index, c in base.items()}
    next_id = first_id
    for op in rank.ops:
        if not op.communicates:
            continue
        if op.created is None or op.created > until:
            break
        assert op.group is not None
        group, count = op.group, counts.setdefault(op.group.index, Counters())
        made = _entries(op, rank.number, layout, count, options.backend)
        if not made:
            continue
        pg_id = layout.local_id(group, rank.number)
        out.groups[pg_id] = group
        for entry in made:
            entry.record_id = next_id
            next_id += 1
        status = out.status.setdefault(pg_id, Status())
        _observe(made[-1], op, rank.number, looks, options, status)
        out.records += made
    out.recorded = next_id
    out.records = out.records[-options.ring :]
    return out


def made_by(op: Op, backend: str) -> int:
    """Entries that a call leaves: a batch one for each send and recv and one for itself, none of them under gloo."""
    if op.kind == COLLECTIVE:
        return 1
    return len(op.parts) + op.batched if op.kind == P2P and backend == "nccl" else 0


def count(rank: Rank, until: float, backend: str) -> int:
    """Entries ever made up to a moment."""
    return sum(made_by(op, backend) for op in rank.ops if op.created is not None and op.created <= until)


def _entries(op: Op, rank: int, layout: Layout, count: Counters, backend: str) -> list[Record]:
    assert op.group is not None and op.created is not None
    group, local = op.group, layout.local_id(op.group, rank)
    if op.kind == COLLECTIVE:
        count.seq, count.collective, count.op = count.seq + 1, count.collective + 1, count.op + 1
        name, inputs, outputs = (op.name, op.inputs, op.outputs) if backend == "nccl" else _gloo(op, len(group.ranks))
        return [_record(op, local, count, f"{backend}:{name}", inputs, outputs, op.created, False)]
    if backend == "gloo":  # sends and receives are counted and not recorded
        count.op += len(op.parts)
        return []
    count.seq, count.p2p = count.seq + 1, count.p2p + 1
    made = []
    for at, part in enumerate(op.parts):
        count.op += 1
        shape = [part.shape]
        made.append(_record(op, local, count, _title(part, rank, group), shape, shape, op.created + 4e-6 * at, True))
    if op.batched:
        made.append(_record(op, local, count, "nccl:coalesced", [], [], op.created + 4e-6 * len(made), False))
    return made


def _record(
    op: Op, pg_id: int, count: Counters, name: str, inputs: list[Shape], outputs: list[Shape], created: float, p2p: bool
) -> Record:
    assert op.group is not None
    dtype = op.parts[0].dtype if op.parts else op.dtype
    given, taken = [dtype] * len(inputs), [dtype] * len(outputs)
    if outputs == [[0]]:
        taken = ["Undefined"]  # a gather's placeholder where the rank is not the root
    counters = (count.seq, count.collective, count.p2p, count.op)
    return Record(-1, op, op.group, pg_id, *counters, name, inputs, outputs, given, taken, created, p2p)


def _title(part: Part, rank: int, group: Group) -> str:
    """Peers are numbered within the group."""
    me, peer = group.ranks.index(rank), group.ranks.index(part.peer)
    return f"nccl:send {me}->{peer}" if part.sends else f"nccl:recv {me}<-{peer}"


def _gloo(op: Op, members: int) -> tuple[str, list[Shape], list[Shape]]:
    """What gloo calls it: single-tensor gathers and scatters run as the list forms."""
    name = op.name
    if name == "_all_gather_base":
        return "all_gather", op.inputs, [[members, *op.inputs[0]]]
    if name == "_reduce_scatter_base":
        return "all_reduce", op.inputs, op.inputs
    if name == "gather" and op.outputs:
        return name, op.inputs, [[members, *op.inputs[0]]]
    return name, op.inputs, op.outputs


def _observe(entry: Record, op: Op, rank: int, looks: Looks, options: Options, status: Status) -> None:
    """State of the work behind the last entry of a call, and its group's counters."""
    until, number = looks.at[rank], op.group.index if op.group else 0
    seq = entry.p2p_seq if op.parts else entry.collective_seq
    status.enqueued = seq
    ended = op.end if op.end is not None and op.end <= until and not op.unseen else None
    if options.backend == "gloo":
        if ended is not None:
            entry.retired, status.completed = True, seq
        return
    stopped = looks.fired.get((rank, number))
    limit = until if stopped is None else min(until, stopped)
    if options.timing and op.start is not None and op.start <= until:
        entry.started = until
        if looks.poll(rank, number, op.start) <= limit:
            status.started = max(status.started, seq)
    if ended is None:
        return
    polled = looks.poll(rank, number, ended) + 2e-4
    entry.retired = polled <= limit
    entry.completed = polled if entry.retired else until
    if options.timing:
        entry.started = entry.completed - 3e-7
        if entry.retired:
            entry.duration_ms = 1e3 * (ended - (op.start or ended))
    if entry.retired and polled >= status.polled:
        status.completed, status.polled = seq, polled
