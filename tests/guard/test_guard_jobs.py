"""Small trainings on gloo that hang, or end wrongly, and the same with a guard, which end at once, or rightly.

WHICHRANK_TORCH_PYTHON names an interpreter with torch, where the one that runs the tests has none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from guarding import PYTHON, Ended, alone, torchrun

pytestmark = pytest.mark.skipif(not PYTHON, reason="torch is not installed: these jobs are real")
JOB = Path(__file__).with_name("guarded_job.py")
HANGS = 6.0  # seconds after which a job that should have ended long ago hangs (its own limit is 100 s)


def hangs(what: str, *words: str, world: int = 3, until: str) -> Ended:
    ended = torchrun(JOB, what, "plain", *words, world=world, wait=HANGS, until=until)
    assert ended.code is None, ended.out
    return ended


def kinds(ended: Ended) -> dict[int, str]:
    return {rank: line["kind"] for rank, line in ended.said("raised").items()}


# ---- what ends badly without a guard


def test_one_rank_that_stops_early() -> None:
    hangs("stop", until='"step": 5')
    guarded = torchrun(JOB, "stop", "guarded")
    assert guarded.code == 0, guarded.out
    assert {line["steps"] for line in guarded.said("end").values()} == {5}
    assert len(guarded.said("end")) == 3


def test_long_work_of_rank_zero() -> None:
    plain = torchrun(JOB, "work", "plain")
    assert plain.code == 1 and not plain.said("end")
    assert "Timed out waiting 3000ms" in plain.out or "Connection closed" in plain.out
    guarded = torchrun(JOB, "work", "guarded")
    assert guarded.code == 0, guarded.out
    assert [line["found"] for line in guarded.said("end").values()] == ["index-17"] * 3


def test_rank_zero_first_then_the_others(tmp_path: Path) -> None:
    plain = torchrun(JOB, "first", "plain", str(tmp_path / "plain"))
    assert plain.code == 1 and len(plain.said("end")) < 3
    guarded = torchrun(JOB, "first", "guarded", str(tmp_path / "guarded"))
    assert guarded.code == 0, guarded.out
    assert [line["got"] for line in guarded.said("end").values()] == ["made by 0\n"] * 3


def test_one_rank_raises_and_its_process_stays() -> None:
    """Others wait in a collective with it, in one without it, and in none."""
    hangs("error", world=4, until='"trains"')
    guarded = torchrun(JOB, "error", "guarded", world=4)
    assert guarded.code == 1
    assert guarded.seconds < 40
    assert "ValueError: bad batch 17" in guarded.out
    for rank in (0, 1, 3):
        assert f"rank {rank}: rank 2 failed: this one ends its work, too" in guarded.out


def test_every_rank_ends_with_the_first_ones_traceback() -> None:
    ended = alone(JOB, "error", "guarded", world=4, wait=45)
    assert ended.code is None  # rank 2's own thread keeps it, as without a guard
    for rank in (0, 1, 3):
        told = [line for line in ended.out.splitlines() if line.startswith(f"[rank{rank}]:")]
        if rank != 1:  # KeyboardInterrupt and gloo's errors are not shown
            assert told, ended.out
        assert not any("KeyboardInterrupt" in line and "seen here" not in line for line in told)
    assert ended.out.count("PeerFailed: rank 2 ") == 3
    assert ended.out.count("raise ValueError(") == 4
    assert ended.out.count("ValueError: bad batch 17") == 4


def test_a_rank_that_nothing_reaches_is_ended() -> None:
    ended = alone(JOB, "deaf", "guarded", world=2)
    assert ended.code == 1 and ended.seconds < 40
    assert "rank 0: did not come out of what it does within 2 s, and ends now" in ended.out
    assert ended.out.count("ValueError: bad batch 17") == 2


def test_a_rank_that_fails_as_the_group_is_made() -> None:
    ended = torchrun(JOB, "begin", "guarded")
    assert ended.code == 1 and ended.seconds < 40
    assert "Distributed package doesn't have NCCL built in" in ended.out
    assert "rank 0: rank 1 failed" in ended.out and "rank 2: rank 1 failed" in ended.out
    assert "rank      : 1 (local_rank: 1)" in ended.out.partition("Root Cause")[2]  # torchrun names the right one


@pytest.mark.parametrize("why", ["differ", "work"])
def test_who_only_heard_of_a_failure_is_not_called_the_first(why: str) -> None:
    ended = alone(JOB, "alike", "guarded", why)
    assert ended.code == 1
    assert ended.out.count("errors.RanksDiffer: ") == (3 if why == "differ" else 0)
    assert ended.out.count("errors.PeerFailed: rank 0 ") == (0 if why == "differ" else 2)
    assert "rank 1 (" not in ended.out and "rank 2 (" not in ended.out


def test_one_long_operation() -> None:
    plain = torchrun(JOB, "late", "plain", world=2)
    assert plain.code == 1 and "Timed out waiting 3000ms" in plain.out
    guarded = torchrun(JOB, "late", "guarded", world=2)
    assert len(guarded.said("passed")) == 2, guarded.out
    assert guarded.code == 1 and "Timed out waiting 3000ms" in guarded.out  # the old limit is back


def test_uneven_shards() -> None:
    hangs("uneven", until='"epoch"')
    guarded = torchrun(JOB, "uneven", "guarded")
    assert guarded.code == 0, guarded.out
    assert [line["batches"] for line in guarded.said("end").values()] == [5, 5, 5]
    for line in guarded.said("raised").values():
        assert (line["kind"], line["ranks"]) == ("RanksDiffer", [2])
        assert "ranks 0-1: 5; rank 2: 6" in line["text"]
        assert line["seconds"] < 5


def test_different_configurations() -> None:
    plain = torchrun(JOB, "config", "plain", wait=HANGS, until='"begins"')
    assert plain.code != 0 or plain.said("end").keys() != {0, 1, 2}
    guarded = torchrun(JOB, "config", "guarded")
    assert guarded.code == 0, guarded.out
    for rank in range(3):
        settings, model = guarded.all_said("raised", rank)
        assert settings["ranks"] == model["ranks"] == [1]
        assert "width: 4 on ranks 0, 2; 8 on rank 1" in settings["text"] and "lr" not in settings["text"]
        assert "0.weight: parameter 0: float32 [4, 4], trained on ranks 0, 2" in model["text"]
    assert len(guarded.said("returned")) == 3


# ---- how guards fail


@pytest.mark.parametrize("met", ["met", "new"])
def test_a_rank_that_has_ended_is_named(met: str) -> None:
    """At once where the guards have met before; where they have not, after their time."""
    ended = alone(JOB, "dead", "guarded", "1", met)
    assert kinds(ended) == {0: "RanksMissing", 2: "RanksMissing"}, ended.out
    for line in ended.said("raised").values():
        assert line["ranks"] == [1]
        assert line["seconds"] < (5.5 if met == "met" else 12)
        assert "Next: " in line["text"]


@pytest.mark.parametrize("met", ["met", "new"])
def test_the_rank_that_kept_the_store_has_ended(met: str) -> None:
    ended = alone(JOB, "dead", "guarded", "0", met)
    assert kinds(ended) == {1: "GuardError", 2: "GuardError"}, ended.out
    for line in ended.said("raised").values():
        assert "the process that kept it" in line["text"] and line["seconds"] < 20


def test_a_rank_that_comes_late() -> None:
    ended = alone(JOB, "behind", "guarded")
    first, second = ({rank: ended.all_said("raised", rank)[number] for rank in range(3)} for number in (0, 1))
    assert [first[rank]["kind"] for rank in range(3)] == ["RanksMissing", "RanksMissing", "GuardError"]
    assert "rank 2 did not come within 4 s; the other 2 are there" in first[0]["text"]
    assert "this rank came too late" in first[2]["text"]
    assert all("nothing can be agreed on" in line["text"] and line["seconds"] < 1 for line in second.values())


def test_ranks_that_came_for_different_things() -> None:
    ended = torchrun(JOB, "mixed", "guarded")
    assert ended.code == 0, ended.out
    for rank in range(3):
        other, name, work = ended.all_said("raised", rank)
        assert other["kind"] == name["kind"] == work["kind"] == "RanksDiffer"
        assert (other["ranks"], name["ranks"], work["ranks"]) == ([1], [0], [1])
        assert "rank 1 in check_shards() at guarded_job.py:" in other["text"]
    assert all(line["value"] is True for line in ended.said("returned").values())  # and go on


def test_rank_zero_fails_in_its_work_or_another_one_in_its_turn() -> None:
    ended = torchrun(JOB, "broke", "guarded")
    assert ended.code == 0, ended.out
    assert {rank: line["text"] for rank, line in ended.said("own").items()} == {0: "bad batch 17", 1: "bad batch 17"}
    told = [line["text"] for line in ended.lines() if line["what"] == "raised" and line["kind"] == "PeerFailed"]
    assert len([text for text in told if text.startswith("rank 0 ") and "ValueError: bad batch 17" in text]) == 2
    assert len([text for text in told if text.startswith("rank 1 ") and "ValueError: bad batch 17" in text]) == 2
    assert len([text for text in told if "cannot be pickled" in text]) == 2
    assert all(line["value"] for line in ended.said("after").values())


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_rank_zero_ends_in_its_work(how: str) -> None:
    ended = alone(JOB, "ends", "guarded", how, wait=35)
    assert kinds(ended) == {1: "GuardError", 2: "GuardError"}, ended.out
    begun = ended.said("works")[0]["time"] + 4
    for line in ended.said("raised").values():
        assert line["time"] - begun < (3 if how == "killed" else 12)
        assert ("no sign of life of rank 0 for 5 s" in line["text"]) == (how == "stopped")


# ---- where guards are used


def test_groups() -> None:
    ended = torchrun(JOB, "groups", "guarded", world=4)
    assert ended.code == 0, ended.out
    assert {rank: line["value"] for rank, line in ended.said("any").items()} == {
        0: [False, False], 1: [False, False], 2: [False, True], 3: [True, True]
    }  # fmt: skip
    assert {rank: line["value"] for rank, line in ended.said("all").items()} == {0: True, 1: True, 2: False, 3: False}
    assert {rank: line["value"] for rank, line in ended.said("one").items()} == {0: 0, 1: 0, 2: 1, 3: 0}
    assert {rank: line["first"] for rank, line in ended.said("turn").items()} == {0: 1, 1: 0, 2: 1, 3: 0}
    assert all(line["value"] for line in ended.said("world").values())
    assert "this rank is no member of the group" in ended.out


def test_a_backend_of_the_training_that_cannot_carry_them() -> None:
    ended = torchrun(JOB, "other", "guarded", world=2)
    assert ended.code == 0, ended.out
    assert all(line["value"] for line in ended.said("any").values())
    assert [line["value"] for line in ended.said("got").values()] == ["x" * 1000] * 2


def test_guards_within_guards() -> None:
    ended = torchrun(JOB, "within", "guarded")
    assert ended.code == 0, ended.out
    assert {rank: line["first"] for rank, line in ended.said("inner").items()} == {0: True, 1: False, 2: False}
    assert {line["value"] for line in ended.said("only").values()} == {5}
    assert kinds(ended) == {0: "GuardError", 1: "PeerFailed", 2: "PeerFailed"}
    assert "not all ranks are here" in ended.said("raised")[0]["text"]


def test_groups_made_anew() -> None:
    ended = torchrun(JOB, "again", "guarded")
    assert ended.code == 0, ended.out
    assert [line["value"] for line in ended.lines() if line["what"] == "any"] == [True] * 9
    assert [line["value"] for line in ended.lines() if line["what"] == "none"] == [False] * 9


def test_a_worker_of_a_loader_is_no_rank() -> None:
    ended = torchrun(JOB, "child", "guarded", world=2)
    assert ended.code == 0, ended.out
    assert [line["value"] for line in ended.said("worker").values()] == [[False, True]] * 2
    assert [line["value"] for line in ended.said("any").values()] == [True] * 2


def test_long_waits_are_told_by_one_rank() -> None:
    ended = torchrun(JOB, "quiet", "guarded")
    told = [line for line in ended.out.splitlines() if line.startswith("whichrank.guard:")]
    assert ended.code == 0
    assert [line for line in told if "rank 0: agree() at guarded_job.py:" in line and "s for rank 1" in line]
    assert [line for line in told if "rank 0 is at work in rank_zero_first()" in line and ": 42 %; 2 wait" in line]
    assert len(told) <= 5
