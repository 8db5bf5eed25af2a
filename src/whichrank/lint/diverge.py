"""Where two ways part: two ranks' traces of one function, or the two arms of a branch that is each rank's own to take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from whichrank.lint.names import BARRIERS
from whichrank.lint.trace import (
    LEAVES_LOOP,
    WEAK,
    Branch,
    Call,
    Exit,
    Loop,
    Place,
    Step,
    Stop,
    Swallow,
    Trace,
    calls,
    may_leave,
    walk,
)  # fmt: skip
from whichrank.lint.values import ITS_RANK, PART

STEPS = 20_000  # compared for one pair of traces; what takes more is left undecided


@dataclass(frozen=True, slots=True)
class Parting:
    """kind: as a rule's name. place: where to report it. name: the call that not all come to."""

    kind: str
    place: Place
    name: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Difference:
    first: Step | None  # None: the end
    second: Step | None
    left: Exit | None = None  # the early way out on the side that is at its end


class _Comparison:
    """groups: the kinds of groups that both ways are members of. weak: a DDP model's forward counts."""

    def __init__(self, groups: frozenset[str] | None, *, weak: bool) -> None:
        self.groups, self.weak, self.left = groups, weak, STEPS
        self.known: dict[tuple[int, bool], bool] = {}  # whether a step of the traces counts; they outlive this

    def difference(self, one: Trace, other: Trace, *, looped: bool = False) -> _Difference | None:
        """The first step in which two traces differ; None where they may be alike."""
        seen_one: list[Exit] = []
        seen_other: list[Exit] = []
        while True:
            self.left -= 1
            if self.left < 0:
                return None
            one, other = self._next(one, looped, seen_one), self._next(other, looped, seen_other)
            if one is other:
                return None
            if not one or not other:
                return self._ended(one, other, seen_one, seen_other, looped)
            a, b = one[0], other[0]
            if isinstance(a, Branch) and isinstance(b, Branch):
                # What follows a branch that may leave stands in its arms already.
                inside = may_leave((a,)) or may_leave((b,))
                found = self._pairs(a, b, (one[1:], other[1:]) if inside else ((), ()), looped)
                if found and a.place != b.place and self._arms(a, one[1:], other, looped) is None:
                    return None
                if found or inside:
                    return found
            elif isinstance(a, Branch):
                return self._arms(a, one[1:], other, looped)
            elif isinstance(b, Branch):
                found = self._arms(b, other[1:], one, looped)
                return found and _Difference(found.second, found.first, found.left)
            elif isinstance(a, Loop) and isinstance(b, Loop):
                if found := self.difference(a.body, b.body, looped=True):
                    return found
            elif not _alike(a, b):
                return _Difference(a, b)
            one, other = one[1:], other[1:]

    def _pairs(self, a: Branch, b: Branch, rests: tuple[Trace, Trace], looped: bool) -> _Difference | None:
        for one, other in ((a.then, b.then), (a.orelse, b.orelse)):
            if found := self.difference(_on(one, rests[0]), _on(other, rests[1]), looped=looped):
                return found
        return None

    def _arms(self, branch: Branch, rest: Trace, other: Trace, looped: bool) -> _Difference | None:
        for arm in (branch.then, branch.orelse):
            if found := self.difference(_on(arm, rest), other, looped=looped):
                return found
        return None

    def _next(self, trace: Trace, looped: bool, seen: list[Exit]) -> Trace:
        """From the next step on that counts; ways out passed by are kept."""
        while trace:
            step = trace[0]
            if isinstance(step, Call) and self._counts(step):
                return trace
            if isinstance(step, Exit):
                if looped and step.kind in LEAVES_LOOP:
                    return trace
                seen.append(step)
            elif isinstance(step, Loop) and any(self._counts(call) for call in calls(step.body, weak=True)):
                return trace
            elif isinstance(step, Branch):
                if self._branch_counts(step, looped):
                    return trace
                ways_out = [each for each in walk((step,)) if isinstance(each, Exit)]
                seen += sorted(ways_out, key=lambda each: each.kind != "raise")
            trace = trace[1:]
        return trace

    def _counts(self, call: Call) -> bool:
        if not self.weak and call.op in WEAK:
            return False
        return self.groups is None or call.group in self.groups

    def _branch_counts(self, branch: Branch, looped: bool) -> bool:
        key = (id(branch), looped)
        if key not in self.known:
            self.known[key] = self._has_counting(branch, looped)
        return self.known[key]

    def _has_counting(self, branch: Branch, looped: bool) -> bool:
        for step in walk((branch,)):
            if isinstance(step, Call) and self._counts(step):
                return True
            if isinstance(step, Exit) and looped and step.kind in LEAVES_LOOP:
                return True
        return False

    def _ended(
        self, one: Trace, other: Trace, seen_one: list[Exit], seen_other: list[Exit], looped: bool
    ) -> _Difference | None:
        if not one and not other:
            return None
        rest, seen = (one, seen_other) if one else (other, seen_one)
        left = seen[-1] if seen else None
        step = rest[0]
        if isinstance(step, Branch):
            # One arm of it at least goes on where the other way is at its end.
            found = self._arms(step, rest[1:], (), looped)
            if found is None:
                return None
            left = left or found.left
            step = found.first or found.second or step
        elif isinstance(step, Loop):
            step = next((call for call in calls(step.body, weak=True) if self._counts(call)), step)
        return _Difference(step, None, left) if one else _Difference(None, step, left)


def _on(arm: Trace, rest: Trace) -> Trace:
    return arm if not rest or may_leave(arm) else arm + rest


def _alike(a: Step, b: Step) -> bool:
    if isinstance(a, Call) and isinstance(b, Call):
        return a.op == b.op and (a.detail is None or b.detail is None or a.detail == b.detail)
    if isinstance(a, Exit) and isinstance(b, Exit):
        return a.kind == b.kind
    return False


def by_rank(one: Trace, other: Trace, groups: frozenset[str]) -> Iterator[Parting]:
    """Where two ranks' traces of one function part."""
    difference = _Comparison(groups, weak=True).difference(one, other)
    if difference is None:
        return
    found = [call for step in (difference.first, difference.second) for call in _first_calls(step)]
    call = next((step for step in found if step.guard is not None), found[0] if found else None)
    if (step := _way_out(difference, call)) is not None:
        if step.kind != "raise":
            yield Parting("exit-before-collective", _place(step), step.kind.replace("returned", "return"), ITS_RANK)
        return
    if call is None:
        return
    direct = call.guard is None or call.guard == len(call.places) - 1
    barrier = call.op in BARRIERS and direct
    yield Parting("barrier-under-rank" if barrier else "collective-under-rank", _place(call), call.name, "its rank")


def _first_calls(step: Step | None) -> list[Call]:
    if isinstance(step, Loop):
        return list(calls(step.body, weak=True))[:1]
    return [step] if isinstance(step, Call) else []


def _way_out(difference: _Difference, call: Call | None) -> Exit | None:
    """The exit that makes two ranks part: under a condition on the rank, or before what the other rank goes on to."""
    exits = [step for step in (difference.first, difference.second, difference.left) if isinstance(step, Exit)]
    for step in exits:
        if step.guard is not None and (call is None or call.guard is None or step is not difference.left):
            return step
    if call is not None and call.guard is not None:
        return None
    for step in exits:
        if step is not difference.left or (
            call is not None and len(step.places) == 1 and step.places < call.places[:1]
        ):
            return step
    return None


def _place(step: Call | Exit) -> Place:
    if step.guard is not None and step.guard < len(step.places):
        return step.places[step.guard]
    return step.places[-1 if isinstance(step, Call) and step.detail is not None else 0]


def by_data(trace: Trace) -> Iterator[Parting]:
    """Where each rank chooses its way by something of its own."""
    yield from _by_data(trace, (), False, set())


def _by_data(trace: Trace, around: tuple[Loop, ...], looped: bool, seen: set[int]) -> Iterator[Parting]:
    for step in trace:
        if id(step) in seen:
            continue
        seen.add(id(step))
        if isinstance(step, Swallow):
            yield Parting("exception-skips-collective", step.places[0], step.name)
        elif isinstance(step, Stop):
            yield Parting("exit-before-collective", step.places[-1], step.name, step.why)
        elif isinstance(step, Loop):
            yield from _loop(step)
            active = looped or any(True for _ in calls(step.body))
            yield from _by_data(step.body, (*around, step), active, seen)
        elif isinstance(step, Branch):
            if step.why and (parting := _own_branch(step, looped)):
                yield parting
            yield from _by_data(step.then, around, looped, seen)
            yield from _by_data(step.orelse, around, looped, seen)


def _loop(loop: Loop) -> Iterator[Parting]:
    call = next(iter(calls(loop.body)), None)
    if call is None:
        return
    if loop.uneven:
        yield Parting("uneven-batches", loop.place, call.name)
    elif loop.why:
        yield Parting("collective-under-data", call.places[min(loop.frame, len(call.places) - 1)], call.name, loop.why)


def _own_branch(branch: Branch, looped: bool) -> Parting | None:
    ranked = branch.why == ITS_RANK
    groups = frozenset({"world"}) if ranked else None
    difference = _Comparison(groups, weak=ranked).difference(branch.then, branch.orelse, looped=looped)
    if difference is None:
        return None
    steps = (difference.left, difference.first, difference.second)
    exits = [step for step in steps if isinstance(step, Exit)]
    name = next((step.name for step in steps if isinstance(step, Call)), "")
    if branch.handler:
        return Parting("exception-skips-collective", branch.place, name)
    if exits:
        step = exits[0]
        if branch.why == PART:
            return Parting(
                "uneven-batches", step.places[min(branch.frame, len(step.places) - 1)], name or "a collective"
            )
        if step.kind in ("raise", "exit") and branch.why != "its batch":
            return None
        place = step.places[min(branch.frame, len(step.places) - 1)]
        return Parting("exit-before-collective", place, step.kind.replace("returned", "return"), branch.why or "")
    call = next((step for step in steps if isinstance(step, Call)), None)
    if call is None:
        return None
    if ranked:
        kind = (
            "barrier-under-rank"
            if call.op in BARRIERS and branch.frame == len(call.places) - 1
            else "collective-under-rank"
        )
        return Parting(kind, call.places[min(branch.frame, len(call.places) - 1)], call.name, ITS_RANK)
    return Parting(
        "collective-under-data", call.places[min(branch.frame, len(call.places) - 1)], call.name, branch.why or ""
    )
