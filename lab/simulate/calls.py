"""Faults: a rank that calls something else than its peers."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from itertools import pairwise

from lab.simulate.ops import COLLECTIVE, COMPUTE, P2P, WAIT, Op
from lab.simulate.scene import Fault, NotHere, Scene, any_rank_with, drop, is_plain, pick, places_in


def skipped_collective(scene: Scene) -> Fault:
    rank, at = any_rank_with(scene, lambda op: op.kind == COLLECTIVE)
    op = drop(scene.programs[rank], at)
    assert op.group is not None
    return Fault(
        "skipped_collective", "desync", [rank], [*op.group.ranks], {"site": op.site}, also=["mismatch", "deadlock"]
    )


def extra_collective(scene: Scene) -> Fault:
    rank, at = any_rank_with(scene, is_plain)
    model = scene.programs[rank][at]
    assert model.group is not None
    extra = copy(model)
    extra.site, extra.before = "extra", 0.0
    if scene.rng.random() < 0.6:
        extra.name, extra.inputs, extra.outputs, extra.dtype, extra.root = "all_reduce", [[1]], [[1]], "Float", -1
    scene.programs[rank].insert(at, extra)
    return Fault(
        "extra_collective", "desync", [rank], [*model.group.ranks], {"site": model.site}, also=["mismatch", "deadlock"]
    )


def _changed(scene: Scene, kind: str, change: Callable[[Op], None], also: list[str]) -> Fault:
    rank, at = any_rank_with(scene, is_plain)
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
        calls = [at for at in places_in(scene, rank, is_plain) if program[at].blocking]
        for one, two in pairwise(calls):
            first, second = program[one].group, program[two].group
            assert first and second
            shared = set(first.ranks) & set(second.ranks)
            between = program[one + 1 : two]
            if first is not second and len(shared) > 1 and all(op.kind in (COMPUTE, WAIT) for op in between):
                found.append((rank, one, two))
    rank, one, two = found[pick(scene, found)]
    program = scene.programs[rank]
    program[one], program[two] = program[two], program[one]
    group = program[two].group
    assert group is not None
    return Fault(
        "order_inversion",
        "deadlock",
        [rank],
        [*group.ranks],
        {"sites": [program[two].site, program[one].site]},
        ["desync"],
    )


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
    rank, at = any_rank_with(scene, lambda op: op.kind == P2P and any(part.sends == sends for part in op.parts))
    program = scene.programs[rank]
    op = program[at]
    part = next(part for part in op.parts if part.sends == sends)
    op.parts = [kept for kept in op.parts if kept is not part]
    if not op.parts:
        drop(program, at)
    kind = "missing_send" if sends else "missing_recv"
    return Fault(kind, "desync", [rank], sorted((rank, part.peer)), {"site": op.site}, ["deadlock"])


def missing_recv(scene: Scene) -> Fault:
    return missing_send(scene, False)


def split_mismatch(scene: Scene) -> Fault:
    """One member expects another number of tokens from one peer than that peer sends."""
    rank, at = any_rank_with(scene, lambda op: op.name == "all_to_all")
    op = scene.programs[rank][at]
    assert op.group is not None
    others = [peer for peer in op.group.ranks if peer != rank]
    peer = others[pick(scene, others)]
    matches = [o for o in scene.programs[peer] if o.step == op.step and o.name == "all_to_all"]
    mine = [o for o in scene.programs[rank] if o.step == op.step and o.name == "all_to_all"]
    theirs = matches[[id(o) for o in mine].index(id(op))]
    op.bad_peers, theirs.bad_peers = frozenset((peer,)), frozenset((rank,))
    op.outputs = [[max(1, op.outputs[0][0] - int(scene.rng.integers(1, 9))), *op.outputs[0][1:]]]
    return Fault("split_mismatch", "mismatch", [rank], [*op.group.ranks], {"peer": peer, "site": op.site})
