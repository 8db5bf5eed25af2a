"""Faults that are no rank's: the network, a timeout that is too short; and jobs that are sound."""

from __future__ import annotations

from collections.abc import Callable

from lab.simulate.ops import COLLECTIVE, HOST, WAIT, Op
from lab.simulate.scene import Fault, NotHere, Scene, pick


def network(scene: Scene) -> Fault:
    layout, rng = scene.layout, scene.rng
    shape = str(rng.choice(["communicator", "pair", "node"]))
    fault = Fault("network", "network", detail={"where": shape})
    groups = [g for g in layout.groups if len(g.ranks) > 1 and g.role in ("world", "dp", "tp", "pp", "mp", "ep")]
    group = groups[pick(scene, groups)]
    if shape == "communicator":
        _cut(fault, scene, lambda members, op: op.group is group)
        return fault
    if layout.hosts() < 2:
        raise NotHere
    if shape == "node":
        host = int(rng.integers(layout.hosts()))
        fault.detail["host"] = host
        _cut(fault, scene, lambda members, op: 0 < sum(layout.host(m) == host for m in members) < len(members))
        return fault
    crossing = [g for g in groups if any(layout.host(a) != layout.host(b) for a, b in _ring(g.ranks))]
    group = crossing[pick(scene, crossing)]
    links = [pair for pair in _ring(group.ranks) if layout.host(pair[0]) != layout.host(pair[1])]
    pair = links[pick(scene, links)]
    fault.detail["link"] = sorted(pair)
    _cut(fault, scene, lambda members, op: any(set(pair) == set(edge) for edge in _ring(members)))
    return fault


def _ring(ranks: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(ranks, (*ranks[1:], ranks[0]), strict=True))


def _cut(fault: Fault, scene: Scene, crosses: Callable[[tuple[int, ...], Op], bool]) -> None:
    step = scene.step

    def cut(members: tuple[int, ...], at: float, op: Op) -> bool:
        if op.step < step or not crosses(members, op):
            return False
        fault.hits.append((at, members))
        return True

    fault.cut = cut


def timeout_short(scene: Scene) -> Fault:
    """Slow but going on: a queue of large transfers, each shorter than the timeout; or shards that all ranks write."""
    rng, layout = scene.rng, scene.layout
    timeout = layout.groups[1 if len(layout.groups) > 1 else 0].timeout_ms / 1e3
    queue = bool(rng.random() < 0.6)
    fault = Fault("timeout_short", "timeout_short", detail={"shape": "queue" if queue else "shards"})
    many, each = int(rng.integers(6, 12)), timeout * float(rng.uniform(0.25, 0.5))
    for rank in range(layout.world):
        program = scene.programs[rank]
        at = next(i for i, op in enumerate(program) if op.step == scene.step and op.site == "data")
        if queue:
            group = layout.group("dp" if layout.dp > 1 else "world", rank)
            n = len(group.ranks)
            size = int(2e9) // n
            sent = [
                Op(
                    COLLECTIVE,
                    "load_shard",
                    scene.step,
                    group,
                    "_all_gather_base",
                    [[size]],
                    [[size * n]],
                    "Byte",
                    blocking=False,
                )
                for _ in range(many)
            ]
            for op in sent:
                op.takes, op.host = each, 1e-3
            program[at:at] = [*sent, Op(WAIT, "load_shard", scene.step, waits=sent)]
        else:
            write = Op(HOST, "save_shard", scene.step, host=timeout * float(rng.uniform(2.0, 6.0)))
            done = Op(
                COLLECTIVE,
                "shard_barrier",
                scene.step,
                layout.groups[0],
                scene.recipe.barrier_name,
                [[1]],
                [[1]],
                "Float",
            )
            program[at:at] = [write, done]
    return fault


def healthy(scene: Scene) -> Fault:
    """Alive, if irregular: data stalls of a second or two here and there."""
    for rank in range(scene.layout.world):
        for op in scene.programs[rank]:
            if op.site == "data" and scene.rng.random() < 0.02:
                op.host += float(scene.rng.uniform(0.2, 2.0))
    return Fault("healthy", "no_hang")


def straggler(scene: Scene) -> Fault:
    """How the work is spread was settled when the programs were written (incident.py): nothing to do here."""
    return Fault("straggler", "no_hang")
