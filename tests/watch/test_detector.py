"""When a stall is called, on rings that are made up: who, how soon, and never in a healthy job."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from whichrank.watch.detector import FIRST, FLOOR, Detector, Passed, Seen, Stall

LOOK = 0.5


class Job:
    """Ranks in lockstep: each step's phases, then a collective that ends when the last one has come."""

    def __init__(self, world: int, phases: dict[str, float], jitter: float = 0.1, seed: int = 0) -> None:
        self.world, self.phases, self.jitter = world, phases, jitter
        self.random = random.Random(seed)
        self.extra: dict[tuple[int, int], tuple[str, float]] = {}  # (rank, step) -> (phase, seconds)

    def spans(self, steps: int) -> Iterator[tuple[int, list[list[tuple[str, float, float]]]]]:
        """Each step's (phase, from, to) of every rank."""
        now = 0.0
        for step in range(steps):
            rows, ends = [], []
            for rank in range(self.world):
                at, row = now, []
                for phase, seconds in self.phases.items():
                    lasts = seconds * self.random.lognormvariate(0, self.jitter)
                    row.append((phase, at, at + lasts))
                    at += lasts
                if (rank, step) in self.extra:
                    phase, seconds = self.extra[rank, step]
                    row.append((phase, at, at + seconds))
                    at += seconds
                rows.append(row)
                ends.append(at)
            now = max(ends) + 0.005
            for row, end in zip(rows, ends, strict=True):
                row.append(("collective", end, now))
            yield step, rows

    def watched(self, steps: int, detector: Detector | None = None) -> list[tuple[float, Stall | Passed]]:
        """What a detector tells, with the time."""
        detector = detector or Detector()
        told: list[tuple[float, Stall | Passed]] = []
        recent: list[dict[str, list[float]]] = [{} for _ in range(self.world)]
        look = LOOK
        for step, rows in self.spans(steps):
            end = rows[0][-1][2]
            while look < end:
                seen = []
                for rank, row in enumerate(rows):
                    place = next(index for index, (_, _, to) in enumerate(row) if look < to)
                    phase, since, _ = row[place]
                    past = {name: tuple(values[-512:]) for name, values in recent[rank].items()}
                    seen.append(Seen(rank, 100 + rank, step, phase, since, past, (step, place)))
                if (found := detector.look(seen, look)) is not None:
                    told.append((look, found))
                look += LOOK
            for rank, row in enumerate(rows):
                spent: dict[str, float] = {}
                for phase, since, to in row:
                    spent[phase] = spent.get(phase, 0) + to - since
                for phase in {*spent, *recent[rank]}:
                    recent[rank].setdefault(phase, []).append(spent.get(phase, 0.0))
                    del recent[rank][phase][:-512]
        return told


STEP = {"data": 0.02, "compute": 0.3, "optimizer": 0.02}


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("phase", ["data", "compute", "optimizer"])
def test_a_rank_that_stands_still_is_named_within_15_seconds(phase: str, scale: float) -> None:
    job = Job(4, {name: seconds * scale for name, seconds in STEP.items()})
    job.extra[2, 60] = (phase, 300.0)
    told = job.watched(61)
    at, stall = told[0]
    assert isinstance(stall, Stall)
    assert stall.ranks == (2,) and stall.phase == phase and stall.waiting == (0, 1, 3)
    assert at - stall.since <= 15
    assert [one for _, one in told[1:]] == []


def test_a_stall_that_passes_is_taken_back_and_is_history_then() -> None:
    job = Job(4, STEP)
    job.extra[1, 60] = ("data", 40.0)
    job.extra[1, 90] = ("data", 40.0)
    kinds = [(type(one).__name__) for _, one in job.watched(120)]
    assert kinds == ["Stall", "Passed"]


def test_the_first_of_a_kind_has_time() -> None:
    job = Job(4, STEP)
    for rank in range(4):
        job.extra[rank, 50] = ("evaluation", FIRST["evaluation"] - 10)
    job.extra[0, 70] = ("checkpoint", FIRST["checkpoint"] - 10)
    assert job.watched(90) == []


def test_a_checkpoint_may_last_as_long_as_those_before_it() -> None:
    job = Job(4, STEP)
    for step in (40, 80, 120):
        job.extra[0, step] = ("checkpoint", 30.0)
    job.extra[0, 160] = ("checkpoint", 400.0)
    (at, stall), *_ = job.watched(161)
    assert isinstance(stall, Stall) and stall.ranks == (0,) and stall.step == 160
    assert at - stall.since <= 4 * 30 + 2


def _waiting(now: float, **changes: object) -> list[Seen]:
    past = {"collective": (0.1,) * 50, "compute": (0.3,) * 50}
    return [Seen(rank, rank, 50, "collective", now, past, 7, **changes) for rank in range(4)]  # type: ignore[arg-type]


def test_where_all_wait_it_is_all() -> None:
    detector = Detector()
    found = [detector.look(_waiting(100.0), 100.0 + 0.5 * tick) for tick in range(60)]
    (stall,) = [one for one in found if one is not None]
    assert isinstance(stall, Stall) and stall.all_wait and stall.ranks == (0, 1, 2, 3)
    assert stall.noticed - 100 <= FLOOR + 1


def test_an_initialisation_that_never_ends() -> None:
    detector = Detector()
    ranks = [Seen(rank, rank, 0, "init", 100.0) for rank in range(4)]
    found = [one for tick in range(400) if (one := detector.look(ranks, 100.0 + 0.5 * tick)) is not None]
    assert isinstance(found[0], Stall) and found[0].all_wait and found[0].noticed - 100 <= FIRST["init"] + 1


def test_a_second_initialisation_has_time_as_well() -> None:
    """After a restart: that the first one took a second on each of many ranks says little."""
    detector = Detector()
    for tick in range(400):
        seconds = 0.5 * tick
        ranks = [Seen(rank, rank, 0, "init", 100.0) for rank in range(8)]
        if seconds > 2:
            ranks = [Seen(rank, 100 + rank, 0, "init", 102.0) for rank in range(8)]
        if seconds > 40:
            ranks = [Seen(rank, 100 + rank, 0, "compute", 140.0, at=tick) for rank in range(8)]
        assert detector.look(ranks, 100.0 + seconds) is None
        if seconds > 60:
            return


def test_who_is_in_the_backward_pass_waits_too() -> None:
    past = {"collective": (0.1,) * 50, "compute": (0.3,) * 50, "data": (0.01,) * 50}
    ranks = [Seen(rank, rank, 50, "compute", 100.0, past, 7, blocked=True) for rank in range(3)]
    ranks.append(Seen(3, 3, 50, "data", 100.0, past, 7))
    detector = Detector()
    found = [one for tick in range(60) if (one := detector.look(ranks, 100.0 + 0.5 * tick)) is not None]
    assert [one.ranks for one in found if isinstance(one, Stall)] == [(3,)]


def test_a_stopped_rank_is_no_victim() -> None:
    ranks = _waiting(100.0)
    ranks[1] = replace(ranks[1], state="T")
    detector = Detector()
    found = [one for tick in range(60) if (one := detector.look(ranks, 100.0 + 0.5 * tick)) is not None]
    assert [one.ranks for one in found if isinstance(one, Stall)] == [(1,)]


def test_the_watchers_own_sleep_is_nobodys_stall() -> None:
    """The whole job and its watcher were stopped for ten minutes (Ctrl-Z, a suspended machine)."""
    detector = Detector()
    assert detector.look(_waiting(100.0), 100.2) is None
    found = [detector.look(_waiting(100.0), 700.0 + 0.5 * tick) for tick in range(int(FLOOR))]
    assert found == [None] * len(found)


@pytest.mark.parametrize("timeout", [30.0, 300.0, 600.0])
def test_a_first_phase_is_noticed_within_a_tenth_of_the_timeout(timeout: float) -> None:
    ranks = [Seen(rank, rank, 0, "collective", 100.0, timeout=timeout) for rank in range(3)]
    ranks.append(Seen(3, 3, 0, "data", 100.0, timeout=timeout))
    detector = Detector()
    found = [one for tick in range(1000) if (one := detector.look(ranks, 100.0 + 0.5 * tick)) is not None]
    assert isinstance(found[0], Stall) and found[0].ranks == (3,)
    assert found[0].noticed - 100 <= max(15.0, timeout / 10) + 1


HEALTHY = {
    "even": (STEP, 0.05),
    "jitter": (STEP, 0.6),
    "heavy jitter": ({"data": 0.1, "compute": 0.5}, 1.0),
    "slow steps": ({"data": 0.5, "compute": 12.0, "optimizer": 0.5}, 0.2),
    "slow steps, jitter": ({"data": 2.0, "compute": 8.0}, 0.5),
}


@pytest.mark.parametrize("kind", HEALTHY)
@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_is_left_in_peace(kind: str, seed: int) -> None:
    phases, jitter = HEALTHY[kind]
    job = Job(4, phases, jitter, seed)
    for step in range(50, 600, 50):
        for rank in range(4):
            job.extra[rank, step] = ("evaluation", 20.0 + 10 * job.random.random())
    for step in range(70, 600, 100):
        job.extra[0, step] = ("checkpoint", 5.0 + 5 * job.random.random())
    assert job.watched(600) == []


class Growing(Job):
    def spans(self, steps: int) -> Iterator[tuple[int, list[list[tuple[str, float, float]]]]]:
        for step, rows in super().spans(steps):
            self.phases["compute"] *= 1.01
            yield step, rows


def test_lengths_that_grow() -> None:
    assert Growing(4, {"data": 0.02, "compute": 0.3}).watched(450) == []
