"""Silence is not guilt: a missing line counts only where the log is whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from incident import LEFT_OPEN, Incident, named, surely_named, told

from whichrank.diagnosis import diagnose

every_generation = pytest.mark.parametrize("torch", ["2.3", "2.7"])


def silent(torch: str = "2.7", *, layout: str = "per-rank", but: tuple[int, ...] = (5,)) -> tuple[Incident, float]:
    job = Incident(layout=layout, torch=torch)
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=131, but=but)
    return job, end


@every_generation
def test_a_whole_log_without_a_timeout_names_the_rank(torch: str, tmp_path: Path) -> None:
    job, _ = silent(torch)

    verdict = job.verdict(tmp_path)

    assert (named(verdict), verdict.rank_grade) == ([5], "likely"), told(verdict)
    assert verdict.cause == "undecided", told(verdict)


@every_generation
def test_a_file_that_ends_in_a_line_accuses_nobody(torch: str, tmp_path: Path) -> None:
    job, end = silent(torch)
    job.raw(end + 1, job.file_of(5), f"{job.stamp(end + 1)}[rank5] step 1{LEFT_OPEN}")

    report = job.report(tmp_path)

    assert surely_named(report.verdicts[0]) == [], told(report.verdicts[0])
    assert any("rank5.log" in gap.what for gap in report.gaps), report.gaps


@pytest.mark.parametrize("cut", [(5,), (5, 6), (1, 2, 5)])
def test_more_cut_files_accuse_nobody(cut: tuple[int, ...], tmp_path: Path) -> None:
    job, end = silent(but=cut)
    for rank in cut:
        job.raw(end + 1, job.file_of(rank), f"{job.stamp(end + 1)}[rank{rank}] step 131 lo{LEFT_OPEN}")

    verdict = job.verdict(tmp_path)

    assert surely_named(verdict) == [], told(verdict)


def test_a_cut_file_beside_a_whole_one(tmp_path: Path) -> None:
    """5 is cut, 6 is whole and silent: 6 may be named, 5 not for sure."""
    job, end = silent(but=(5, 6))
    job.raw(end + 1, job.file_of(5), f"{job.stamp(end + 1)}[rank5] step 1{LEFT_OPEN}")

    verdict = job.verdict(tmp_path)

    assert 5 not in named(verdict), told(verdict)


@pytest.mark.parametrize(
    "line",
    [
        "[2026/11/30 05:11:44] [ info] [filter:throttle:throttle.0] 51877 records dropped (rank5.log)",
        "[2026/11/30 05:01:11] [ warn] [filter:throttle:throttle.0] rate limit: rank5.log 402 lines/s > 50, dropping",
    ],
)
@every_generation
def test_a_rate_limited_file_accuses_nobody(torch: str, line: str, tmp_path: Path) -> None:
    job, _ = silent(torch)
    job.raw(0, "fluent-bit.log", line)

    verdict = job.verdict(tmp_path)

    assert surely_named(verdict) == [], told(verdict)


@every_generation
def test_a_missing_file_accuses_nobody(torch: str, tmp_path: Path) -> None:
    job, _ = silent(torch)
    job.entries = [entry for entry in job.entries if entry.file != job.file_of(5)]

    report = job.report(tmp_path)

    assert surely_named(report.verdicts[0]) == [], told(report.verdicts[0])
    assert any("5" in gap.what for gap in report.gaps), report.gaps


@every_generation
def test_an_empty_file_accuses_nobody(torch: str, tmp_path: Path) -> None:
    job, _ = silent(torch)
    job.entries = [entry for entry in job.entries if entry.file != job.file_of(5)]
    job.write(tmp_path)
    (tmp_path / job.folder / job.file_of(5)).write_text("")

    report = job.sound(diagnose([str(tmp_path / job.folder)]), tmp_path)

    assert surely_named(report.verdicts[0]) == [], told(report.verdicts[0])
    assert any("rank5.log" in gap.what for gap in report.gaps), report.gaps


def test_a_file_that_is_cut_before_the_training_began_accuses_nobody(tmp_path: Path) -> None:
    """The head of a log was kept, not its end: whole lines, and nothing after the start."""
    job, _ = silent()
    mine = sorted((entry for entry in job.entries if entry.file == job.file_of(5)), key=lambda entry: entry.at)
    job.entries = [entry for entry in job.entries if entry.file != job.file_of(5)] + mine[:3]

    verdict = job.verdict(tmp_path)

    assert verdict.rank_grade != "proven", told(verdict)


def test_a_truncated_gzip_accuses_nobody(tmp_path: Path) -> None:
    job, _ = silent()
    job.write(tmp_path)
    path = tmp_path / job.folder / job.file_of(5)
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_suffix(".log.gz").write_bytes(packed[: len(packed) * 2 // 3])

    verdict = diagnose([str(tmp_path / job.folder)]).verdicts[0]

    assert surely_named(verdict) == [], told(verdict)


def test_half_of_the_nodes_not_collected_accuses_nobody(tmp_path: Path) -> None:
    job, _ = silent(layout="per-node", but=(4, 5, 6, 7))
    job.entries = [entry for entry in job.entries if "node-02" not in entry.file]

    report = job.report(tmp_path)

    assert surely_named(report.verdicts[0]) == [], told(report.verdicts[0])
    assert any("4" in gap.what for gap in report.gaps), report.gaps


def test_folded_lines_of_ray_are_the_others_voices(tmp_path: Path) -> None:
    """One rank is printed in full, "[repeated 7x across cluster]" stands for the seven others."""
    job = Incident(layout="merged", torch="2.7")
    job.steps(100, 130, ranks=[0])
    job.time_out(672, seq=131, ranks=[3])
    label = "(TorchTrainWorker pid=41221, ip=10.0.0.7) "
    job.entries = [
        type(entry)(
            entry.at,
            entry.file,
            (label if "[rank3]" in entry.text else "(TorchTrainWorker pid=41200, ip=10.0.0.7) ") + entry.text,
        )
        for entry in job.entries
    ]
    caught = next(entry for entry in job.entries if "Watchdog caught" in entry.text and "terminated" not in entry.text)
    job.raw(
        673,
        "train.log",
        caught.text.replace("rank3", "rank6")
        .replace("[Rank 3]", "[Rank 6]")
        .replace("pid=41221, ip=10.0.0.7", "pid=42214, ip=10.0.0.8")
        + " [repeated 7x across cluster]",
    )
    job.raw(
        0,
        "train.log",
        "(TorchTrainWorker pid=41200, ip=10.0.0.7) Setting up process group for: env:// [rank=0, world_size=8]",
    )

    verdict = job.verdict(tmp_path)

    assert surely_named(verdict) == [], told(verdict)


def test_rank_zero_alone_prints_steps(tmp_path: Path) -> None:
    """Most programs print from rank 0 only: that 1-7 said nothing before is their habit; of 5 there is no watchdog either."""
    job = Incident(layout="per-rank")
    job.init()
    end = job.steps(100, 130, ranks=[0])
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert set(named(verdict)) <= {5}, told(verdict)
    assert verdict.rank_grade != "proven", told(verdict)


def test_lossy_export_accuses_nobody(tmp_path: Path) -> None:
    """The store sampled the lines: each rank shows one or two of the eleven of its watchdog."""
    job = Incident(layout="merged", torch="2.7")
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=131, but=[5])
    kept = []
    for number, entry in enumerate(job.entries):
        if entry.at < end + 1 or (number * 7919) % 11 < 4:
            kept.append(entry)
    job.entries = kept

    verdict = job.verdict(tmp_path)

    assert verdict.rank_grade != "proven", told(verdict)
    assert set(surely_named(verdict)) <= {5}, told(verdict)


def test_json_of_a_dropping_collector(tmp_path: Path) -> None:
    """The same in a JSON export, with the collector's own confession beside it."""
    job, _ = silent()
    job.write(tmp_path)
    top = tmp_path / job.folder
    lines = []
    for rank in job.ranks:
        path = top / job.file_of(rank)
        for number, text in enumerate(path.read_text().splitlines()):
            if rank != 5 or number < 20:
                lines.append(
                    json.dumps(
                        {
                            "labels": {"pod": f"job-{rank}", "container": "trainer"},
                            "line": text,
                            "timestamp": f"2026-11-30T05:{number // 60:02d}:{number % 60:02d}.{rank:03d}Z",
                        }
                    )
                )
        path.unlink()
    (top / "export.jsonl").write_text("\n".join(lines) + "\n")
    (top / "promtail.log").write_text(
        'level=error ts=2026-11-30T05:00:41Z caller=client.go:430 component=client msg="final error sending batch" status=429 error="server returned HTTP status 429: Ingestion rate limit exceeded, 1804 lines dropped"\n'
    )

    verdict = diagnose([str(top)]).verdicts[0]

    assert verdict.rank_grade != "proven", told(verdict)
