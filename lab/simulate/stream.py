"""One incident of any size, rank by rank: a host that is stuck, thousands of ranks that wait.

Nothing but a small job is simulated. Data-parallel replicas run the same program, so every replica but the victim's
waits in the same calls: a job of two replicas, the victim's and another one, stands for all of them. Each rank's dump is
made from that of its stand-in, with its own groups, clock and small delays, and forgotten once it is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lab.simulate import formats, programs, recorder, stops, watchdog
from lab.simulate.engine import Engine
from lab.simulate.frames import Frames
from lab.simulate.layout import Group, Layout, build
from lab.simulate.recorder import Record, Recording
from lab.simulate.scene import Scene

STEPS = 400  # at most: fewer where the ring is full earlier


@dataclass(frozen=True, slots=True)
class Model:
    """The small job, and how its ranks stand for those of the large one."""

    large: Layout
    small: Layout
    recordings: list[Recording]
    victim: int  # in the large job
    step: int


def shape(ranks: int) -> tuple[int, int, int]:
    """(tp, pp, dp) for that many ranks. ValueError: it is no multiple of 8 with at least two replicas."""
    tp, pp = (8, 8) if ranks >= 1024 and ranks % 64 == 0 else (4, 2)
    if ranks % (tp * pp) or ranks // (tp * pp) < 2:
        raise ValueError(f"{ranks} ranks: a multiple of {tp * pp} is needed, twice that at least")
    return tp, pp, ranks // (tp * pp)


def model(ranks: int, entries: int, seed: int, layout: tuple[int, int, int] | None = None) -> Model:
    """Runs the small job until its watchdogs fire. layout: (tp, pp, dp), where it is not to be shape()'s."""
    rng = np.random.default_rng([seed, ranks, entries])
    tp, pp, dp = layout or shape(ranks)
    if tp * pp * dp != ranks or dp < 2:
        raise ValueError(f"{tp} x {pp} x {dp} are not {ranks} ranks with two replicas at least")
    large, small = build(tp, pp, dp), build(tp, pp, 2)
    recipe = programs.Recipe(
        style="zero", steps=2, layers=2, micro_batches=pp, hidden=4096, tokens=4096, layer_seconds=0.02, jitter=0.05,
        batched_p2p=True, sync_every=1, eval_every=0, save_every=0, save_seconds=0.0, varied_buckets=True,
        barrier_name="all_reduce_barrier",
    )  # fmt: skip
    least = min(programs.operations_per_step(small, recipe, rng), entries)
    recipe = replace(recipe, steps=min(STEPS, int(2 * entries / least) + 3))
    pace = np.ones(recipe.steps + 1)
    written = [programs.write(small, recipe, rank, rng, pace) for rank in range(small.world)]
    fault = stops.host_stuck(Scene(small, recipe, written, rng, recipe.steps - 1))
    looks = watchdog.Looks([], phase=watchdog.phases(small, rng))
    done = Engine(small, written, 32).run()
    fires = watchdog.first_timeout(done, looks)
    assert fires is not None
    watchdog.dump_after(looks, fires, small.world, rng)
    options = recorder.Options(ring=entries)
    made = [recorder.record(rank, small, looks, options, {}, 0) for rank in done]
    stage, replica, shard = small.place(fault.culprits[0])
    home = int(rng.integers(dp // 2)) * 2 + replica
    return Model(large, small, made, large.rank_at(stage, home, shard), recipe.steps - 1)


def dumps(job: Model, seed: int, version: str = "2.10", frames: bool = False) -> Iterator[tuple[int, bytes]]:
    """(rank, bytes of its dump) in the order of ranks."""
    rng = np.random.default_rng([seed, 7])
    shared = Frames(generated=False) if frames else None
    large, small = job.large, job.small
    home = large.place(job.victim)[1]
    clocks = rng.normal(0.0, 5.0, large.hosts())
    for rank in range(large.world):
        stage, replica, shard = large.place(rank)
        own = home % 2
        stand_in = job.recordings[small.rank_at(stage, own if replica == home else 1 - own, shard)]
        groups = {g.index: large.group(g.role, rank) for g in stand_in.groups.values()}
        late = float(rng.normal(0.0, 3e-4))
        entries = [_moved(r, groups, large.local_id(groups[r.group.index], rank), late) for r in stand_in.records]
        mine = Recording(
            rank, entries, stand_in.status, {pg_id: groups[g.index] for pg_id, g in stand_in.groups.items()}
        )
        style = formats.Style(
            version, frames=shared, zero_ns=1_780_000_000_000_000_000 + int(clocks[large.host(rank)] * 1e6)
        )
        yield rank, formats.write(mine, style)


def _moved(entry: Record, groups: dict[int, Group], pg_id: int, late: float) -> Record:
    group, inputs, outputs = groups[entry.group.index], entry.inputs, entry.outputs
    if group.role == "dp" and entry.op.name in ("_all_gather_base", "_reduce_scatter_base"):
        n = len(group.ranks)
        whole = [max(inputs[0][0], outputs[0][0]) // n * n]
        inputs, outputs = [[whole[0] // n]], [whole]
        if entry.op.name == "_reduce_scatter_base":
            inputs, outputs = outputs, inputs
    return replace(entry, group=group, pg_id=pg_id, created=entry.created + late, inputs=inputs, outputs=outputs)


def write(
    out: Path, ranks: int, entries: int, seed: int, layout: tuple[int, int, int] | None = None, frames: bool = False
) -> None:
    """Writes OUT/dumps/comm_lib_trace_rank_N and OUT/truth.json."""
    job = model(ranks, entries, seed, layout)
    folder = out / "dumps"
    folder.mkdir(parents=True, exist_ok=True)
    for rank, data in dumps(job, seed, frames=frames):
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(data)
    known = {
        "kind": "host_stuck", "mechanism": "host_stuck", "culprits": [job.victim], "identifiable": True,
        "world": ranks, "entries": entries, "detail": {"step": job.step},
    }  # fmt: skip
    (out / "truth.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
