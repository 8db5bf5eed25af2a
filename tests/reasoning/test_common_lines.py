"""What all ranks print is no rank's own work, and who was killed was not slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, named, told


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_result_of_a_common_evaluation(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    for rank in job.ranks:
        job.say(end + 3 + 0.01 * rank, rank, f"validation after 130 steps: accuracy 0.8{rank}12, perplexity 14.{rank}")
    job.time_out(end + 605, seq=131, but=[6])

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "rank0_only_work", told(verdict)
    assert named(verdict) == [6], told(verdict)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_evaluation_of_its_own_still_counts(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    for part in range(4):
        job.say(end + 3 + 100 * part, 0, f"evaluating: {part * 20} of 400 prompts")
    job.time_out(end + 605, seq=131, but=[0])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("rank0_only_work", [0]), told(verdict)


def test_the_last_words_of_a_rank_that_was_killed(tmp_path: Path) -> None:
    """Rank 0 prints for all: that it had evaluated says nothing of why it ended."""
    job = Incident(ranks=2, hosts=1, layout="merged")
    job.init()
    end = job.steps(100, 130, ranks=[0])
    job.say(end + 1, 0, "validation after 130 steps: accuracy 0.812")
    job.exits(end + 2, 0, -9)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict), verdict.mechanism) == ("killed", [0], "dead"), told(verdict)
