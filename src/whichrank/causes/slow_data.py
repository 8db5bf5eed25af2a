"""slow_data: waiting for its input pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, host, one
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.gpu_load import BUSY, IDLE
from whichrank.findings.retries import ASKED
from whichrank.findings.stacks import Stack, fetching
from whichrank.job.model import Job
from whichrank.model import Check

MANY = 3  # requests in vain that are no passing disturbance


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    again = any(
        doing.lines >= MANY and ASKED.search(doing.last.text) for doing, _ in straggler.busy(job, found, "data")
    )
    yield from straggler.talked(job, found, 4.5 if again else 3.5, "data")
    stacks = straggler.idle_reader(job, found, "data_wait")
    if stacks:
        fetches = _fetches(found, stacks)
        worker = f", its worker{_pid(fetches[0][0])} in {fetches[0][1]}" if fetches else ""
        yield straggler.stood(job, found, stacks, 5.0, f"is waiting for a batch from its input pipeline{worker}")
    yield from straggler.phased(job, found, 4.0, "data")
    yield from straggler.storage_beneath(job, found)
    behind = found.laggard
    if behind is not None and behind.in_data:
        yield straggler.behind(job, behind)
    yield from straggler.hinted(job, found, "data")
    for fact in job.of("dl_timeout"):
        yield Clue(
            5.5,
            "traceback",
            f"the DataLoader of rank {fact.rank if fact.rank is not None else '?'} timed out",
            (fact,),
            one(fact.rank),
            host(job.host_of(fact.rank)),
            sure_of_ranks=0.9,
        )
        break
    yield from _workers(found, stacks)
    idle = _idle_gpu(job)
    if idle is not None and stacks and (idle.rank is None or idle.rank == stacks[0].rank):
        yield Clue(1.0, "gpu", "its GPU is idle while the others spin", (idle,))


def _fetches(found: Findings, waiting: Sequence[Stack]) -> list[tuple[Stack, str]]:
    """Workers of the rank that waits for a batch that are fetching one, and where they are."""
    mine = [stack for stack in found.stacks.children if stack.rank is not None and stack.rank == waiting[0].rank]
    return [(stack, where) for stack in mine if (where := fetching(stack)) is not None]


def _pid(stack: Stack) -> str:
    return f" {stack.pid}" if stack.pid is not None else ""


def _workers(found: Findings, waiting: Sequence[Stack]) -> Iterator[Clue]:
    """What the worker processes of the rank that waits for a batch are doing."""
    if not waiting:
        return
    rank = waiting[0].rank
    if fetches := _fetches(found, waiting):
        stack, where = fetches[0]
        others = f", and {len(fetches) - 1} more of its workers likewise" if len(fetches) > 1 else ""
        yield Clue(1.5, "worker", f"worker{_pid(stack)} of rank {rank} is in {where}{others}", (stack.fact,))
        return
    for stack in found.stacks.children:
        if stack.rank is not None and stack.rank == rank and stack.fact["state"] == "active":
            says = f"a worker of rank {rank} is busy in {(stack.fact['frames'] or ['?'])[0]!s}"
            yield Clue(1.0, "gpu", says, (stack.fact,))
            return


def _idle_gpu(job: Job) -> Fact | None:
    """The one GPU near 0 % while most show near 100 %."""
    rows = [fact for fact in job.of("gpu_sample") if isinstance(fact["util"], int)]
    low = [fact for fact in rows if fact["util"] <= IDLE]
    high = [fact for fact in rows if fact["util"] >= BUSY]
    return low[0] if low and len(high) > 2 * len(low) else None


CAUSE = Cause(
    id="slow_data",
    title="waiting for its input pipeline",
    means="A rank waited for its next batch: a slow or stuck DataLoader worker, one huge sample, a queue that is never filled.",
    looks_like="The main thread stands in the DataLoader (_try_get_data, queue.get), its GPU is idle, the other GPUs spin in the collective.",
    settles=(
        Check("where the rank stands", "ssh {host} 'py-spy dump --nonblocking --pid {pid}'", "{host}"),
        Check(
            "what its workers do",
            "ssh {host} 'ps -o pid,stat,wchan:20,pcpu,etime,cmd --ppid {pid}; for p in $(pgrep -P {pid}); do py-spy dump --nonblocking --pid $p; done'",
            "{host}",
        ),
    ),
    fix=(
        "DataLoader(timeout=120): a stuck worker then raises on its rank, with its stack, instead of hanging everybody (the default waits for ever).",
        "Find the sample: log the index before each fetch; bound sizes (clip length, image pixels, document length) when the index is built.",
        "More workers and a deeper prefetch hide variance, not a sample that takes minutes.",
    ),
    stopgap="Skip the sample or shard on all ranks and resume; num_workers=0 shows the error in place.",
    weigh=weigh,
    prior=-2.0,
    mechanism="host_stuck",
    verb="waited for its input data",
    dont="raise the timeout: the batch does not come sooner",
)
