"""The DataLoader's own words: torch/utils/data/dataloader.py and torch/csrc/DataLoader.cpp."""

from __future__ import annotations

import pytest
from reading import facts_of, one, survivors

KILLED = "[rank3]: RuntimeError: DataLoader worker (pid 77391) is killed by signal: Killed. "
GONE = "[rank3]: RuntimeError: DataLoader worker (pid(s) 77391, 77392) exited unexpectedly"
LATE = "[rank5]: RuntimeError: DataLoader timed out after 120 seconds"
BUS = "[rank1]: ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."


def test_a_worker_that_was_killed() -> None:
    fact = one(KILLED, "dl_worker_killed")

    assert (fact.rank, fact["worker_pid"], fact["signal"]) == (3, 77391, "Killed")


def test_workers_that_went_without_a_word() -> None:
    fact = one(GONE, "dl_worker_killed")

    assert (fact.rank, fact["worker_pid"], fact["signal"]) == (3, 77391, None)


def test_a_batch_that_did_not_come() -> None:
    fact = one(LATE, "dl_timeout")

    assert (fact.rank, fact["seconds"]) == (5, 120)


@pytest.mark.parametrize("line", [BUS, "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. "])
def test_shared_memory_that_was_full(line: str) -> None:
    assert one(line, "dl_bus_error")


@pytest.mark.parametrize(
    "line", ["DataLoader(timeout=120, num_workers=8)", "killed worker 3 of the pool", "dataloader ready"]
)
def test_what_is_no_message_of_it(line: str) -> None:
    assert not [fact for fact in facts_of(line) if fact.kind.startswith("dl_")]


@pytest.mark.parametrize("seed", range(5))
def test_other_lines_take_nothing_away(seed: int) -> None:
    lines = [KILLED, LATE, BUS]
    alone = ("dl_worker_killed", "dl_timeout", "dl_bus_error")

    assert all(any(kind in fact for fact in survivors(lines, seed)) for kind in alone)
