"""Counters, samples and listings of hosts: what changes tells, what was read once does not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from incident import SURE, Incident, named, told

from whichrank.evidence import Evidence, read_piece
from whichrank.findings.counters import counters
from whichrank.job.build import build
from whichrank.job.model import NOTHING_TOLD
from whichrank.model import Report


def hung(but: list[int] | None = None, **more: object) -> tuple[Incident, float]:
    """Two nodes; everybody but some waits in the same collective. The time at which the wait begins."""
    job = Incident(**more)  # type: ignore[arg-type]
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 600, seq=131, but=but or [])
    return job, end


def port(
    job: Incident, at: float, host: str, errors: int, file: str, *, stamped: bool = True, device: str = "ens4f0"
) -> None:
    when = f"{job.when(at):%a %b %d %H:%M:%S UTC %Y}\n" if stamped else ""
    job.raw(
        at,
        file,
        f"### {host}: ethtool -S {device}\n{when}NIC statistics:\n     rx_crc_errors_phy: {errors}\n     link_down_events_phy: 4",
    )


def accuses_network(report: Report) -> bool:
    return any(verdict.cause == "network" and verdict.grade != "undecided" for verdict in report.verdicts)


def wanted(report: Report) -> str:
    return " ".join(f"{gap.what} {gap.why}" for gap in report.gaps)


def test_errors_that_grow_during_the_hang_tell_the_host(tmp_path: Path) -> None:
    job, at = hung()
    for number, (host, first, second) in enumerate((("node-01", 90211, 90211), ("node-02", 12, 4812))):
        port(job, at + 100 + number, host, first, "nics.txt")
        port(job, at + 200 + number, host, second, "nics.txt")

    report = job.report(tmp_path)

    assert accuses_network(report) and report.verdicts[0].hosts == ("node-02",), told(report.verdicts[0])
    assert any("grew by 4800" in proof.says for proof in report.verdicts[0].because)


def test_a_port_that_only_the_files_name_tells_is_named(tmp_path: Path) -> None:
    job, at = hung()
    for when, errors, name in ((at + 100, 12, "before"), (at + 200, 4812, "after")):
        text = f"NIC statistics:\n     rx_crc_errors_phy: {errors}\n     link_down_events_phy: 4"
        job.raw(when, f"node-02.ethtool.ens4f0np0.{name}.txt", text)

    report = job.report(tmp_path)

    grown = [proof.says for verdict in report.verdicts for proof in verdict.because if "grew by 4800" in proof.says]
    assert grown and "of ens4f0np0 on node-02" in grown[0]


def test_a_total_is_no_evidence_and_the_report_asks_for_a_second_reading(tmp_path: Path) -> None:
    job, at = hung()
    for number, (host, errors) in enumerate((("node-01", 0), ("node-02", 90211))):
        port(job, at + 100 + number, host, errors, "nics.txt")

    report = job.report(tmp_path)

    assert not accuses_network(report), told(report.verdicts[0])
    assert "second reading" in wanted(report) and "node-02" in wanted(report)


@pytest.mark.parametrize(
    ("first", "second"), [(812, 812), (90211, 3)], ids=["nothing moved", "the machine was restarted in between"]
)
def test_no_growth_is_no_evidence(first: int, second: int, tmp_path: Path) -> None:
    job, at = hung()
    port(job, at + 100, "node-02", first, "nics.txt")
    port(job, at + 200, "node-02", second, "nics.txt")

    report = job.report(tmp_path)

    assert not accuses_network(report), told(report.verdicts[0])
    assert "rx_crc_errors" not in wanted(report)


def test_what_grew_before_the_job_went_wrong_is_another_days(tmp_path: Path) -> None:
    job, at = hung()
    port(job, at - 90000, "node-02", 12, "nics.txt")
    port(job, at - 86400, "node-02", 48120, "nics.txt")

    assert not accuses_network(job.report(tmp_path))


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        (("node-02.before.txt", "node-02.after.txt"), True),
        (("node-02.ethtool.1", "node-02.ethtool.2"), True),
        (("node-02-ethtool.txt", "node-02-other.txt"), False),
        (("node-02.eth0.txt", "node-02.eth1.txt"), False),
    ],
)
def test_two_files_are_two_snapshots_where_their_order_is_told(
    names: tuple[str, str], ordered: bool, tmp_path: Path
) -> None:
    job, at = hung()
    for number, name in enumerate(names):
        port(job, at + 100 + number, "node-02", 12 + 4800 * number, name, stamped=False)

    assert accuses_network(job.report(tmp_path)) is ordered


def test_interfaces_of_containers_come_and_go(tmp_path: Path) -> None:
    job, at = hung()
    for number, device in enumerate(("veth1b2c", "docker0")):
        for turn in (0, 1):
            port(job, at + 100 * turn + number, "node-02", 4800 * turn, "nics.txt", device=device)

    assert not accuses_network(job.report(tmp_path))


def smi(job: Incident, at: float, host: str, utils: list[int]) -> None:
    rows = "\n".join(f"{job.when(at):%Y/%m/%d %H:%M:%S}.359, {index}, {util} %" for index, util in enumerate(utils))
    job.raw(at, f"{host}.nvidia-smi.csv", f"timestamp, index, utilization.gpu [%]\n{rows}")


def test_one_idle_gpu_among_busy_ones_names_its_rank_and_no_cause(tmp_path: Path) -> None:
    """The silent host's ranks are not all late: one of them never launched, the others' logs are lost."""
    job, at = hung(but=[4, 5, 6, 7])
    smi(job, at + 200, "node-01", [100, 100, 100, 100])
    smi(job, at + 200, "node-02", [100, 0, 100, 100])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict), verdict.rank_grade) == ("undecided", [5], "likely"), told(verdict)


@pytest.mark.parametrize(
    ("utils", "after"),
    [([0, 0, 0, 0], 200), ([0, 0, 0, 100], 200), ([100, 0, 100, 100], 3600), ([100, 0, 100, 100], -60)],
    ids=["all are idle", "most are idle", "long after the timeout", "before the wait"],
)
def test_idle_gpus_name_nobody(utils: list[int], after: float, tmp_path: Path) -> None:
    job, at = hung()
    smi(job, at + after, "node-01", utils)
    smi(job, at + after, "node-02", utils)

    assert named(job.verdict(tmp_path)) == []


def test_a_rank_that_waited_is_not_accused_by_its_idle_gpu(tmp_path: Path) -> None:
    job, at = hung()
    smi(job, at + 200, "node-01", [100, 100, 100, 100])
    smi(job, at + 200, "node-02", [100, 0, 100, 100])

    assert named(job.verdict(tmp_path)) == []


def events(job: Incident, at: float, kills: int) -> None:
    when = f"{job.when(at):%a %b %d %H:%M:%S UTC %Y}"
    job.raw(
        at,
        "node-02.cgroup.txt",
        f"== node-02 ==\n$ date -u\n{when}\n$ cat memory.events\nmax 8812\noom {kills}\noom_kill {kills}",
    )


@pytest.mark.parametrize(
    ("kills", "oom"), [((2, 3), True), ((3, 3), False), ((3,), False)], ids=["one more", "the same", "read once"]
)
def test_the_kernels_own_count_of_kills(kills: tuple[int, ...], oom: bool, tmp_path: Path) -> None:
    job, at = hung(but=[6])
    for turn, count in enumerate(kills):
        events(job, at - 100 + 300 * turn, count)

    report = job.report(tmp_path)

    blamed = [verdict for verdict in report.verdicts if verdict.cause == "host_oom" and verdict.grade != "undecided"]
    assert bool(blamed) is oom, told(report.verdicts[0])
    assert not oom or named(blamed[0]) == [6]


@pytest.mark.parametrize(("second", "differ"), [("2.5.1", True), ("2.4.0", False)])
def test_versions_matter_where_they_differ(second: str, differ: bool, tmp_path: Path) -> None:
    job = Incident()
    job.init()
    job.time_out(600, seq=1)
    job.raw(
        700,
        "pip.txt",
        f"node-01: torch==2.4.0\nnode-01: numpy==1.26.4\nnode-02: torch=={second}\nnode-02: numpy==1.26.3",
    )

    report = job.report(tmp_path)

    blamed = [
        verdict
        for verdict in report.verdicts
        if verdict.cause == "version_mismatch" and verdict.grade in SURE | {"possible"}
    ]
    assert bool(blamed) is differ, told(report.verdicts[0])


def test_a_disk_that_takes_seconds_in_every_interval(tmp_path: Path) -> None:
    job, at = hung(but=[4, 5, 6, 7])
    head = "Device            r/s     r_await  w/s  w_await  aqu-sz  %util"
    rows = [("0.40", "0.01", "3.10"), ("6120.40", "128.00", "100.00"), ("7411.90", "128.00", "100.00")]
    for turn, (wait, queue, util) in enumerate(rows):
        stamp = f"{job.when(at + 100 + 10 * turn):%Y-%m-%dT%H:%M:%S}"
        job.raw(
            at + 100 + 10 * turn,
            "node-02.iostat.txt",
            f"{stamp}\n{head}\nmd127  3.10  {wait}  1.00  0.50  {queue}  {util}",
        )

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, verdict.hosts) == ("slow_storage", ("node-02",)), told(verdict)


def test_the_report_since_boot_is_no_interval(tmp_path: Path) -> None:
    job, at = hung(but=[4, 5, 6, 7])
    head = "Device            r/s     r_await  w/s  w_await  aqu-sz  %util"
    job.raw(at + 100, "node-02.iostat.txt", f"{head}\nmd127  3.10  6120.40  1.00  0.50  128.00  100.00")

    assert job.verdict(tmp_path).cause != "slow_storage"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6), st.booleans())
def test_growth_is_what_rose_and_one_reading_is_none(values: list[int], stamped: bool) -> None:
    text = "".join(
        f"### gx-1: ethtool -S ens4f0\n{f'2026-11-30 05:{minute:02d}:00' if stamped else ''}\nNIC statistics:\n     rx_crc_errors_phy: {value}\n"
        for minute, value in enumerate(values)
    )
    evidence = Evidence()
    read_piece("nics.txt", text.encode(), evidence)
    found = counters(build(evidence, NOTHING_TOLD)[0])

    rises = [b - a for a, b in itertools.pairwise(values) if b > a]
    assert sum(growth.by for growth in found.grown) == sum(rises)
    assert bool(found.still) == (len(values) > 1 and not rises)
    assert bool(found.lone) == (len(values) == 1 and values[0] > 0)
    if found.grown and stamped:
        assert found.grown[0].seconds == 60 * (len(values) - 1)
