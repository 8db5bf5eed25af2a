"""A job before it runs, the record of what is done to it, and how places for a fault are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lab.simulate.engine import Cut
from lab.simulate.layout import Layout
from lab.simulate.ops import COLLECTIVE, COMPUTE, Op
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


def pick(scene: Scene, choices: list) -> int:  # type: ignore[type-arg]
    if not choices:
        raise NotHere
    return int(scene.rng.integers(len(choices)))


def any_rank(scene: Scene) -> int:
    return int(scene.rng.integers(scene.layout.world))


def places_in(scene: Scene, rank: int, fits: Callable[[Op], bool]) -> list[int]:
    return [at for at, op in enumerate(scene.programs[rank]) if op.step == scene.step and fits(op)]


def place_in(scene: Scene, rank: int, fits: Callable[[Op], bool]) -> int:
    places = places_in(scene, rank, fits)
    return places[pick(scene, places)]


def is_plain(op: Op) -> bool:
    """A collective all of whose members pass the same shapes."""
    return op.kind == COLLECTIVE and op.name in ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast")


def any_rank_with(scene: Scene, fits: Callable[[Op], bool]) -> tuple[int, int]:
    ranks = [rank for rank in range(scene.layout.world) if places_in(scene, rank, fits)]
    rank = ranks[pick(scene, ranks)]
    return rank, place_in(scene, rank, fits)


def drop(program: list[Op], at: int) -> Op:
    """Takes a call out; the compute before it stays."""
    op = program.pop(at)
    for other in program:
        if op in other.waits:
            other.waits = [kept for kept in other.waits if kept is not op]
    if op.before:
        program.insert(at, Op(COMPUTE, op.site, op.step, before=op.before, host=20e-6))
    return op
