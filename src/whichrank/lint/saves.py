"""Files that one rank writes while the others go on: a save between collectives, a file that is read too early."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.lint.diverge import Parting
from whichrank.lint.trace import WAITS_ARE_NONE, Branch, Call, Loop, Save, Step, Trace, calls, walk


def partings(trace: Trace) -> Iterator[Parting]:
    """trace: that of rank 0."""
    if any(isinstance(step, Save) and step.writes and step.guard is not None for step in walk(trace)):
        yield from _between(trace, False, False, set())
        yield from _read_early(trace)


def _waits(step: Step) -> bool:
    """A collective in which the others wait for the writer, in a place that one can see."""
    return isinstance(step, Call) and step.op not in WAITS_ARE_NONE and step.op != "log with sync_dist"


def _between(trace: Trace, looped: bool, synced: bool, seen: set[tuple[int, bool, bool]]) -> Iterator[Parting]:
    """Saves by one rank in a loop with collectives, after which the iteration has no call that waits for it."""
    if (id(trace), looped, synced) in seen:
        return
    seen.add((id(trace), looped, synced))
    for step in reversed(trace):
        if isinstance(step, Branch):
            yield from _between(step.then, looped, synced, seen)
            yield from _between(step.orelse, looped, synced, seen)
            synced = synced or _any_wait(step.then) or _any_wait(step.orelse)
        elif isinstance(step, Loop):
            active = any(True for _ in calls(step.body))
            yield from _between(step.body, looped or active, synced and not active, seen)
            synced = synced or _any_wait(step.body)
        elif isinstance(step, Save) and step.writes and step.torch and step.guard is not None:
            if looped and not synced:
                yield Parting("save-without-barrier", step.places[step.guard], why="between")
        else:
            synced = synced or _waits(step)


def _any_wait(trace: Trace) -> bool:
    return any(_waits(step) for step in calls(trace))


def _flat(trace: Trace, seen: set[int]) -> Iterator[Step]:
    """Every step in order; what follows both arms of a branch comes once."""
    for step in trace:
        if id(step) in seen:
            continue
        seen.add(id(step))
        yield step
        if isinstance(step, Branch):
            yield from _flat(step.then, seen)
            yield from _flat(step.orelse, seen)
        elif isinstance(step, Loop):
            yield from _flat(step.body, seen)


def _read_early(trace: Trace) -> Iterator[Parting]:
    """What one rank writes and all read, with no collective in between."""
    written: dict[object, Save] = {}
    for step in _flat(trace, set()):
        if _waits(step):
            written.clear()
        elif isinstance(step, Save) and step.writes and step.guard is not None:
            written[step.path] = step
        elif isinstance(step, Save) and not step.writes and step.guard is None and step.path in written:
            save = written.pop(step.path)
            assert save.guard is not None
            yield Parting("save-without-barrier", save.places[save.guard], why="read")
