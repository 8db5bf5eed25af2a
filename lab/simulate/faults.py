"""What goes wrong: each fault changes the programs, or cuts the network, and says what it did.

The mechanism is in the words of the report: host_stuck, gpu_hang, dead, desync, mismatch, deadlock, network,
timeout_short, no_hang.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from lab.simulate.engine import Cut
from lab.simulate.layout import Layout
from lab.simulate.ops import COLLECTIVE, COMPUTE, HOST, INF, P2P, WAIT, Op
from lab.simulate.programs import Recipe


class NotHere(Exception):
    """This layout or program has no place for the fault: draw another."""


@dataclass(slots=True)
class Scene:
    """A job before it runs."""

    layout: Layout
    recipe: Recipe
    programs: list[list[Op]]
    rng: np.random.Generator
    step: int  # in which it goes wrong


@dataclass(slots=True)
class Fault:
    """What was done, as truth.json tells it."""

    kind: str
    mechanism: str
    culprits: list[int] = field(default_factory=list)
    group_ranks: list[int] | None = None
    detail: dict[str, object] = field(default_factory=dict)
    also: list[str] = field(default_factory=list)  # mechanisms that are as right as `mechanism`
    cut: Cut | None = None
    hits: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)  # what the cut stopped: when, whose
    planted: list[tuple[int, Op]] = field(default_factory=list)  # instructions that must be reached for it to count
    gil: bool = False
    error: bool = False  # the GPU stops reporting, rather than one kernel that never ends


# ---- helpers


def _pick(scene: Scene, choices: list) -> int:  # type: ignore[type-arg]
    if not choices:
        raise NotHere
    return int(scene.rng.integers(len(choices)))


def _rank(scene: Scene) -> int:
    return int(scene.rng.integers(scene.layout.world))


def _places(scene: Scene, rank: int, fits: Callable[[Op], bool]) -> list[int]:
    return [at for at, op in enumerate(scene.programs[rank]) if op.step == scene.step and fits(op)]


def _place(scene: Scene, rank: int, fits: Callable[[Op], bool]) -> int:
    places = _places(scene, rank, fits)
    return places[_pick(scene, places)]


def _comm(op: Op) -> bool:
    return op.kind in (COLLECTIVE, P2P)


def _plain(op: Op) -> bool:
    """A collective all of whose members pass the same shapes."""
    return op.kind == COLLECTIVE and op.name in ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast")


def _any_rank_with(scene: Scene, fits: Callable[[Op], bool]) -> tuple[int, int]:
    ranks = [rank for rank in range(scene.layout.world) if _places(scene, rank, fits)]
    rank = ranks[_pick(scene, ranks)]
    return rank, _place(scene, rank, fits)


def _stop(scene: Scene, fault: Fault, rank: int, at: int, dies: bool = False) -> None:
    op = Op(HOST, "stuck", scene.step, host=INF, dies=dies)
    scene.programs[rank].insert(at, op)
    fault.planted.append((rank, op))


def _drop(program: list[Op], at: int) -> Op:
    """Takes a call out; the compute before it stays."""
    op = program.pop(at)
    for other in program:
        if op in other.waits:
            other.waits = [kept for kept in other.waits if kept is not op]
    if op.before:
        program.insert(at, Op(COMPUTE, op.site, op.step, before=op.before, host=20e-6))
    return op


# ---- a rank that stops


def host_stuck(scene: Scene) -> Fault:
    rank = _rank(scene)
    fault = Fault("host_stuck", "host_stuck", [rank], gil=scene.rng.random() < 0.25)
    _stop(scene, fault, rank, _place(scene, rank, _comm))
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
    first = _rank(scene)
    same = [r for r in range(scene.layout.world) if scene.layout.place(r)[0] == scene.layout.place(first)[0] and r != first]
    second = same[_pick(scene, same)]
    fault = Fault("two_culprits", "host_stuck", sorted((first, second)))
    at = _place(scene, first, _comm)
    for rank in (first, second):
        _stop(scene, fault, rank, at)
    return fault


def dead(scene: Scene) -> Fault:
    layout, rank = scene.layout, _rank(scene)
    lost = [rank]
    if scene.rng.random() < 0.25 and layout.hosts() > 2:
        lost = [r for r in range(layout.world) if layout.host(r) == layout.host(rank)]
    fault = Fault("dead", "dead", lost, detail={"whole_node": len(lost) > 1})
    for rank in lost:
        _stop(scene, fault, rank, _place(scene, rank, _comm), dies=True)
    return fault


def gpu_hang(scene: Scene) -> Fault:
    rank = _rank(scene)
    at = _place(scene, rank, lambda op: op.before > 0)
    fault = Fault("gpu_hang", "gpu_hang", [rank], error=scene.rng.random() < 0.5)
    scene.programs[rank][at].before = INF
    return fault


def rank0_checkpoint(scene: Scene) -> Fault:
    places = [op for op in scene.programs[0] if op.site == "save_write" and op.step >= scene.step]
    op = places[_pick(scene, places)]
    op.host = scene.layout.groups[0].timeout_ms / 1e3 * float(scene.rng.uniform(1.2, 3.0))
    return Fault("rank0_checkpoint", "host_stuck", [0], detail={"would_take_s": round(op.host, 1)}, also=["timeout_short"])


# ---- calls that differ


def skipped_collective(scene: Scene) -> Fault:
    rank, at = _any_rank_with(scene, lambda op: op.kind == COLLECTIVE)
    op = _drop(scene.programs[rank], at)
    assert op.group is not None
    return Fault("skipped_collective", "desync", [rank], [*op.group.ranks], {"site": op.site}, also=["mismatch", "deadlock"])


def extra_collective(scene: Scene) -> Fault:
    rank, at = _any_rank_with(scene, _plain)
    model = scene.programs[rank][at]
    assert model.group is not None
    extra = copy(model)
    extra.site, extra.before = "extra", 0.0
    if scene.rng.random() < 0.6:
        extra.name, extra.inputs, extra.outputs, extra.dtype, extra.root = "all_reduce", [[1]], [[1]], "Float", -1
    scene.programs[rank].insert(at, extra)
    return Fault("extra_collective", "desync", [rank], [*model.group.ranks], {"site": model.site}, also=["mismatch", "deadlock"])


def _changed(scene: Scene, kind: str, change: Callable[[Op], None], also: list[str]) -> Fault:
    rank, at = _any_rank_with(scene, _plain)
    op = scene.programs[rank][at]
    op.inputs, op.outputs = [[*s] for s in op.inputs], [[*s] for s in op.outputs]
    change(op)
    assert op.group is not None
    return Fault(kind, "mismatch", [rank], [*op.group.ranks], {"site": op.site}, also=also)


def size_mismatch(scene: Scene) -> Fault:
    factor = int(scene.rng.integers(2, 4))

    def change(op: Op) -> None:
        for shape in (op.inputs[0], op.outputs[0]):
            shape[-1] *= factor

    return _changed(scene, "size_mismatch", change, [])


def dtype_mismatch(scene: Scene) -> Fault:
    def change(op: Op) -> None:
        op.dtype = {"BFloat16": "Float", "Float": "BFloat16", "Long": "Int"}.get(op.dtype, "Half")

    return _changed(scene, "dtype_mismatch", change, [])


def op_mismatch(scene: Scene) -> Fault:
    def change(op: Op) -> None:
        assert op.group is not None
        n = len(op.group.ranks)
        if op.name == "all_reduce":
            op.name, op.root = "broadcast", op.group.ranks[0]
        else:
            op.name, op.root, op.outputs = "all_reduce", -1, op.inputs
        if op.name == "all_reduce" and n == 1:
            raise NotHere

    return _changed(scene, "op_mismatch", change, ["desync"])


def order_inversion(scene: Scene) -> Fault:
    """Two blocking collectives of groups that share more than one member, issued the other way round on one rank."""
    found = []
    for rank, program in enumerate(scene.programs):
        calls = [at for at in _places(scene, rank, _plain) if program[at].blocking]
        for one, two in zip(calls, calls[1:], strict=False):
            first, second = program[one].group, program[two].group
            assert first and second
            shared = set(first.ranks) & set(second.ranks)
            between = program[one + 1 : two]
            if first is not second and len(shared) > 1 and all(op.kind in (COMPUTE, WAIT) for op in between):
                found.append((rank, one, two))
    rank, one, two = found[_pick(scene, found)]
    program = scene.programs[rank]
    program[one], program[two] = program[two], program[one]
    group = program[two].group
    assert group is not None
    return Fault("order_inversion", "deadlock", [rank], [*group.ranks], {"sites": [program[two].site, program[one].site]}, ["desync"])


def uneven_data(scene: Scene) -> Fault:
    """All ranks of one data-parallel replica run out of batches and go to the final barrier."""
    layout = scene.layout
    if layout.dp < 2:
        raise NotHere
    replica = int(scene.rng.integers(layout.dp))
    leaving = [r for r in range(layout.world) if layout.place(r)[1] == replica]
    for rank in leaving:
        scene.programs[rank] = [op for op in scene.programs[rank] if not scene.step <= op.step < scene.recipe.steps]
    fault = Fault("uneven_data", "desync", leaving, detail={"left_before_step": scene.step}, also=["deadlock"])
    if layout.tp * layout.pp == 1:
        fault.group_ranks = [*layout.group("dp", leaving[0]).ranks]
    return fault


def missing_send(scene: Scene, sends: bool = True) -> Fault:
    rank, at = _any_rank_with(scene, lambda op: op.kind == P2P and any(part.sends == sends for part in op.parts))
    program = scene.programs[rank]
    op = program[at]
    part = next(part for part in op.parts if part.sends == sends)
    op.parts = [kept for kept in op.parts if kept is not part]
    if not op.parts:
        _drop(program, at)
    kind = "missing_send" if sends else "missing_recv"
    return Fault(kind, "desync", [rank], sorted((rank, part.peer)), {"site": op.site}, ["deadlock"])


def missing_recv(scene: Scene) -> Fault:
    return missing_send(scene, False)


def split_mismatch(scene: Scene) -> Fault:
    """One member expects another number of tokens from one peer than that peer sends."""
    rank, at = _any_rank_with(scene, lambda op: op.name == "all_to_all")
    op = scene.programs[rank][at]
    assert op.group is not None
    others = [peer for peer in op.group.ranks if peer != rank]
    peer = others[_pick(scene, others)]
    matches = [o for o in scene.programs[peer] if o.step == op.step and o.name == "all_to_all"]
    mine = [o for o in scene.programs[rank] if o.step == op.step and o.name == "all_to_all"]
    theirs = matches[[id(o) for o in mine].index(id(op))]
    op.bad_peers, theirs.bad_peers = frozenset((peer,)), frozenset((rank,))
    op.outputs = [[max(1, op.outputs[0][0] - int(scene.rng.integers(1, 9))), *op.outputs[0][1:]]]
    return Fault("split_mismatch", "mismatch", [rank], [*op.group.ranks], {"peer": peer, "site": op.site})


# ---- the network


def network(scene: Scene) -> Fault:
    layout, rng = scene.layout, scene.rng
    shape = str(rng.choice(["communicator", "pair", "node"]))
    fault = Fault("network", "network", detail={"where": shape})
    groups = [g for g in layout.groups if len(g.ranks) > 1 and g.role in ("world", "dp", "tp", "pp", "mp", "ep")]
    group = groups[_pick(scene, groups)]
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
    group = crossing[_pick(scene, crossing)]
    links = [pair for pair in _ring(group.ranks) if layout.host(pair[0]) != layout.host(pair[1])]
    pair = links[_pick(scene, links)]
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


# ---- no fault of any rank


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
                Op(COLLECTIVE, "load_shard", scene.step, group, "_all_gather_base", [[size]], [[size * n]], "Byte", blocking=False)
                for _ in range(many)
            ]
            for op in sent:
                op.takes, op.host = each, 1e-3
            program[at:at] = [*sent, Op(WAIT, "load_shard", scene.step, waits=sent)]
        else:
            write = Op(HOST, "save_shard", scene.step, host=timeout * float(rng.uniform(2.0, 6.0)))
            done = Op(COLLECTIVE, "shard_barrier", scene.step, layout.groups[0], scene.recipe.barrier_name, [[1]], [[1]], "Float")
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


KINDS: dict[str, Callable[[Scene], Fault]] = {
    made.__name__: made
    for made in (
        host_stuck,
        late_then_stuck,
        gpu_hang,
        dead,
        two_culprits,
        skipped_collective,
        extra_collective,
        size_mismatch,
        dtype_mismatch,
        op_mismatch,
        order_inversion,
        uneven_data,
        network,
        missing_send,
        missing_recv,
        split_mismatch,
        rank0_checkpoint,
        timeout_short,
        healthy,
        straggler,
    )
}
