"""What must not change the answer: the order of files, names, the numbering of ranks, clocks, how much a ring holds."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from incident import SURE, named
from recorded import VERSIONS, Group, Job

from whichrank.diagnosis import diagnose
from whichrank.model import Verdict

WORLD_SIZE = 8
FAULTS = ("absent", "absent behind groups", "gpu", "size", "skip", "order", "dead", "met", "ended")
few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
faults = st.sampled_from(FAULTS)
seats = st.permutations(range(WORLD_SIZE))


def story(fault: str, seat: list[int] | tuple[int, ...] = tuple(range(WORLD_SIZE)), version: str = "2.10") -> Job:
    """A fault of the rank in the third seat. seat: which rank sits in each place of the groups."""
    job = Job(WORLD_SIZE, version=version)
    job.groups = {key: Group(group.number, group.desc, tuple(sorted(group.ranks))) for key, group in job.groups.items()}
    for number in range(4):
        job.group(f"tp{number}", sorted(seat[2 * number : 2 * number + 2]), "tensor")
    for number in range(2):
        job.group(f"dp{number}", sorted(seat[number::2]), "data")
    job.call("broadcast", at="train.py:5")
    job.steps(8)
    culprit, partner = seat[2], seat[3]
    others = [rank for rank in range(WORLD_SIZE) if rank != culprit]
    if fault == "absent behind groups":
        for number in range(4):
            job.call("all_reduce", f"tp{number}", but=[culprit], ended=number != 1, at="layers.py:41")
        for number in range(2):
            job.call("all_reduce", f"dp{number}", but=[culprit, partner], ended=False)
        return job
    if fault == "gpu":
        job.call("all_reduce", ended=others)
    if fault == "size":
        job.call("all_reduce", only=[culprit], sizes=[[999]], ended=False)
    if fault == "skip":
        job.call("all_gather", but=[culprit], ended=False, at="train.py:91")
        job.call("all_reduce", only=[culprit], ended=False)
        return job
    if fault == "order":
        group = "dp0" if culprit in job.groups["dp0"].ranks else "dp1"
        job.call("all_reduce", group, only=[culprit], ended=False)
    if fault != "ended":
        came = fault in ("gpu", "met")
        job.call("all_reduce", but=() if came else [culprit], ended=False)
    return job


def answer(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.mechanism, verdict.cause, named(verdict), verdict.rank_grade, verdict.seq, verdict.op)


def culprit_file(fault: str, rank: int) -> list[int]:
    return [rank] if fault == "dead" else []


@few
@given(fault=faults, order=seats, version=st.sampled_from(VERSIONS))
def test_the_order_of_files_does_not_matter(fault: str, order: list[int], version: str) -> None:
    job = story(fault, version=version)
    with tempfile.TemporaryDirectory() as folder:
        without = culprit_file(fault, 2)
        first = diagnose(job.write(Path(folder), but=without))
        second = diagnose(job.write(Path(folder), but=without, order=order))
    assert answer(first.verdicts[0]) == answer(second.verdicts[0])


@few
@given(fault=faults, names=st.permutations([str(number) for number in range(7)]), desc=st.sampled_from(["", "x_"]))
def test_other_names_of_the_groups_do_not_matter(fault: str, names: list[str], desc: str) -> None:
    class Renamed(Group):
        @property
        def name(self) -> str:
            return "mesh_" + names[self.number]

    plain, renamed = story(fault), story(fault)
    renamed.groups = {key: Renamed(g.number, desc + g.desc, g.ranks) for key, g in renamed.groups.items()}
    with tempfile.TemporaryDirectory() as folder:
        without = culprit_file(fault, 2)
        first = diagnose(plain.write(Path(folder), but=without))
        second = diagnose(renamed.write(Path(folder), but=without))
    assert answer(first.verdicts[0]) == answer(second.verdicts[0])


@few
@given(fault=faults, seat=seats)
def test_other_numbers_of_the_ranks_permute_the_answer(fault: str, seat: list[int]) -> None:
    plain, moved = story(fault), story(fault, seat)
    with tempfile.TemporaryDirectory() as folder:
        first = diagnose(plain.write(Path(folder), but=culprit_file(fault, 2))).verdicts[0]
        second = diagnose(moved.write(Path(folder), but=culprit_file(fault, seat[2]))).verdicts[0]
    assert (first.mechanism, first.cause) == (second.mechanism, second.cause)
    assert sorted(seat[rank] for rank in named(first)) == named(second)
    # All waiting for rank 0 alone, as at each of its checkpoints, is the one case in which the number tells something.
    assert first.rank_grade == second.rank_grade or (named(second) == [0] and second.rank_grade == "possible")


@few
@given(fault=faults, clocks=st.lists(st.floats(-5, 5, allow_nan=False), min_size=WORLD_SIZE, max_size=WORLD_SIZE))
def test_clocks_that_are_off_by_seconds_do_not_matter(fault: str, clocks: list[float]) -> None:
    job = story(fault)
    with tempfile.TemporaryDirectory() as folder:
        without = culprit_file(fault, 2)
        first = diagnose(job.write(Path(folder), but=without))
        second = diagnose(job.write(Path(folder), but=without, clocks=clocks))
    assert answer(first.verdicts[0]) == answer(second.verdicts[0])


@few
@given(fault=faults, rings=st.lists(st.integers(1, 40), min_size=WORLD_SIZE, max_size=WORLD_SIZE))
def test_what_rings_lost_makes_no_innocent_rank_a_culprit(fault: str, rings: list[int]) -> None:
    job = story(fault)
    with tempfile.TemporaryDirectory() as folder:
        paths = job.write(Path(folder), but=culprit_file(fault, 2))
        for rank, path in zip([r for r in range(WORLD_SIZE) if r not in culprit_file(fault, 2)], paths, strict=True):
            Path(path).write_bytes(job.dump(rank, ring=rings[rank]))
        verdict = diagnose(paths).verdicts[0]
    if verdict.rank_grade in SURE:
        assert set(named(verdict)) <= {2}, (verdict.mechanism, named(verdict), verdict.rank_confidence)
    if fault == "ended":
        assert verdict.mechanism == "no_hang"


@few
@given(fault=faults, lost=st.sets(st.integers(0, WORLD_SIZE - 1), max_size=3))
def test_dumps_that_were_lost_make_no_innocent_rank_a_sure_culprit(fault: str, lost: set[int]) -> None:
    job = story(fault)
    with tempfile.TemporaryDirectory() as folder:
        paths = job.write(Path(folder), but=lost | set(culprit_file(fault, 2)))
        verdict = diagnose(paths).verdicts[0]
    if verdict.rank_grade in SURE:
        assert set(named(verdict)) <= {2}, (verdict.mechanism, named(verdict), verdict.rank_confidence)
