"""One incident: a job drawn at random, a fault in it, the run, the dumps that are left and the truth about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from lab.simulate import draw, faults, formats, names, programs, recorder, truth, watchdog
from lab.simulate.engine import Engine, Rank
from lab.simulate.frames import Frames
from lab.simulate.lateness import lateness
from lab.simulate.layout import Layout
from lab.simulate.ops import COLLECTIVE, P2P, SYNC, Op
from lab.simulate.scene import Fault, NotHere, Scene

TRIES = 200


@dataclass(slots=True)
class Incident:
    """A finished incident. files: path below the dumps' folder -> bytes, made one by one."""

    mode: draw.Mode
    layout: Layout
    recipe: programs.Recipe
    fault: Fault
    answer: truth.Answer
    ranks: list[Rank]
    looks: watchdog.Looks
    recordings: dict[int, recorder.Recording]
    zero_ns: list[int]
    paths: dict[int, str]
    stale: dict[int, recorder.Recording] = field(default_factory=dict)  # an earlier attempt's, under today's names
    earlier: dict[int, recorder.Recording] = field(default_factory=dict)  # an earlier attempt's, in a folder of its own
    truth: dict[str, object] = field(default_factory=dict)

    def files(self) -> Iterator[tuple[str, bytes]]:
        shared = None if self.mode.frames == "off" else Frames(self.mode.frames == "generated")
        for rank, recording in sorted({**self.stale, **self.recordings}.items()):
            yield self.paths[rank], formats.write(recording, self._style(rank, shared, rank in self.stale))
        for rank, recording in sorted(self.earlier.items()):
            yield self.earlier_path(rank), formats.write(recording, self._style(rank, shared, True))

    def write(self, folder: Path) -> None:
        for name, data in self.files():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def earlier_path(self, rank: int) -> str:
        return names.path(self.mode.scheme, rank, "", 0, self.mode.json)

    def _style(self, rank: int, shared: Frames | None, old: bool) -> formats.Style:
        mode, held = self.mode, self.fault.gil and rank in self.fault.culprits
        earlier = 7_200 * 10**9 if old else 0
        return formats.Style(
            mode.version,
            mode.json,
            None
            if held
            else shared,  # the interpreter's lock is needed to name the frames: the second try goes without
            mode.only_active,
            named_threads=mode.version == "2.9" and mode.scheme == "plain",
            backend=mode.backend,
            zero_ns=self.zero_ns[rank] - earlier,
        )


class Impossible(RuntimeError):
    """No incident of this kind meets the wishes, such as a GPU that hangs under gloo."""


def make(seed: int, index: int, wishes: draw.Wishes | None = None) -> Incident:
    """Incident `index` of a suite; the same arguments give the same bytes. Impossible: the wishes can't be met."""
    wishes = wishes or draw.Wishes()
    kind = wishes.kinds[index % len(wishes.kinds)]
    for attempt in range(TRIES):
        rng = np.random.default_rng([seed, index, attempt])
        try:
            return _make(kind, rng, wishes)
        except NotHere:
            continue
    asked = {wish.name: getattr(wishes, wish.name) for wish in fields(wishes) if wish.name != "kinds"}
    given = ", ".join(f"{name} {value}" for name, value in asked.items() if value is not None)
    raise Impossible(f"no {kind} is possible with {given}")


def _make(kind: str, rng: np.random.Generator, wishes: draw.Wishes) -> Incident:
    mode = draw.draw_mode(kind, rng, wishes)
    layout = draw.draw_layout(kind, rng, wishes, mode)
    recipe = draw.draw_recipe(kind, rng, wishes, mode, layout)
    pace, spread = draw.draw_pace(kind, rng, layout, recipe)
    written = [programs.write(layout, recipe, rank, rng, pace[rank]) for rank in range(layout.world)]
    draw.slow_loaders(written, spread, rng)
    first_step = [[op for op in program if op.step == 0 and not op.site.startswith("init")] for program in written]
    low = max(1, recipe.steps // 2)
    step = int(rng.integers(low, recipe.steps)) if recipe.steps > low else recipe.steps - 1
    scene = Scene(layout, recipe, written, rng, step)
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


# ---- after the run


def _check_reached(fault: Fault, ranks: list[Rank]) -> None:
    """A culprit that something else stopped before its own fault would be an innocent."""
    for number, op in fault.planted:
        rank = ranks[number]
        if rank.stuck_at is None or rank.ops[rank.issued] is not op:
            raise NotHere
    if fault.kind == "gpu_hang" and ranks[fault.culprits[0]].hung_at is None:
        raise NotHere


def _stop_reporting(fault: Fault, ranks: list[Rank], rng: np.random.Generator) -> None:
    """A GPU that failed: its last transfers had left for the peers, and are never reported on its own side."""
    if not fault.error:
        return
    rank = ranks[fault.culprits[0]]
    synced = max((at for at in range(rank.passed) if rank.ops[at].kind == SYNC), default=0)
    tail = [op for op in rank.ops[synced : rank.passed] if op.communicates and op.end is not None]
    tail = tail[-int(rng.integers(1, 6)) :]
    if not tail:
        fault.error = False
        return
    since = min(op.end or 0.0 for op in tail)
    for op in rank.ops[synced : rank.issued]:
        if op.communicates and op.end is not None and op.end >= since:
            op.unseen = True


def _last_progress(ranks: list[Rank]) -> float:
    return max((op.end or 0.0 for rank in ranks for op in rank.ops if op.communicates), default=0.0)


def _look(
    kind: str, fault: Fault, layout: Layout, ranks: list[Rank], mode: draw.Mode, rng: np.random.Generator
) -> watchdog.Looks:
    looks = watchdog.Looks([], phase=watchdog.phases(layout, rng))
    world, last = layout.world, _last_progress(ranks)
    timeout = watchdog.first_timeout(ranks, looks)
    if kind in draw.ALIVE:
        if timeout is not None:
            raise NotHere
        running = rng.random() < 0.75
        watchdog.dump_by_hand(looks, last * float(rng.uniform(0.4, 0.95)) if running else last + 30.0, world, rng)
        fault.detail["finished"] = not running
    elif timeout is None:
        raise NotHere  # it went by without harm
    elif kind in ("timeout_short", "rank0_checkpoint"):
        mode.by_hand = mode.only_active = False
        if mode.backend == "gloo":
            raise NotHere
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


def _before(
    layout: Layout, first_step: list[list[Op]], steps: int, backend: str
) -> list[tuple[dict[int, recorder.Counters], int]]:
    """Counters and record ids of each rank after `steps` ordinary steps that the ring has forgotten."""
    out = []
    for rank in range(layout.world):
        base: dict[int, recorder.Counters] = {}
        entries = 0
        for op in first_step[rank]:
            if not op.communicates or op.group is None:
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
    mode: draw.Mode,
    layout: Layout,
    recipe: programs.Recipe,
    fault: Fault,
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
    view = truth.View(
        frozenset(recordings), mode.backend, mode.timing, mode.frames, mode.ring, formats.number(mode.version) >= (2, 1)
    )
    answer = truth.judge(fault, layout, ranks, looks, view)
    zero_ns, offsets = _clocks(mode, layout, rng)
    paths = {r: names.path(mode.scheme, r, f"node-{layout.host(r):02d}", 1, mode.json) for r in range(layout.world)}
    incident = Incident(mode, layout, recipe, fault, answer, ranks, looks, recordings, zero_ns, paths)
    if mode.scheme == "attempts" and rng.random() < 0.5:
        incident.earlier = _attempt_before(incident, set(range(layout.world)), options, rng)
    elif lost and rng.random() < 0.15:
        incident.stale = _attempt_before(incident, lost, options, rng)
    incident.truth = _truth(kind, incident, earlier, offsets, fullest)
    return incident


def _attempt_before(
    incident: Incident, whose: set[int], options: recorder.Options, rng: np.random.Generator
) -> dict[int, recorder.Recording]:
    """Dumps of an earlier, shorter attempt of the same job, hours ago."""
    last = _last_progress(incident.ranks)
    early = watchdog.Looks([last * float(rng.uniform(0.2, 0.5))] * incident.layout.world, phase=incident.looks.phase)
    return {
        rank: recorder.record(incident.ranks[rank], incident.layout, early, options, {}, 0) for rank in sorted(whose)
    }


def _clocks(mode: draw.Mode, layout: Layout, rng: np.random.Generator) -> tuple[list[int], dict[str, float]]:
    """Wall clock at the job's second 0 on each rank's host, and the hosts' errors in milliseconds."""
    start = 1_764_500_000 * 10**9 + int(rng.integers(0, 30_000_000)) * 10**9 + int(rng.integers(10**9))
    width = {"none": 0.0, "ntp": 5.0, "loose": 1500.0}[mode.skew]
    errors = rng.normal(0.0, width, layout.hosts()) if width else np.zeros(layout.hosts())
    return (
        [start + int(errors[layout.host(rank)] * 1e6) for rank in range(layout.world)],
        {f"node-{host:02d}": round(float(error), 3) for host, error in enumerate(errors)},
    )


def _truth(
    kind: str, incident: Incident, earlier: int, offsets: dict[str, float], fullest: list[int]
) -> dict[str, object]:
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
        "lateness_s": lateness(incident.ranks) if kind in draw.ALIVE else {},
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
        "earlier_attempt": {str(rank): incident.earlier_path(rank) for rank in sorted(incident.earlier)},
        "fired_first": looks.first,
        "last_progress_s": round(_last_progress(incident.ranks), 4),
        "dumped_at_s": [round(at, 3) for at in looks.at],
        "clock_error_ms": offsets,
        "files": {str(r): incident.paths[r] for r in sorted({**incident.stale, **incident.recordings})},
    }
