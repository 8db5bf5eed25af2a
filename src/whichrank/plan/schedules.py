"""Pipeline schedules: in which order each stage works, and an event simulator that says when.

A pass is F (forward), B (backward for inputs) or W (backward for weights). 1F1B and interleaved do B and W in one go,
in an order that is fixed beforehand (Narayanan et al. 2021; Megatron-Core 0.12 schedules.py). The zero-bubble family
(Qi et al. 2024, arXiv 2401.10241) keeps W apart and does it when nothing else can be done; here each stage chooses
as it goes, B before F before W, as far as its memory reaches.

Transfers: the older schedules wait for them (a stage is busy while it sends and receives) unless `overlap` is asked for
interleaved, the zero-bubble ones overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whichrank.errors import UsageProblem
from whichrank.plan import fixed_order, zero_bubble
from whichrank.plan.passes import Pass, Times

SCHEDULES = ("1f1b", "interleaved", "zb-1p", "zb-2p")
MOST_PASSES = 300_000  # of one simulated step: a few seconds


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated step. `seconds`: the longest that a stage is occupied, from its first pass to its last."""

    schedule: str
    passes: tuple[Pass, ...]
    seconds: float
    bubble: float  # share of that time in which the average stage does nothing useful
    held: tuple[float, ...]  # most microbatches whose activations each stage kept


def simulate(schedule: str, stages: int, microbatches: int, times: Times, chunks: int = 1) -> Run:
    """A step of `microbatches` over `stages`.

    Raises:
        UsageProblem: interleaving with microbatches that are no multiple of the stages.
    """
    if schedule in ("1f1b", "interleaved"):
        v = chunks if schedule == "interleaved" else 1
        if v > 1 and microbatches % stages:
            raise UsageProblem(
                f"interleaved: {microbatches} microbatches are no multiple of {stages} stages, as Megatron wants it"
            )
        if schedule == "1f1b":
            times = replace(times, overlap=False)  # Megatron overlaps transfers of the interleaved schedule only
        passes = fixed_order.run(stages, microbatches, times, v)
    else:
        limit = {"zb-1p": stages, "zb-2p": 2 * stages}.get(schedule)
        if limit is None:
            raise UsageProblem(f"no schedule {schedule!r}: {', '.join(SCHEDULES)}")
        passes = zero_bubble.run(stages, microbatches, times, limit)
    return _measured(schedule, passes, stages, microbatches, times)


def _measured(schedule: str, passes: list[Pass], stages: int, microbatches: int, times: Times) -> Run:
    by_stage: list[list[Pass]] = [[] for _ in range(stages)]
    for each in passes:
        by_stage[each.stage].append(each)
    longest = max(max(p.end for p in own) - min(p.start for p in own) for own in by_stage)
    scale = sum(times.stages) / stages if times.stages else 1.0
    useful = microbatches * times.work * scale
    parts = max(p.chunk for p in passes) + 1
    return Run(
        schedule, tuple(passes), longest, 1 - useful / longest, tuple(_held(own, parts, times.kept) for own in by_stage)
    )


def _held(own: list[Pass], parts: int, kept: float) -> float:
    """Most microbatches in memory: all of one from F to B, a part of it until W."""
    freed = {"B": 1 - kept, "W": kept, "BW": 1.0}
    changes = []
    for each in own:
        if each.kind == "F":
            changes.append((each.start, 1, 1.0 / parts))
        else:
            changes.append((each.end, 0, -freed[each.kind] / parts))
    now = most = 0.0
    for _, _, change in sorted(changes):
        now += change
        most = max(most, now)
    return round(most, 3)


def closed_form(schedule: str, stages: int, microbatches: int, times: Times, chunks: int = 1) -> float:
    """The textbook's bubble in units of ideal time (all of a stage's work): optimistic, the simulator says by how much.

    1F1B (p-1)/m, interleaved (p-1)/(v m), ZB-1p a third of 1F1B's where F, B and W take as long, ZB-2p none.
    """
    p, m = stages, microbatches
    if schedule == "interleaved":
        return (p - 1) / (chunks * m)
    if schedule == "zb-1p":
        return (p - 1) * max(0.0, times.forward + times.backward - times.weights) / (m * times.work)
    return 0.0 if schedule == "zb-2p" else (p - 1) / m
