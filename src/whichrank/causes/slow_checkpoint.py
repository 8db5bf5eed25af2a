"""slow_checkpoint: saving or loading a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue
from whichrank.findings import Findings
from whichrank.job.model import Job
from whichrank.model import Check


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    yield from straggler.talked(job, found, 4.5, "checkpoint", "loading")
    yield from straggler.phased(job, found, 4.0, "checkpoint")
    yield from straggler.storage_beneath(job, found)
    yield from straggler.hinted(job, found, "checkpoint")
    under = [joined.fact for joined in found.storage if joined.host in {job.host_of(r) for r in found.arrived.suspects}]
    if under:
        yield Clue(-2.0, "kernel", "the storage under it stood still", (under[0],))
    stacks = straggler.idle_reader(job, found, "checkpoint")
    if stacks:
        yield straggler.stood(job, found, stacks, 5.0, "is inside a checkpoint call")


CAUSE = Cause(
    id="slow_checkpoint",
    title="saving or loading a checkpoint",
    means="A rank was saving or loading a checkpoint while the others already waited in the next collective.",
    looks_like="The last lines of the rank that printed no timeout speak of saving, gathering, consolidating or loading; shards keep appearing.",
    settles=(
        Check("where the rank stands", "ssh {host} 'py-spy dump --nonblocking --pid {pid}'", "{host}"),
        Check(
            "how fast it writes",
            "ls -lt --full-time CHECKPOINT_DIR | head; sleep 30; ls -lt --full-time CHECKPOINT_DIR | head",
            "{host}",
        ),
    ),
    fix=(
        "Save from all ranks at once, in the background: torch.distributed.checkpoint.async_save(state, checkpoint_id=…, async_checkpointer_type=AsyncCheckpointerType.PROCESS), instead of gathering everything on rank 0.",
        "Keep the slow part out of the collective's time: give that one barrier its own group with a longer timeout (new_group(timeout=timedelta(hours=1))), not the whole job.",
    ),
    stopgap="Write fewer, local files and copy them away afterwards.",
    weigh=weigh,
    prior=-2.0,
    mechanism="host_stuck",
    verb="was saving or loading a checkpoint",
    dont="raise the timeout of the whole job: a real hang would then cost that long too",
)
