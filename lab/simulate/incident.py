"""One incident: a job drawn at random, a fault in it, the run, the dumps that are left and the truth about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from lab.simulate import faults, formats, names, programs, recorder, truth, watchdog
from lab.simulate.engine import Engine, Rank
from lab.simulate.frames import Frames
from lab.simulate.layout import Layout, build
from lab.simulate.ops import COLLECTIVE, P2P, SYNC, Op

ALIVE = ("healthy", "straggler")
# With gloo a wrong size is an error at once, there is no GPU, and nothing of a pipeline is recorded.
GLOO = ("host_stuck", "late_then_stuck", "two_culprits", "dead", "skipped_collective", "uneven_data", "rank0_checkpoint", *ALIVE)
TRIES = 200
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


@dataclass(slots=True)
class Incident:
    """A finished incident. files: path below the dumps' folder -> bytes, made one by one."""

    mode: Mode
    layout: Layout
    recipe: programs.Recipe
    fault: faults.Fault
    answer: truth.Answer
    ranks: list[Rank]
    looks: watchdog.Looks
    recordings: dict[int, recorder.Recording]
    zero_ns: list[int]
    paths: dict[int, str]
    stale: dict[int, recorder.Recording] = field(default_factory=dict)
    truth: dict[str, object] = field(default_factory=dict)

    def files(self) -> Iterator[tuple[str, bytes]]:
        shared = None if self.mode.frames == "off" else Frames(self.mode.frames == "generated")
        for rank, recording in sorted({**self.stale, **self.recordings}.items()):
            yield self.paths[rank], formats.write(recording, self._style(rank, shared))

    def _style(self, rank: int, shared: Frames | None) -> formats.Style:
        mode, held = self.mode, self.fault.gil and rank in self.fault.culprits
        earlier = 7_200 * 10**9 if rank in self.stale else 0
        return formats.Style(
            mode.version,
            mode.json,
            None if held else shared,  # the interpreter's lock is needed to name the frames: the second try goes without
            mode.only_active,
            named_threads=mode.version == "2.9" and mode.scheme == "plain",
            backend=mode.backend,
            zero_ns=self.zero_ns[rank] - earlier,
        )


def make(seed: int, index: int, wishes: Wishes | None = None) -> Incident:
    """Incident `index` of a suite; the same arguments give the same bytes. RuntimeError: the wishes can't be met."""
    wishes = wishes or Wishes()
    kind = wishes.kinds[index % len(wishes.kinds)]
    for attempt in range(TRIES):
        rng = np.random.default_rng([seed, index, attempt])
        try:
            return _make(kind, rng, wishes)
        except faults.NotHere:
            continue
    raise RuntimeError(f"no {kind} is possible with {wishes}")


def _make(kind: str, rng: np.random.Generator, wishes: Wishes) -> Incident:
    mode = _mode(kind, rng, wishes)
    layout = _layout(kind, rng, wishes, mode)
    recipe = _recipe(kind, rng, wishes, mode, layout)
    pace, spread = _pace(kind, rng, layout, recipe)
    written = [programs.write(layout, recipe, rank, rng, pace[rank]) for rank in range(layout.world)]
    _slow_loaders(written, spread, rng)
    first_step = [[op for op in program if op.step == 0 and not op.site.startswith("init")] for program in written]
    low = max(1, recipe.steps // 2)
    step = int(rng.integers(low, recipe.steps)) if recipe.steps > low else recipe.steps - 1
    scene = faults.Scene(layout, recipe, written, rng, step)
    fault = faults.KINDS[kind](scene)
    fault.gil &= mode.backend == "nccl"
    fault.detail |= {"step": step, "holds_gil": fault.gil} | spread
    # A job whose host runs further ahead than its ring is long has a ring that is of no use to anyone.
    depth = 1 if mode.backend == "gloo" else min(int(rng.choice([8, 24, 64, 200])), mode.ring // 3)
    ranks = Engine(layout, scene.programs, depth, fault.cut).run()
    _check_reached(fault, ranks)
    _stop_reporting(fault, ranks, rng)
    looks = _look(kind, fault, layout, ranks, mode, rng)
    return _record(kind, mode, layout, recipe, fault, ranks, looks, first_step, rng)


# ---- the job


def _choose(rng: np.random.Generator, table: dict) -> object:  # type: ignore[type-arg]
    weights = np.array([*table.values()], float)
    return [*table][int(rng.choice(len(table), p=weights / weights.sum()))]


def _mode(kind: str, rng: np.random.Generator, wishes: Wishes) -> Mode:
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
                raise faults.NotHere
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
    mode.only_active &= formats.number(mode.version) >= (2, 1)
    return mode


def _layout(kind: str, rng: np.random.Generator, wishes: Wishes, mode: Mode) -> Layout:
    if wishes.layout:
        tp, pp, dp, ep = wishes.layout
    else:
        world = int(rng.choice(wishes.worlds))
        shapes = [(t, p) for t in (1, 2, 4, 8) for p in (1, 2, 3, 4, 8) if not world % (t * p) and world // (t * p) > 1]
        if kind in ("missing_send", "missing_recv"):
            shapes = [(t, p) for t, p in shapes if p > 1]
        if not shapes:
            raise faults.NotHere
        tp, pp = shapes[int(rng.integers(len(shapes)))]
        dp = world // (tp * pp)
        experts = [e for e in (2, 4, 8) if not dp % e]
        wanted = kind == "split_mismatch" or rng.random() < 0.25
        ep = int(rng.choice(experts)) if wanted and experts else 1
    if (kind == "split_mismatch" and ep == 1) or (kind in ("missing_send", "missing_recv") and pp == 1):
        raise faults.NotHere
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


def _recipe(kind: str, rng: np.random.Generator, wishes: Wishes, mode: Mode, layout: Layout) -> programs.Recipe:
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
    )
    each = programs.operations_per_step(layout, recipe, np.random.default_rng(0))
    aim = float(rng.uniform(100, 400 if layout.world <= 32 else 220))
    steps = wishes.steps or int(np.clip(aim / max(each, 1), 3, 24))
    if kind in ("rank0_checkpoint",):
        steps = max(steps, 2 * recipe.save_every)
    return replace(recipe, steps=steps)


def _pace(kind: str, rng: np.random.Generator, layout: Layout, recipe: programs.Recipe) -> tuple[np.ndarray, dict[str, object]]:
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
            raise faults.NotHere
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


def _slow_loaders(written: list[list[Op]], spread: dict[str, object], rng: np.random.Generator) -> None:
    """A straggler whose GPU is as fast as any: its next batch comes late, in most steps."""
    if spread.get("shape") != "slow_data":
        return
    extra = float(rng.uniform(0.3, 2.0))
    for rank in spread["stragglers"]:  # type: ignore[attr-defined]
        for op in written[rank]:
            if op.site == "data" and rng.random() < 0.8:
                op.host += extra * float(rng.uniform(0.7, 1.3))
    spread["late_data_s"] = round(extra, 3)


# ---- after the run


def _check_reached(fault: faults.Fault, ranks: list[Rank]) -> None:
    """A culprit that something else stopped before its own fault would be an innocent."""
    for number, op in fault.planted:
        rank = ranks[number]
        if rank.stuck_at is None or rank.ops[rank.issued] is not op:
            raise faults.NotHere
    if fault.kind == "gpu_hang" and ranks[fault.culprits[0]].hung_at is None:
        raise faults.NotHere


def _stop_reporting(fault: faults.Fault, ranks: list[Rank], rng: np.random.Generator) -> None:
    """A GPU that failed: its last transfers had left for the peers, and are never reported on its own side."""
    if not fault.error:
        return
    rank = ranks[fault.culprits[0]]
    synced = max((at for at in range(rank.passed) if rank.ops[at].kind == SYNC), default=0)
    tail = [op for op in rank.ops[synced : rank.passed] if op.kind in (COLLECTIVE, P2P) and op.end is not None]
    tail = tail[-int(rng.integers(1, 6)) :]
    if not tail:
        fault.error = False
        return
    since = min(op.end or 0.0 for op in tail)
    for op in rank.ops[synced : rank.issued]:
        if op.kind in (COLLECTIVE, P2P) and op.end is not None and op.end >= since:
            op.unseen = True


def _last_progress(ranks: list[Rank]) -> float:
    return max((op.end or 0.0 for rank in ranks for op in rank.ops if op.kind in (COLLECTIVE, P2P)), default=0.0)


def _look(
    kind: str, fault: faults.Fault, layout: Layout, ranks: list[Rank], mode: Mode, rng: np.random.Generator
) -> watchdog.Looks:
    looks = watchdog.Looks([], phase=watchdog.phases(layout, rng))
    world, last = layout.world, _last_progress(ranks)
    timeout = watchdog.first_timeout(ranks, looks)
    if kind in ALIVE:
        if timeout is not None:
            raise faults.NotHere
        running = rng.random() < 0.75
        watchdog.dump_by_hand(looks, last * float(rng.uniform(0.4, 0.95)) if running else last + 30.0, world, rng)
        fault.detail["finished"] = not running
    elif timeout is None:
        raise faults.NotHere  # it went by without harm
    elif kind in ("timeout_short", "rank0_checkpoint"):
        mode.by_hand = mode.only_active = False
        if mode.backend == "gloo":
            raise faults.NotHere
        watchdog.dump_after(looks, timeout, world, rng)
    elif kind == "dead" and rng.random() < 0.3 and mode.backend == "nccl":
        died = max(ranks[rank].died_at or 0.0 for rank in fault.culprits)
        looks.first, looks.fired = None, {}
        watchdog.dump_after(looks, max(died, last) + float(rng.uniform(1, 30)), world, rng)
        fault.detail["error_seen_early"] = True
    elif mode.by_hand:
        watchdog.dump_by_hand(looks, last + (timeout - last) * float(rng.uniform(0.2, 0.9)), world, rng)
    else:
        watchdog.dump_after(looks, timeout, world, rng)
    if fault.gil and not mode.by_hand:
        for rank in fault.culprits:
            looks.at[rank] += float(rng.uniform(8.0, 15.0))
    return looks


def _before(layout: Layout, first_step: list[list[Op]], steps: int, backend: str) -> list[tuple[dict[int, recorder.Counters], int]]:
    """Counters and record ids of each rank after `steps` ordinary steps that the ring has forgotten."""
    out = []
    for rank in range(layout.world):
        base: dict[int, recorder.Counters] = {}
        entries = 0
        for op in first_step[rank]:
            if op.kind not in (COLLECTIVE, P2P) or op.group is None:
                continue
            count = base.setdefault(op.group.index, recorder.Counters())
            entries += steps * recorder.made_by(op, backend)
            count.collective += steps * (op.kind == COLLECTIVE)
            count.p2p += steps * (op.kind == P2P and backend == "nccl")
            count.seq = count.collective + count.p2p
            count.op += steps * (len(op.parts) or 1)
        out.append((base, entries))
    return out


def _record(
    kind: str,
    mode: Mode,
    layout: Layout,
    recipe: programs.Recipe,
    fault: faults.Fault,
    ranks: list[Rank],
    looks: watchdog.Looks,
    first_step: list[list[Op]],
    rng: np.random.Generator,
) -> Incident:
    options = recorder.Options(mode.backend, mode.timing, mode.ring)
    dead = {rank.number for rank in ranks if rank.died_at is not None}
    innocent = [rank for rank in range(layout.world) if rank not in fault.culprits]
    lost = set(rng.choice(innocent, round(mode.missing * len(innocent)), replace=False).tolist()) | dead
    fullest = [recorder.count(rank, looks.at[rank.number], mode.backend) for rank in ranks]
    earlier = int(rng.integers(10, 5000)) if min(fullest) >= mode.ring else 0
    bases = _before(layout, first_step, earlier, mode.backend)
    recordings = {
        rank.number: recorder.record(rank, layout, looks, options, *bases[rank.number])
        for rank in ranks
        if rank.number not in lost
    }
    view = truth.View(frozenset(recordings), mode.backend, mode.timing, mode.frames, mode.ring)
    answer = truth.judge(fault, layout, ranks, looks, view)
    zero_ns, offsets = _clocks(mode, layout, rng)
    paths = {r: names.path(mode.scheme, r, f"node-{layout.host(r):02d}", 1, mode.json) for r in range(layout.world)}
    incident = Incident(mode, layout, recipe, fault, answer, ranks, looks, recordings, zero_ns, paths)
    if lost and rng.random() < 0.15:
        _leave_stale(incident, lost, options, rng)
    incident.truth = _truth(kind, incident, earlier, offsets, fullest)
    return incident


def _leave_stale(incident: Incident, lost: set[int], options: recorder.Options, rng: np.random.Generator) -> None:
    """Ranks that wrote nothing still have the file of an earlier, shorter attempt of the job."""
    last = _last_progress(incident.ranks)
    early = watchdog.Looks([last * float(rng.uniform(0.2, 0.5))] * incident.layout.world, phase=incident.looks.phase)
    for rank in sorted(lost):
        incident.stale[rank] = recorder.record(incident.ranks[rank], incident.layout, early, options, {}, 0)


def _clocks(mode: Mode, layout: Layout, rng: np.random.Generator) -> tuple[list[int], dict[str, float]]:
    """Wall clock at the job's second 0 on each rank's host, and the hosts' errors in milliseconds."""
    start = 1_764_500_000 * 10**9 + int(rng.integers(0, 30_000_000)) * 10**9 + int(rng.integers(10**9))
    width = {"none": 0.0, "ntp": 5.0, "loose": 1500.0}[mode.skew]
    errors = rng.normal(0.0, width, layout.hosts()) if width else np.zeros(layout.hosts())
    return (
        [start + int(errors[layout.host(rank)] * 1e6) for rank in range(layout.world)],
        {f"node-{host:02d}": round(float(error), 3) for host, error in enumerate(errors)},
    )


def _lateness(ranks: list[Rank]) -> dict[str, dict[str, float]]:
    """How late each rank is, in seconds: of each step its worst lateness in a collective, and of those the median.

    Lateness is against the median of the call's members. "issued": when the host made the call, which is what the
    recorder sees; "ready": when the GPU got to it.
    """
    calls: dict[tuple[int, int], list[tuple[int, Op]]] = {}
    counts: dict[tuple[int, int], int] = {}
    for rank in ranks:
        for op in rank.ops:
            if op.kind == COLLECTIVE and op.group and op.start is not None:
                key = (rank.number, op.group.index)
                counts[key] = counts.get(key, -1) + 1
                calls.setdefault((op.group.index, counts[key]), []).append((rank.number, op))
    worst: dict[str, dict[tuple[int, int], float]] = {"issued": {}, "ready": {}}
    for members in calls.values():
        for what, times in (("issued", [op.created for _, op in members]), ("ready", [op.ready for _, op in members])):
            middle = sorted(t or 0.0 for t in times)[len(times) // 2]
            for (rank, op), time in zip(members, times, strict=True):
                key = (rank, op.step)
                worst[what][key] = max(worst[what].get(key, 0.0), (time or 0.0) - middle)
    table: dict[str, dict[str, float]] = {}
    for what, found in worst.items():
        by_rank: dict[int, list[float]] = {}
        for (rank, _), late in found.items():
            by_rank.setdefault(rank, []).append(late)
        table[what] = {str(rank): round(float(np.median(late)), 4) for rank, late in sorted(by_rank.items())}
    return table


def _truth(kind: str, incident: Incident, earlier: int, offsets: dict[str, float], fullest: list[int]) -> dict[str, object]:
    mode, layout, fault, looks = incident.mode, incident.layout, incident.fault, incident.looks
    return {
        "kind": kind,
        "mechanism": fault.mechanism,
        "also_accepted": fault.also,
        "culprits": fault.culprits,
        "group_ranks": fault.group_ranks,
        "identifiable": incident.answer.identifiable,
        "reason": incident.answer.reason,
        "candidates": incident.answer.candidates,
        "detail": fault.detail,
        "lateness_s": _lateness(incident.ranks) if kind in ALIVE else {},
        "mode": {
            "start_events": mode.timing,
            "frames": mode.frames,
            "missing": mode.missing,
            "ring": mode.ring,
            "ring_short": max(fullest) > mode.ring,
            "version": mode.version,
            "json": mode.json,
            "backend": mode.backend,
            "by_hand": mode.by_hand,
            "only_active": mode.only_active,
            "skew": mode.skew,
            "scheme": mode.scheme,
        },
        "world": layout.world,
        "layout": {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "ep": layout.ep},
        "style": incident.recipe.style,
        "batched_p2p": incident.recipe.batched_p2p,
        "steps_before": earlier,
        "node_size": layout.node_size,
        "missing_ranks": sorted(set(range(layout.world)) - set(incident.recordings)),
        "stale_ranks": sorted(incident.stale),
        "fired_first": looks.first,
        "last_progress_s": round(_last_progress(incident.ranks), 4),
        "dumped_at_s": [round(at, 3) for at in looks.at],
        "clock_error_ms": offsets,
        "files": {str(r): incident.paths[r] for r in sorted({**incident.stale, **incident.recordings})},
    }
