"""From what all nodes say of their ranks: does one hold the others up? Pure: as detector.py, but for a job of several nodes.

A node by itself sees a rank that outlives what its own past allows, or that all of its ranks wait. The former holds for the
job; the latter only where no rank of another node is at work. Who waits for a rank at work is told nothing before
that one has outlived what its past allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whichrank.watch.exchange import WANTED
from whichrank.watch.heads import Heard
from whichrank.watch.states import NodeStall, RankState

ENDING = ("teardown",)


@dataclass(frozen=True, slots=True)
class Judged:
    """since: wall clock. silent: nodes (their hosts) that gave no answer. nobody: no rank of the job is stuck."""

    stall: NodeStall | None
    hosts: tuple[str, ...] = ()  # of the ranks that hold the others up
    silent: tuple[str, ...] = ()


def judge(heard: Sequence[Heard], silent: Iterable[int] = ()) -> Judged:
    """`heard`: all nodes, our own among them; `silent`: numbers of those that did not answer the last question."""
    quiet = frozenset(silent)
    names = tuple(sorted({one.state.host for one in heard if one.number in quiet}))
    fresh = [one for one in heard if one.number not in quiet and not one.state.over]
    ranks = [rank for one in fresh for rank in one.state.ranks]
    waiting = tuple(sorted(rank.rank for rank in ranks if rank.waits))
    certain = [one for one in fresh if one.state.stall is not None and not one.state.stall.all_wait]
    if certain:
        return Judged(
            _together([one.state.stall for one in certain if one.state.stall], waiting), _hosts(certain), names
        )
    if not any(one.state.stall for one in fresh) or not ranks:
        return Judged(None, (), names)
    at_work = [rank for rank in ranks if not rank.waits]
    slow = [rank for rank in at_work if rank.over]
    if slow:
        hosts = _hosts(one for one in fresh if any(rank in slow for rank in one.state.ranks))
        return Judged(_of(slow, waiting), hosts, names)
    if at_work:
        return Judged(None, (), names)
    return Judged(_all_wait(ranks, waiting), (), names)


def _hosts(heard: Iterable[Heard]) -> tuple[str, ...]:
    return tuple(sorted({one.state.host for one in heard}))


def _together(stalls: Sequence[NodeStall], waiting: tuple[int, ...]) -> NodeStall:
    first = min(stalls, key=lambda stall: stall.since)
    ranks = tuple(sorted({rank for stall in stalls for rank in stall.ranks}))
    others = tuple(sorted({*waiting, *(rank for stall in stalls for rank in stall.waiting)} - set(ranks)))
    return NodeStall(ranks, first.phase, max(stall.since for stall in stalls), first.step, others, False)


def _of(slow: Sequence[RankState], waiting: tuple[int, ...]) -> NodeStall:
    first = min(slow, key=lambda rank: rank.since)
    phase = "stopped" if all(rank.stopped for rank in slow) else first.phase
    ranks = tuple(sorted(rank.rank for rank in slow))
    return NodeStall(ranks, phase, max(rank.since for rank in slow), first.step, waiting, False)


def _all_wait(ranks: Sequence[RankState], waiting: tuple[int, ...]) -> NodeStall:
    last = max(ranks, key=lambda rank: rank.since)
    phase = min(ranks, key=lambda rank: rank.since).phase
    return NodeStall(waiting, phase, last.since, min(rank.step for rank in ranks), waiting, True)


def wanted(heard: Sequence[Heard]) -> tuple[int, ...]:
    """Whose evidence tells most: nodes with a rank that holds others up or died, then those with one that does not wait,
    then whoever waits longest behind or stands at another call than most."""
    places: dict[object, int] = {}
    for one in heard:
        for rank in one.state.ranks:
            place = (rank.group, rank.seq, rank.op)
            places[place] = places.get(place, 0) + 1
    common = max(places, key=lambda place: places[place], default=None)

    def weight(one: Heard) -> tuple[int, int]:
        state = one.state
        if (state.stall is not None and not state.stall.all_wait) or any(
            rank.over and not rank.waits for rank in state.ranks
        ):
            return 0, one.number
        if state.ended:
            return 1, one.number
        if any(not rank.waits for rank in state.ranks):
            return 2, one.number
        odd = any((rank.group, rank.seq, rank.op) != common for rank in state.ranks)
        return (3 if odd else 4), one.number

    others = sorted((one for one in heard if not one.ours and not one.state.over), key=weight)
    return tuple(one.number for one in others)[:WANTED]
