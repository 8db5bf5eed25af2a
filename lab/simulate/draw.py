"""What a job is drawn from: how it is recorded, its layout, its program, its pace."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lab.simulate import faults, formats, names, programs
from lab.simulate.layout import Layout, build
from lab.simulate.ops import Op
from lab.simulate.scene import NotHere

ALIVE = ("healthy", "straggler")
# With gloo a wrong size is an error at once, there is no GPU, and nothing of a pipeline is recorded.
GLOO = (
    "host_stuck",
    "late_then_stuck",
    "two_culprits",
    "dead",
    "skipped_collective",
    "uneven_data",
    "rank0_checkpoint",
    *ALIVE,
)
WORLDS = (8, 16, 24, 32, 48, 64)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller fixes; None is drawn."""

    worlds: tuple[int, ...] = WORLDS
    kinds: tuple[str, ...] = tuple(faults.KINDS)
    layout: tuple[int, int, int, int] | None = None
    style: str | None = None
    steps: int | None = None
    ring: int | None = None
    missing: float | None = None  # share of the innocent ranks' dumps
    timing: bool | None = None
    frames: str | None = None
    version: str | None = None
    json: bool | None = None
    backend: str | None = None
    skew: str | None = None  # none, ntp, loose
    scheme: str | None = None
    by_hand: bool | None = None


@dataclass(slots=True)
class Mode:
    """How this incident was recorded."""

    backend: str
    timing: bool
    frames: str
    version: str
    json: bool
    ring: int
    missing: float
    skew: str
    scheme: str
    by_hand: bool
    only_active: bool = False


def _choose(rng: np.random.Generator, table: dict) -> object:  # type: ignore[type-arg]
    weights = np.array([*table.values()], float)
    return [*table][int(rng.choice(len(table), p=weights / weights.sum()))]


def draw_mode(kind: str, rng: np.random.Generator, wishes: Wishes) -> Mode:
    def pick(wish: object, table: dict) -> object:  # type: ignore[type-arg]
        drawn = _choose(rng, table)
        return drawn if wish is None else wish

    mode = Mode(
        backend=str(pick(wishes.backend, {"nccl": 11, "gloo": 1})),
        timing=bool(pick(wishes.timing, {False: 4, True: 1})),
        frames=str(pick(wishes.frames, {"python": 5, "off": 3, "generated": 2})),
        version=str(pick(wishes.version, {"list": 1, "1.4": 1, "2.1": 2, "2.4": 4, "2.9": 3, "2.10": 8, "2.13": 1})),
        json=bool(pick(wishes.json, {False: 6, True: 1})),
        ring=int(str(pick(wishes.ring, {2000: 6, 200: 2, 100: 1, 48: 1, 24: 1}))),
        missing=float(str(pick(wishes.missing, {0.0: 6, 0.1: 3, 0.25: 1}))),
        skew=str(pick(wishes.skew, {"ntp": 5, "none": 2, "loose": 2})),
        scheme=str(pick(wishes.scheme, dict.fromkeys(names.SCHEMES, 1))),
        by_hand=bool(pick(wishes.by_hand, {False: 6, True: 1})),
    )
    if mode.backend == "gloo":
        if kind not in GLOO:
            if wishes.backend == "gloo":
                raise NotHere
            mode.backend = "nccl"
        else:
            mode.timing, mode.by_hand = False, True
            mode.version = mode.version if mode.version in ("2.9", "2.10", "2.13") else "2.10"
    if formats.number(mode.version) < (2, 4):
        mode.json = False
    if mode.json:
        mode.frames = "off"
    if kind in ALIVE:
        mode.by_hand = True
    mode.only_active = mode.by_hand and kind not in ALIVE and mode.backend == "nccl" and rng.random() < 0.2
    mode.only_active &= formats.number(mode.version) >= (2, 4)  # only pg_status says what else was done
    return mode


def draw_layout(kind: str, rng: np.random.Generator, wishes: Wishes, mode: Mode) -> Layout:
    if wishes.layout:
        tp, pp, dp, ep = wishes.layout
    else:
        world = int(rng.choice(wishes.worlds))
        shapes = [(t, p) for t in (1, 2, 4, 8) for p in (1, 2, 3, 4, 8) if not world % (t * p) and world // (t * p) > 1]
        if kind in ("missing_send", "missing_recv"):
            shapes = [(t, p) for t, p in shapes if p > 1]
        if not shapes:
            raise NotHere
        tp, pp = shapes[int(rng.integers(len(shapes)))]
        dp = world // (tp * pp)
        experts = [e for e in (2, 4, 8) if not dp % e]
        wanted = kind == "split_mismatch" or rng.random() < 0.25
        ep = int(rng.choice(experts)) if wanted and experts else 1
    if (kind == "split_mismatch" and ep == 1) or (kind in ("missing_send", "missing_recv") and pp == 1):
        raise NotHere
    base = int(rng.choice([120_000, 180_000, 300_000, 600_000, 600_000, 1_800_000]))
    return build(
        tp,
        pp,
        dp,
        ep,
        node_size=int(rng.choice([4, 8])),
        naming="hashed" if mode.version in ("2.10", "2.13") and rng.random() < 0.3 else "counter",
        described=bool(rng.random() < 0.7),
        timeouts_ms=(base, base if rng.random() < 0.6 else 600_000),
    )


def draw_recipe(kind: str, rng: np.random.Generator, wishes: Wishes, mode: Mode, layout: Layout) -> programs.Recipe:
    modern = formats.number(mode.version) >= (2, 9)
    single_batch = formats.number(mode.version) < (2, 1)  # batches are recorded call by call only later
    recipe = programs.Recipe(
        style=wishes.style or str(rng.choice(programs.STYLES)),
        steps=2,
        layers=int(rng.integers(1, 4)),
        micro_batches=int(rng.integers(1, 2 * layout.pp + 1)),
        hidden=int(rng.choice([1024, 2048, 1000, 3000])),
        tokens=int(rng.choice([512, 1024, 2048])) * layout.tp,
        layer_seconds=float(rng.uniform(0.01, 0.08)) * (4 if kind == "straggler" else 1),
        jitter=float(rng.uniform(0.02, 0.15)),
        batched_p2p=bool(rng.random() < 0.5) and not single_batch,
        sync_every=int(rng.choice([1, 1, 2, 4])),
        eval_every=int(rng.choice([0, 3, 5])),
        save_every=int(rng.choice([0, 4, 6])) or (4 if kind == "rank0_checkpoint" else 0),
        save_seconds=float(rng.uniform(0.5, 5.0)),
        varied_buckets=bool(rng.random() < 0.5),
        barrier_name="all_reduce_barrier" if modern else "all_reduce",
        backend=mode.backend,
        both_groups=bool(rng.random() < 0.5),
    )
    each = programs.operations_per_step(layout, recipe, np.random.default_rng(0))
    aim = float(rng.uniform(100, 400 if layout.world <= 32 else 220))
    steps = wishes.steps or int(np.clip(aim / max(each, 1), 3, 24))
    if kind in ("rank0_checkpoint",):
        steps = max(steps, 2 * recipe.save_every)
    return replace(recipe, steps=steps)


def draw_pace(
    kind: str, rng: np.random.Generator, layout: Layout, recipe: programs.Recipe
) -> tuple[np.ndarray, dict[str, object]]:
    """Factors on compute time, rank x step, and what a straggler's truth says about them."""
    pace = np.ones((layout.world, recipe.steps + 1))
    if kind != "straggler":
        return pace, {}
    shape = str(rng.choice(["slow_rank", "slow_node", "slow_data", "imbalanced", "jitter"]))
    slow: list[int] = []
    factor = float(rng.uniform(1.4, 3.0))
    if shape in ("slow_rank", "slow_data"):
        slow = [int(rng.integers(layout.world))]
    elif shape == "slow_node":
        if layout.hosts() < 2:
            raise NotHere
        host = int(rng.integers(layout.hosts()))
        slow = [rank for rank in range(layout.world) if layout.host(rank) == host]
    elif shape == "imbalanced":  # the batch of a replica is longer or shorter, another one every step
        by_replica = rng.lognormal(0.0, 0.4, (layout.dp, recipe.steps + 1))
        pace = np.array([by_replica[layout.place(rank)[1]] for rank in range(layout.world)])
    else:
        pace = rng.lognormal(0.0, 0.15, pace.shape)
    slower = slow and shape != "slow_data"
    if slower:
        pace[slow] *= factor
    return pace, {"shape": shape, "stragglers": slow, "factor": round(factor, 2) if slower else None}


def slow_loaders(written: list[list[Op]], spread: dict[str, object], rng: np.random.Generator) -> None:
    """A straggler whose GPU is as fast as any: its next batch comes late, in most steps."""
    if spread.get("shape") != "slow_data":
        return
    extra = float(rng.uniform(0.3, 2.0))
    for rank in spread["stragglers"]:  # type: ignore[attr-defined]
        for op in written[rank]:
            if op.site == "data" and rng.random() < 0.8:
                op.host += extra * float(rng.uniform(0.7, 1.3))
    spread["late_data_s"] = round(extra, 3)
