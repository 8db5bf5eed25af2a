"""What recorders saw last of a job that ended at once: each rank was somewhere, and nobody waited."""

from __future__ import annotations

from whichrank.facts import Fact, Identity, Source, Spot
from whichrank.findings.stacks import stacks
from whichrank.job.model import Job

LOADER = "_try_get_data (torch/utils/data/dataloader.py:1131)"
OWN = "forward (/work/net.py:18)"
INSIDE = "all_reduce (torch/distributed/distributed_c10d.py:2810)"


def job_of(tool: str, *frames: str) -> Job:
    facts = []
    for rank, frame in enumerate(frames):
        source = Source(f"rank{rank}", kind="stack")
        values = {"thread": "MainThread", "main": True, "frames": [frame], "tool": tool}
        facts.append(Fact("stack", Spot(source, None, frame), who=Identity(rank=rank, pid=900 + rank), values=values))
    return Job(facts, [], [], [])


def odd(tool: str, *frames: str) -> list[int | None]:
    return [stack.rank for stack in stacks(job_of(tool, *frames)).odd]


def test_nobody_waited() -> None:
    assert odd("recorder", OWN, OWN, LOADER, OWN) == []


def test_others_waited() -> None:
    assert odd("recorder", INSIDE, INSIDE, LOADER, INSIDE) == [2]


def test_a_look_during_a_hang_is_another_thing() -> None:
    assert odd("py-spy", OWN, OWN, LOADER, OWN) == [2]
