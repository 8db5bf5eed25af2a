"""Stamps without a year, without a date, since boot, out of order: the order of events stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, named, told

from whichrank.diagnosis import diagnose

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
NEW_YEAR = "2026-12-31 23:58:00"


@every_layout
@pytest.mark.parametrize("stamps", ["iso", "short"])
@pytest.mark.parametrize("how", ["dmesg-T", "syslog"])
def test_yearless_stamps_over_new_year(how: str, stamps: str, layout: str, tmp_path: Path) -> None:
    """Rank 5 is killed in the old year, the watchdogs fire in the new one and write E0101."""
    job = Incident(layout=layout, torch="2.7", start=NEW_YEAR, stamps=stamps)
    job.init()
    end = job.steps(100, 130)
    job.oom(end + 2, "node-02", job.pid(5), how=how)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, verdict.grade, named(verdict)) == ("host_oom", "proven", [5]), told(verdict)
    assert "10 min before" in " ".join([verdict.says, *(proof.says for proof in verdict.because)]), told(verdict)


@pytest.mark.parametrize("layout", ["per-rank", "per-node"])
@pytest.mark.parametrize(("first", "second"), [(5, 1), (1, 5)])
def test_the_earlier_of_two_exceptions_over_new_year(layout: str, first: int, second: int, tmp_path: Path) -> None:
    """No stamp has a year: 12-31 comes before 01-01 all the same."""
    job = Incident(layout=layout, torch="2.7", start="2026-12-31 23:57:30", stamps="short")
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, first, "KeyError", "'mask'")
    job.say(end + 200, second, "flushing metrics before exit")
    job.crash(end + 201, second, "RuntimeError", "metrics writer is closed", "/work/metrics.py")

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [first]), told(verdict)


@pytest.mark.parametrize("layout", ["per-rank", "per-node"])
@pytest.mark.parametrize(("first", "second"), [(5, 1), (1, 5)])
def test_the_earlier_of_two_exceptions_over_midnight(layout: str, first: int, second: int, tmp_path: Path) -> None:
    """Times of day only: the day turns between the two."""
    job = Incident(layout=layout, torch="2.3", start="2026-11-30 23:57:30", stamps="day")
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, first, "KeyError", "'mask'")
    job.say(end + 200, second, "flushing metrics before exit")
    job.crash(end + 201, second, "RuntimeError", "metrics writer is closed", "/work/metrics.py")

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [first]), told(verdict)


@every_layout
@pytest.mark.parametrize("torch", ["2.3", "2.7"])
def test_times_of_day_beside_dated_watchdogs(layout: str, torch: str, tmp_path: Path) -> None:
    job = Incident(layout=layout, torch=torch, stamps="day")
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)


@every_layout
@pytest.mark.parametrize("stamps", ["iso", "day", "short", "none"])
def test_a_kernel_that_counts_from_boot(layout: str, stamps: str, tmp_path: Path) -> None:
    """dmesg without -T: no date, and the pid says whose it is."""
    job = Incident(layout=layout, stamps=stamps)
    job.init()
    end = job.steps(100, 130)
    job.oom(end + 2, "node-02", job.pid(5), how="boot")
    job.time_out(end + 602, seq=131, but=[5])

    report = job.report(tmp_path)

    assert (report.verdicts[0].cause, named(report.verdicts[0])) == ("host_oom", [5]), told(report.verdicts[0])
    assert all(moment.at is None for moment in report.timeline if "dmesg" in moment.source)


@every_layout
def test_an_oom_since_boot_of_another_process_is_not_dated_into_the_job(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.oom(end + 2, "node-02", 77123, how="boot", comm="rsyslogd", memcg="/system.slice/rsyslog.service")
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)


def export(job: Incident, folder: Path, *, turned: bool) -> Path:
    """A log store's answer as JSON lines, newest first if `turned`."""
    rows = sorted((entry for entry in job.entries), key=lambda entry: entry.at, reverse=turned)
    lines = []
    for entry in rows:
        when = job.when(entry.at)
        labels = {
            "app": "train",
            "container": "trainer",
            "namespace": "ml",
            "pod": entry.file.rsplit("/", 1)[-1].removesuffix(".log"),
            "stream": "stderr",
        }
        lines.append(
            json.dumps({"labels": labels, "line": entry.text, "timestamp": f"{when:%Y-%m-%dT%H:%M:%S.%f}789Z"})
        )
    path = folder / "export.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("turned", [False, True], ids=["in order", "newest first"])
@pytest.mark.parametrize(("first", "second"), [(5, 1), (1, 5)])
def test_a_json_export_in_any_order(turned: bool, first: int, second: int, tmp_path: Path) -> None:
    job = Incident(layout="per-rank", stamps="none")
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, first, "KeyError", "'mask'")
    job.crash(end + 61, second, "RuntimeError", "metrics writer is closed", "/work/metrics.py")
    job.time_out(end + 602, seq=131, but=[first, second])

    verdict = diagnose([str(export(job, tmp_path, turned=turned))]).verdicts[0]

    assert (verdict.cause, named(verdict)) == ("exception", [first]), told(verdict)


@every_layout
def test_the_time_of_the_incident_is_when_the_wait_began(layout: str, tmp_path: Path) -> None:
    """Stamp minus "ran for": 05:01:12, not the time at which the watchdogs fired."""
    job = Incident(layout=layout, torch="2.7")
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=131, but=[5])

    report = job.report(tmp_path)

    assert report.summary.at is not None and report.summary.at.startswith("2026-11-30T05:01:1"), report.summary.at
