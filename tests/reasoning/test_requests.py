"""Requests that a library repeats: whose they are, which way they go, and whether the job went on."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)

HUB = "https://huggingface.co/datasets/org/text/resolve/main/en/part-00031.json.gz"
READS = {
    "huggingface_hub": [
        f"huggingface_hub.utils._http - WARNING - 'The read operation timed out' thrown while requesting GET {HUB}",
        "huggingface_hub.utils._http - WARNING - Retrying in 8s [Retry 2/5].",
    ],
    "status": [
        f"HTTP Error 503 thrown while requesting GET {HUB}",
        "Retrying in 8s [Retry 3/5].",
    ],
    "urllib3": [
        "urllib3.connectionpool WARNING Retrying (Retry(total=3, connect=None, read=None, redirect=None, status=None)) "
        "after connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool(host='minio.lab', port=443): "
        "Read timed out. (read timeout=60)\")': /corpus/shard-000212.tar"
    ],
    "datasets": ["Got disconnected from remote data host. Retrying in 5sec [7/20]"],
}


def asked(job: Incident, at: float, rank: int, lines: list[str], times: int = 8, every: float = 62.0) -> float:
    """The same request, again and again; returns when the last one was."""
    for number in range(times):
        for place, line in enumerate(lines):
            job.say(at + number * every + 0.1 * place, rank, line)
    return at + (times - 1) * every


def begun(layout: str) -> tuple[Incident, float]:
    job = Incident(layout=layout)
    job.init()
    return job, job.steps(100, 130)


@every_layout
@pytest.mark.parametrize("library", READS)
def test_reads_in_vain_by_the_rank_that_did_not_come(library: str, layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    asked(job, end + 12, 5, READS[library])
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("slow_data", [5]), told(verdict)
    assert verdict.mechanism == "host_stuck", told(verdict)


@every_layout
@pytest.mark.parametrize("library", READS)
def test_reads_in_vain_by_a_rank_that_came_are_innocent(library: str, layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    asked(job, end + 1, 2, READS[library], times=3, every=5.0)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert 2 not in named(verdict), told(verdict)
    assert verdict.cause != "slow_data", told(verdict)


@every_layout
def test_a_read_that_got_through_is_over(layout: str, tmp_path: Path) -> None:
    """Rank 5, which prints no steps, asked again and got its shard: the others went on for 25 steps."""
    job = Incident(layout=layout)
    job.init()
    job.steps(100, 110, ranks=[0])
    job.say(9.0, 5, "data stream opened")
    asked(job, 31, 5, READS["huggingface_hub"], times=3, every=1.0)
    end = job.steps(111, 140, at=40.0, ranks=[0])
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "slow_data", told(verdict)


@every_layout
def test_an_upload_in_vain_is_no_read(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    asked(
        job,
        end + 12,
        0,
        ["'timed out' thrown while requesting PUT https://hub.s3.amazonaws.com/runs/7/model-00002.safetensors"],
    )
    job.time_out(end + 602, seq=131, but=[0])

    verdict = job.verdict(tmp_path)

    assert verdict.cause in ("rank0_only_work", "slow_storage"), told(verdict)
    assert named(verdict) == [0], told(verdict)


@every_layout
def test_a_tracker_that_cannot_be_reached_explains_nothing(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    asked(
        job,
        end + 12,
        5,
        [
            "Retrying (Retry(total=2, connect=None, read=None, redirect=None, status=None)) after connection broken by "
            "'NewConnectionError(...)': /graphql"
        ],
    )
    job.time_out(end + 602, seq=131, but=[5])

    assert job.verdict(tmp_path).cause == "undecided"
