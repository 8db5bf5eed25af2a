"""Tables of dumps as the reader would make them, of any size and in no time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from whichrank.dump import COLLECTIVE, COMPLETED, SCHEDULED, Dump, Frame, GroupOf, Signature
from whichrank.facts import Source
from whichrank.findings.dumps import tell
from whichrank.job.collectives import Collectives, collectives
from whichrank.model import Culprit, Proof, RankRow, Report, Summary, Verdict

START = 1_800_000_000 * 10**9
STEP = 20_000_000  # ns from call to call
STEP_OF_TRAINING = Frame("train_step", "/workspace/train.py", 88)


def dump(
    rank: int,
    world: int,
    calls: int,
    finished: int,
    *,
    first: int = 1,
    op: str = "all_reduce",
    odd: Mapping[int, str] | None = None,
    group: str = "default_pg",
    frame: Frame = STEP_OF_TRAINING,
) -> Dump:
    """A ring that holds the collectives `first` to `calls` of one group, those up to `finished` ended."""
    seq = np.arange(first, calls + 1, dtype=np.int64)
    size = len(seq)
    names = [op, *(odd or {}).values()]
    name = np.zeros(size, np.int32)
    for number, place in enumerate(odd or {}, 1):
        name[seq == place] = number
    opened = seq > finished
    created = START + seq * STEP + rank % 7 * 1000
    whole = Signature(((4096, 1024),), ((4096, 1024),), ("BFloat16",), ("BFloat16",))
    return Dump(
        source=Source(f"dumps/trace_rank_{rank}", "dump"),
        rank=rank,
        version="2.9",
        backend="nccl",
        groups=[GroupOf("0", group, tuple(range(world)), 0)],
        names=tuple(names),
        signatures=(whole,),
        sites=((), (Frame("all_reduce", "/usr/lib/python3/dist-packages/torch/distributed/c10d.py", 1), frame)),
        record=seq - 1,
        group=np.zeros(size, np.int32),
        name=name,
        signature=np.zeros(size, np.int32),
        site=np.ones(size, np.int32),
        seq=seq,
        p2p_seq=np.zeros(size, np.int64),
        op=seq,
        kind=np.full(size, COLLECTIVE, np.int8),
        open=opened,
        state=np.where(opened, SCHEDULED, COMPLETED).astype(np.int8),
        retired=~opened,
        created=created,
        started=np.full(size, -1, np.int64),
        completed=np.where(opened, -1, created + 3 * STEP // 2),
        timeout_ms=np.full(size, 600_000, np.int32),
    )


def stuck(
    world: int, culprit: int, calls: int = 40, *, missing: Iterable[int] = (), short: Iterable[int] = (), **more: object
) -> Collectives:
    """All ranks but one made the last call. short: ranks whose rings hold only the last ten."""
    left_out, cut = set(missing), set(short)
    dumps = []
    for rank in range(world):
        if rank not in left_out:
            last = calls - 1 if rank == culprit else calls
            first = calls - 10 if rank in cut else 1
            dumps.append(dump(rank, world, last, calls - 1, first=first, **more))  # type: ignore[arg-type]
    table = collectives(dumps, world)
    assert table is not None
    return table


def report(
    table: Collectives, culprits: Iterable[int] = (), *, says: str = "", excerpt: str = "", reasoned: bool = True
) -> Report:
    """A report as `diagnose` makes it of such dumps; not reasoned: without what it concludes, which takes its time."""
    blamed = tuple(culprits)
    text = says or f"Rank {', '.join(map(str, blamed))} did not make all_reduce #40: in host code since."
    named = tuple(Culprit(rank, f"node-{rank // 8:03d}") for rank in blamed)
    waiting = tuple(rank for rank in table.rings if rank not in blamed)
    verdict = Verdict(
        "undecided",
        "undecided",
        "undecided",
        0.3,
        "host_stuck",
        named,
        (),
        "likely",
        0.9,
        text,
        waiting,
        "default_pg",
        tuple(range(table.world)),
        40,
        "all_reduce",
        because=(Proof("it waits for nothing", "dumps/trace_rank_5", None, excerpt or "nothing unfinished"),),
    )
    rows = tuple(
        RankRow(rank, "culprit" if rank in blamed else "waiting", "", f"node-{rank // 8:03d}", "default_pg", 40)
        for rank in table.rings
    )
    summary = Summary(len(table.rings), 1, table.world, table.world, -(-table.world // 8), "2027-01-15T08:00:01Z")
    return Report(
        (verdict,), rows, summary=summary, tool="whichrank 0", table=table, told=tell(table) if reasoned else None
    )
