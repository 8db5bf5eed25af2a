"""Histories with a known truth, for bench/history_calibration.py: a cluster, a scheduler, jobs, and what goes wrong.

Nothing here is drawn from the model that whichrank uses. Nodes differ in how often they fail; jobs want many nodes or
few, for hours or days; the scheduler likes the nodes of the last time, or neighbours; jobs that fail are started again,
from a checkpoint, often on the same nodes. What a diagnosis then says of an incident is wrong in some of them (the blame
falls on a random rank, on rank 0, on a neighbour), has no rank or no host in others, and knows the shard, the call site,
the storage server only sometimes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from whichrank.history.incident import History, Incident, Run, squeezed

KINDS = ("node", "gpu", "rank", "role", "rack", "shard", "step", "storage", "window", "site", "mixed", "none")
SITES = ("train.py:212", "train.py:240", "loader.py:88", "ckpt.py:51", "eval.py:130", "model.py:402")
CAUSES = (
    ("host_oom", "dead_rank"), ("killed", "dead_rank"), ("gpu_fault", "gpu_fault"), ("network", "network"),
    ("slow_data", "straggler"), ("slow_storage", "straggler"), ("exception", "dead_rank"), ("undecided", "undecided"),
)  # fmt: skip
HOUR = 3600.0


@dataclass
class World:
    """One cluster, its jobs, and the truth about it."""

    dice: np.random.Generator
    kind: str
    nodes: int
    per_node: int
    rack_of: list[int]
    fault: dict[str, object]
    noise: float  # of the blames that are wrong
    sticky: float
    uneven: np.ndarray
    recorded: float  # of the healthy runs
    runs: list[Run] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    truths: list[str] = field(default_factory=list)  # what was behind each incident


@dataclass(frozen=True)
class Simulated:
    """`truth`: the names that are right answers, by kind of pattern; `planted`: hits of it, as far as observed."""

    history: History
    topology: dict[str, dict[str, str]]
    kind: str
    truth: dict[str, set[str]]
    planted: dict[str, int]
    varied: bool


def host(number: int) -> str:
    return f"gn{number:04}"


def draw(seed: int) -> Simulated:
    """A history: 8 to 1,000 nodes, 3 to 60 incidents."""
    dice = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    nodes = int(np.exp(dice.uniform(np.log(8), np.log(1000))))
    wanted = int(np.exp(dice.uniform(np.log(3), np.log(60))))
    per_rack = int(dice.choice([4, 8, 16, 32]))
    world = World(
        dice, kind, nodes, int(dice.choice([1, 4, 8, 8, 8])), [number // per_rack for number in range(nodes)], {},
        float(dice.uniform(0.05, 0.3)), float(dice.choice([0.0, 0.3, 0.7, 0.95])), np.exp(dice.normal(0, 0.5, nodes)), float(dice.choice([0.0, 0.6])),
    )  # fmt: skip
    plant(world)
    simulate(world, wanted)
    return observed(world)


def plant(world: World) -> None:
    """What is wrong, beside bad luck."""
    dice = world.dice
    kinds = [world.kind]
    if world.kind == "mixed":
        kinds = list(dice.choice(["node", "storage", "shard", "rank", "rack", "site"], 2, replace=False))
    for kind in kinds:
        if kind in ("node", "gpu"):
            world.fault[kind] = int(dice.integers(world.nodes))
            world.fault["slot"] = int(dice.integers(world.per_node))
        elif kind == "rack":
            world.fault[kind] = int(dice.integers(max(world.rack_of) + 1))
        elif kind == "rank":
            world.fault[kind] = -1 if dice.random() < 0.3 else int(dice.integers(0, 4 * world.per_node))
        elif kind == "role":
            world.fault[kind] = int(dice.integers(world.per_node))
        elif kind == "shard":
            world.fault[kind] = int(dice.integers(400))
        elif kind == "step":
            world.fault[kind] = int(dice.integers(300, 40_000))
        elif kind == "storage":
            world.fault[kind] = sorted(dice.uniform(0, 60 * 24 * HOUR, int(dice.integers(2, 7))))
        elif kind == "window":
            world.fault[kind] = float(dice.uniform(0, 24))
        elif kind == "site":
            world.fault[kind] = SITES[int(dice.integers(len(SITES)))]


@dataclass
class Job:
    """What one user trains: its size, its last nodes, how far it has come."""

    size: int
    speed: float  # steps an hour
    length: float  # hours that one run is given
    last: list[int] = field(default_factory=list)
    free_at: float = 0.0
    step: int = 0
    offset: int = 0  # of its shards


def simulate(world: World, wanted: int) -> None:
    dice = world.dice
    most = max(2, min(64, world.nodes // 2))
    count = 1 if world.kind in ("shard", "step", "rank", "role") and dice.random() < 0.7 else int(dice.integers(1, 7))
    if world.kind in ("storage",) or "storage" in world.fault:
        count = int(dice.integers(3, 9))
    jobs = [
        Job(
            int(np.exp(dice.uniform(np.log(2), np.log(most)))),
            float(dice.uniform(100, 2000)),
            float(np.exp(dice.uniform(np.log(2), np.log(72)))),
        )
        for _ in range(count)
    ]
    for job in jobs:
        job.free_at = float(dice.uniform(0, 24 * HOUR))
    guard = 0
    while len(world.incidents) < wanted and guard < 40 * wanted:
        guard += 1
        job = min(jobs, key=lambda one: one.free_at)
        start = job.free_at
        placed = place(world, job)
        end, why, blamed, step = outcome(world, job, placed, start)
        ranks = [node for node in placed for _ in range(world.per_node)]
        run = Run(
            f"run-{len(world.runs):05}",
            f"job {len(world.runs)}",
            start,
            end,
            squeezed([host(n) for n in ranks]),
            len(ranks),
        )
        if dice.random() < (0.9 if why else world.recorded):  # healthy runs are not always kept, or never
            world.runs.append(run)
        elif why:
            why = ""
        if why:
            tell(world, job, run, placed, end, why, blamed, step)
            job.step = max(0, step - int(dice.integers(1, 400)))
        else:
            job.step = step
        job.last, job.free_at = placed, end + float(dice.exponential(0.4 * HOUR)) + 60


def place(world: World, job: Job) -> list[int]:
    """The scheduler: the same nodes again, neighbours, or whatever is free; and people exclude nodes."""
    dice = world.dice
    if job.last and dice.random() < world.sticky:
        kept = list(job.last)
        if dice.random() < 0.5:
            kept[int(dice.integers(len(kept)))] = int(dice.integers(world.nodes))
            if len(set(kept)) < len(kept):
                kept = list(job.last)
        return kept
    if dice.random() < 0.5:
        begin = int(dice.integers(world.nodes))
        return [(begin + place) % world.nodes for place in range(job.size)]
    return [int(one) for one in dice.choice(world.nodes, job.size, replace=False)]


def outcome(world: World, job: Job, placed: list[int], start: float) -> tuple[float, str, tuple[int, int], int]:
    """When this run ends and why; "" where it ended well. Hazards race; the first wins."""
    dice = world.dice
    length = job.length * HOUR
    fault, per_node = world.fault, world.per_node
    ends: list[tuple[float, str, tuple[int, int]]] = [(length, "", (0, 0))]
    hazard = 0.012 * sum(world.uneven[node] for node in placed) / len(placed)
    weights = world.uneven[placed] / world.uneven[placed].sum()
    unlucky = int(dice.choice(len(placed), p=weights))
    ends.append((float(dice.exponential(1 / hazard)) * HOUR, "luck", (unlucky, int(dice.integers(per_node)))))
    if "node" in fault and fault["node"] in placed:
        ends.append(
            (float(dice.exponential(6)) * HOUR, "node", (placed.index(fault["node"]), int(dice.integers(per_node))))
        )
    if "gpu" in fault and fault["gpu"] in placed:
        ends.append((float(dice.exponential(6)) * HOUR, "gpu", (placed.index(fault["gpu"]), int(fault["slot"]))))  # type: ignore[call-overload]
    if "rack" in fault:
        under = [place for place, node in enumerate(placed) if world.rack_of[node] == fault["rack"]]
        if under:
            ends.append(
                (float(dice.exponential(8)) * HOUR, "rack", (int(dice.choice(under)), int(dice.integers(per_node))))
            )
    if "rank" in fault:
        rank = len(placed) * per_node - 1 if fault["rank"] == -1 else int(fault["rank"])  # type: ignore[call-overload]
        if rank < len(placed) * per_node:
            ends.append((float(dice.exponential(10)) * HOUR, "rank", (rank // per_node, rank % per_node)))
    if "role" in fault:
        ends.append((float(dice.exponential(10)) * HOUR, "role", (int(dice.integers(len(placed))), int(fault["role"]))))  # type: ignore[call-overload]
    anyone = (int(dice.integers(len(placed))), int(dice.integers(per_node)))
    if "shard" in fault:
        ahead = ((int(fault["shard"]) - job.step // 100) % 400) * 100 + 50  # type: ignore[call-overload]
        if dice.random() < 0.95:
            ends.append((ahead / job.speed * HOUR, "shard", anyone))
    if "step" in fault and job.step < int(fault["step"]):  # type: ignore[call-overload]
        ends.append(((int(fault["step"]) - job.step) / job.speed * HOUR, "step", anyone))  # type: ignore[call-overload]
    if "storage" in fault:
        later = [at for at in fault["storage"] if at > start]  # type: ignore[attr-defined]
        if later and dice.random() < 0.8:
            ends.append((later[0] - start + float(dice.uniform(0, 500)), "storage", anyone))
    if "window" in fault and dice.random() < 0.5:
        until = (float(fault["window"]) * HOUR - start) % (24 * HOUR)  # type: ignore[arg-type]
        ends.append((until + float(dice.uniform(0, 2400)), "window", anyone))
    if "site" in fault:
        ends.append((float(dice.exponential(9)) * HOUR, "site", anyone))
    end, why, blamed = min(ends)
    return start + max(end, 120.0), why, blamed, job.step + int(job.speed * end / HOUR)


def tell(
    world: World, job: Job, run: Run, placed: list[int], end: float, why: str, blamed: tuple[int, int], step: int
) -> None:
    """What the diagnosis says of it, right or not."""
    dice, per_node = world.dice, world.per_node
    node, slot = blamed
    if why == "node" and dice.random() < 0.3:
        slot = 0
    truth = why
    if dice.random() < world.noise:
        truth = why + "?"
        sort = dice.random()
        if sort < 0.25:
            node, slot = 0, 0
        elif sort < 0.5:
            node = (node + 1) % len(placed)
        else:
            node, slot = int(dice.integers(len(placed))), int(dice.integers(per_node))
    rank: int | None = node * per_node + slot
    named: str | None = host(placed[node])
    if dice.random() < 0.12:
        rank = None
    elif dice.random() < 0.1:
        named = None
    if rank is None and dice.random() < 0.2:
        named = None
    cause, family = CAUSES[int(dice.integers(len(CAUSES)))]
    if why in ("storage", "window") and dice.random() < 0.7:
        cause, family = "slow_storage", "straggler"
    if why in ("site", "shard") and dice.random() < 0.6:
        cause, family = "exception", "dead_rank"
    site = str(world.fault["site"]) if why == "site" and dice.random() < 0.8 else None
    if site is None and dice.random() < 0.5:
        site = SITES[int(dice.choice(len(SITES), p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05]))]
    shard = None
    if why == "shard" and dice.random() < 0.85:
        shard = f"shard-{int(world.fault['shard']):05}"  # type: ignore[call-overload]
    elif dice.random() < 0.3:
        shard = f"shard-{(step // 100 + int(dice.integers(3))) % 400:05}"
    known = dice.random() < 0.8
    service = "nfs01" if cause == "slow_storage" and dice.random() < 0.4 else None
    told = int(step + dice.integers(-1, 2)) if known else None
    one = Incident(
        run.id, 0, end, cause, family, "likely", 0.8, rank, named, None, None, None, site, told,
        job.step if known and dice.random() < 0.8 else None, shard, 400 if dice.random() < 0.4 else 0, None, service, "",
    )  # fmt: skip
    world.incidents.append(one)
    world.truths.append(truth)
    if dice.random() < 0.05:  # the launcher's second try fails in the same way
        world.incidents.append(replace(one, attempt=1, at=end + 200))
        world.truths.append("again")


def observed(world: World) -> Simulated:
    order = world.dice.permutation(len(world.incidents))
    history = History.of(world.runs, [world.incidents[place] for place in order])
    racks = {host(number): f"r{rack:02}" for number, rack in enumerate(world.rack_of)}
    truth: dict[str, set[str]] = {}
    for name, value in world.fault.items():
        if name in ("node", "gpu"):
            truth[name] = {host(int(value))}  # type: ignore[call-overload]
        elif name == "rack":
            truth[name] = {f"rack r{int(value):02}"}  # type: ignore[call-overload]
        elif name == "rank":
            truth[name] = {f"rank {value}"}
        elif name == "role":
            truth[name] = {f"local rank {value}"}
        elif name == "shard":
            truth[name] = {f"shard-{int(value):05}"}  # type: ignore[call-overload]
        elif name in ("step", "storage", "window", "site"):
            truth[name] = {str(value)}
    planted = {name: sum(one == name for one in world.truths) for name in truth}
    if "storage" in truth:  # of an outage that hit one run alone nobody can tell
        times = sorted(one.at for one, why in zip(world.incidents, world.truths, strict=True) if why == "storage")
        planted["storage"] = sum(any(other is not at and abs(other - at) < 600 for other in times) for at in times)
    return Simulated(history, {"rack": racks}, world.kind, truth, planted, _varied(world))


def _varied(world: World) -> bool:
    """Did the culprit run in several places, so that node and rank can be told apart?"""
    runs = {run.id: run for run in world.runs}
    hits = [one for one, why in zip(world.incidents, world.truths, strict=True) if why in world.fault]
    if "node" in world.fault or "gpu" in world.fault:
        mine = host(int(world.fault.get("node", world.fault.get("gpu"))))  # type: ignore[call-overload]
        where = [
            [name for name, _ in runs[one.run].placement].index(mine)
            for one in hits
            if one.run in runs and mine in [name for name, _ in runs[one.run].placement]
        ]
        return len(set(where)) >= 3
    if "rack" in world.fault:  # a job that lies within one rack altogether says nothing of it
        rack = world.fault["rack"]
        told = 0
        for one in hits:
            under = (
                [world.rack_of[int(name[2:])] == rack for name, _ in runs[one.run].placement] if one.run in runs else []
            )
            told += bool(under) and sum(under) <= 0.5 * len(under)
        return told >= 4
    if "role" in world.fault and world.per_node == 1:
        return False  # every rank has that role
    if "rank" in world.fault or "role" in world.fault:
        return len({one.host for one in hits if one.host}) >= 3
    return True
