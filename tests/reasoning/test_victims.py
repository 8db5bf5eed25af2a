"""Whoever reports the trouble is a victim until shown otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import GENERATIONS, LAYOUTS, Incident, named, surely_named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
every_generation = pytest.mark.parametrize("torch", GENERATIONS)


def silent_rank(layout: str, torch: str, *, silent: int = 5, first: int = 2, **more: object) -> Incident:
    """Seven ranks time out in step 131, one says nothing more after step 130; all logs are whole."""
    job = Incident(layout=layout, torch=torch, **more)  # type: ignore[arg-type]
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=131, but=[silent], first=first, apart=3.0)
    return job


@every_layout
@every_generation
def test_first_to_print_the_timeout_is_not_the_culprit(layout: str, torch: str, tmp_path: Path) -> None:
    verdict = silent_rank(layout, torch).verdict(tmp_path)

    assert named(verdict) == [5], told(verdict)
    assert set(verdict.victims) >= {0, 1, 2, 3, 4, 6, 7}


@every_layout
@every_generation
def test_root_cause_of_torchrun_with_sigabrt_is_a_victim(layout: str, torch: str, tmp_path: Path) -> None:
    job = silent_rank(layout, torch)
    job.exits(10 + 60 + 640, 2, -6)

    verdict = job.verdict(tmp_path)

    assert named(verdict) in ([5], []), told(verdict)
    assert verdict.cause not in ("exception", "killed"), told(verdict)


@every_layout
@every_generation
def test_root_cause_of_torchrun_is_not_the_rank_that_raised(layout: str, torch: str, tmp_path: Path) -> None:
    job = Incident(layout=layout, torch=torch)
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5], first=2)
    job.exits(end + 620, 2, -6, others=-6, hosts=["node-01"])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)


@every_layout
@pytest.mark.parametrize("torch", ["2.5", "2.7"])
def test_rank_with_an_empty_queue_is_the_prime_suspect(layout: str, torch: str, tmp_path: Path) -> None:
    job = silent_rank(layout, torch)
    job.idle_dump(10 + 60 + 640, 5, 130, fired=2)

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [5], told(verdict)
    assert verdict.rank_grade in ("likely", "proven"), told(verdict)


@every_layout
def test_who_asked_for_the_dump_is_not_the_culprit(layout: str, tmp_path: Path) -> None:
    """Everybody's queue holds the operation: the dump signal names who fired first, and no more."""
    job = Incident(layout=layout, torch="2.7")
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=131, first=2)
    for rank in job.others(2):
        job.raw(
            end + 605,
            job.file_of(rank),
            f"[rank{rank}]:[E{job.glog(end + 605)}000 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from  rank 2 "
            "and we will try our best to dump the debug info. Last enqueued NCCL work: 132, last completed NCCL work: 130.",
        )

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [], told(verdict)
    assert verdict.cause == "undecided", told(verdict)


def test_stuck_watchdog_prints_nonsense_that_dates_nothing(tmp_path: Path) -> None:
    """ "ran for 25624887 ms" would put the start of the wait hours before the first step."""
    job = silent_rank("per-rank", "2.7")
    job.raw(
        10 + 60 + 603,
        job.file_of(1),
        f"[rank1]:[E{job.glog(673)}000 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: {job.work(131, 'ALLREDUCE', 12851200, 600000)} ran for 25624887 milliseconds before timing out.",
    )

    report = job.report(tmp_path)

    assert named(report.verdicts[0]) == [5], told(report.verdicts[0])
    assert all(moment.at is None or moment.at >= "2026-11-30T05:00:00Z" for moment in report.timeline)
    assert report.summary.at is None or report.summary.at >= "2026-11-30T05:00:00Z"


@every_layout
@every_generation
def test_everyone_waited_and_nothing_else_is_undecided(layout: str, torch: str, tmp_path: Path) -> None:
    job = Incident(layout=layout, torch=torch)
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=131)
    job.exits(end + 640, 2, -6)

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "undecided", told(verdict)
    assert named(verdict) == [], told(verdict)
    assert verdict.hosts == (), told(verdict)


@every_generation
def test_one_line_only_is_undecided(torch: str, tmp_path: Path) -> None:
    job = Incident(torch=torch, layout="merged")
    job.time_out(600, seq=131, ranks=[3])
    job.entries = [entry for entry in job.entries if "Watchdog caught" in entry.text][:1]

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "undecided", told(verdict)
    assert named(verdict) == [], told(verdict)
    assert verdict.action.do == "needs_human", told(verdict)


# --- ranks inside groups ---


def subgroup(layout: str, torch: str) -> Incident:
    """Global ranks 4-7 form the group mesh_dp; 5 (its rank 1) is missing. Ranks 0-3 are in the other half and are not heard of again."""
    job = Incident(layout=layout, torch=torch)
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=262, ranks=[4, 6, 7], group="mesh_dp", group_id=3, members=[4, 5, 6, 7])
    return job


@every_layout
@pytest.mark.parametrize("torch", ["2.3", "2.5", "2.7"])
def test_rank_in_brackets_is_the_rank_in_that_group(layout: str, torch: str, tmp_path: Path) -> None:
    verdict = subgroup(layout, torch).verdict(tmp_path)

    assert set(named(verdict)) <= {5}, told(verdict)
    assert {4, 6, 7} <= set(verdict.victims), told(verdict)
    assert not {0, 2, 3} & set(verdict.victims), told(verdict)


@pytest.mark.parametrize("layout", ["per-rank"])
def test_rank_in_brackets_of_an_unlabelled_line_is_the_files_rank(layout: str, tmp_path: Path) -> None:
    """A file of one rank: the file says who speaks, the bracket which place it has in the group."""
    job = Incident(layout=layout, torch="2.1")
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=262, ranks=[4, 6, 7], members=[4, 5, 6, 7])

    verdict = job.verdict(tmp_path)

    assert not {0, 2, 3} & set(verdict.victims), told(verdict)
    assert {4, 6, 7} <= set(verdict.victims), told(verdict)
    assert not set(named(verdict)) & {4, 6, 7}, told(verdict)


@every_layout
def test_members_of_other_groups_are_not_absent(layout: str, tmp_path: Path) -> None:
    """Ranks 0-3 wait in their own group for the same reason: nobody of them is missing there, and 5 is the only one silent."""
    job = Incident(layout=layout, torch="2.7")
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=262, ranks=[4, 6, 7], group="mesh_dp", group_id=3, members=[4, 5, 6, 7])
    job.time_out(end + 604, seq=61, ranks=[0, 1, 2, 3], group="mesh_tp", group_id=2, members=[0, 1, 2, 3])

    verdict = job.verdict(tmp_path)

    assert set(named(verdict)) <= {5}, told(verdict)
    assert not verdict.cause.startswith("desync"), told(verdict)


def test_local_rank_of_torchrun_is_not_the_global_rank(tmp_path: Path) -> None:
    """ "[default1]:" on the second host is rank 5."""
    job = Incident(layout="per-node", torch="2.7")
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, 5)
    job.entries = [entry for entry in job.entries if "[rank5]: " not in entry.text] + [
        type(entry)(entry.at, entry.file, entry.text.replace("[rank5]: ", "[default1]:"))
        for entry in job.entries
        if "[rank5]: " in entry.text
    ]
    job.time_out(end + 602, seq=131, but=[5])
    job.exits(end + 20, 5, 1, hosts=["node-02"])

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "exception", told(verdict)
    assert named(verdict) == [5], told(verdict)
    assert surely_named(verdict) != [1]
