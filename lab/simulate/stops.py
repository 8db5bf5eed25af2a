"""Faults: a rank that stops, in its host, its GPU or altogether."""

from __future__ import annotations

from lab.simulate.ops import HOST, INF, Op
from lab.simulate.scene import Fault, Scene, any_rank, pick, place_in


def _stop(scene: Scene, fault: Fault, rank: int, at: int, dies: bool = False) -> None:
    op = Op(HOST, "stuck", scene.step, host=INF, dies=dies)
    scene.programs[rank].insert(at, op)
    fault.planted.append((rank, op))


def _call(scene: Scene, rank: int) -> int:
    return place_in(scene, rank, lambda op: op.communicates)


def host_stuck(scene: Scene) -> Fault:
    rank = any_rank(scene)
    fault = Fault("host_stuck", "host_stuck", [rank], gil=scene.rng.random() < 0.25)
    _stop(scene, fault, rank, _call(scene, rank))
    return fault


def late_then_stuck(scene: Scene) -> Fault:
    fault = host_stuck(scene)
    fault.kind = "late_then_stuck"
    first = max(0, scene.step - int(scene.rng.integers(2, 6)))
    for op in scene.programs[fault.culprits[0]]:
        if op.site == "data" and first <= op.step < scene.step:
            op.host += float(scene.rng.uniform(0.4, 3.0))
    fault.detail["late_from_step"] = first
    return fault


def two_culprits(scene: Scene) -> Fault:
    first = any_rank(scene)
    same = [
        r for r in range(scene.layout.world) if scene.layout.place(r)[0] == scene.layout.place(first)[0] and r != first
    ]
    second = same[pick(scene, same)]
    fault = Fault("two_culprits", "host_stuck", sorted((first, second)))
    at = _call(scene, first)
    for rank in (first, second):
        _stop(scene, fault, rank, at)
    return fault


def dead(scene: Scene) -> Fault:
    layout, rank = scene.layout, any_rank(scene)
    lost = [rank]
    if scene.rng.random() < 0.25 and layout.hosts() > 2:
        lost = [r for r in range(layout.world) if layout.host(r) == layout.host(rank)]
    fault = Fault("dead", "dead", lost, detail={"whole_node": len(lost) > 1})
    for rank in lost:
        _stop(scene, fault, rank, _call(scene, rank), dies=True)
    return fault


def gpu_hang(scene: Scene) -> Fault:
    rank = any_rank(scene)
    at = place_in(scene, rank, lambda op: op.before > 0)
    fault = Fault("gpu_hang", "gpu_hang", [rank], error=scene.rng.random() < 0.5)
    scene.programs[rank][at].before = INF
    return fault


def rank0_checkpoint(scene: Scene) -> Fault:
    places = [op for op in scene.programs[0] if op.site == "save_write" and op.step >= scene.step]
    op = places[pick(scene, places)]
    op.host = scene.layout.groups[0].timeout_ms / 1e3 * float(scene.rng.uniform(1.2, 3.0))
    return Fault(
        "rank0_checkpoint", "host_stuck", [0], detail={"would_take_s": round(op.host, 1)}, also=["timeout_short"]
    )
