"""A journal that writes offsets beside a job that writes local time, and links that fell before TCP gave up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from incident import Incident, told

from whichrank.diagnosis import diagnose
from whichrank.facts import Fact, Source, Spot
from whichrank.job.zones import of_items, unite
from whichrank.model import Report

LOCAL = datetime(2026, 11, 30, 22, 0, 0)
HOSTS = ("node-01", "node-02", "node-03")


def journal(host: str, offset: str, begin: int, end: int, events: dict[int, str]) -> str:
    """A line each 15 s, seconds since LOCAL on the job's own clock, stamped with this offset."""
    lines = []
    for second in sorted({*range(begin, end, 15), *events}):
        text = events.get(second, "systemd[1]: sysstat-collect.service: Deactivated successfully.")
        lines.append(f"{(LOCAL + timedelta(seconds=second)).isoformat()}{offset} {host} {text}")
    return "\n".join(lines) + "\n"


def lost_host(
    tmp_path: Path, offset: str, *, steps: int, fell: int, gave_up: int, journal_from: int, ranks: int = 2
) -> Report:
    """node-03's only link falls; `ranks` ranks of the others tell, when TCP gave up, that it does not answer."""
    folder = tmp_path / "job"
    folder.mkdir()
    out = []
    for rank, host in enumerate(HOSTS):
        out.append(f"{host}:{900 + rank}:{900 + rank} [0] NCCL INFO Bootstrap: Using eth0:10.1.0.{rank + 1}<0>")
        out.append(
            f"{host}:{900 + rank}:{950 + rank} [0] NCCL INFO ncclCommInitRank comm 0x55d{rank} rank {rank} nranks 3 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xabc - Init COMPLETE"
        )
    for second in range(0, steps, 10):
        at = (LOCAL + timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S")
        out.append(f"[{at}] step {second // 10} loss 1.8{second % 10}")
    for rank in range(ranks):
        at = (LOCAL + timedelta(seconds=gave_up)).strftime("%m%d %H:%M:%S")
        out.append(
            f"{HOSTS[rank]}:{900 + rank}:{970 + rank} [0] misc/socket.cc:61 NCCL WARN socketProgressOpt: Call to recv from 10.1.0.3<5{rank}021> failed : Connection timed out"
        )
        out.append(
            f"[rank{rank}]:[E{at}.814765786 ProcessGroupNCCL.cpp:552] [Rank {rank}] Collective WorkNCCL(SeqNum=417, OpType=ALLREDUCE, NumelIn=4195, NumelOut=4195, Timeout(ms)=3600000) raised the following async exception: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.25.1"
        )
    (folder / "job.out").write_text("\n".join(out) + "\n")
    fall = {fell: "kernel: mlx5_core 0000:21:00.0 eth0: Link down"}
    (folder / "node-03_journal.txt").write_text(journal("node-03", offset, journal_from, gave_up + 60, fall))
    return diagnose([str(folder)])


@pytest.mark.parametrize("offset", ["+0200", "-0700", "+0530", "Z"])
def test_a_link_that_fell_before_the_sockets_gave_up(offset: str, tmp_path: Path) -> None:
    """The log's local time is the journal's, whatever zone that is; 16 min of TCP's patience lie between."""
    report = lost_host(tmp_path, offset, steps=1200, fell=1203, gave_up=1203 + 950, journal_from=900)
    verdict = report.verdicts[0]

    assert (verdict.cause, verdict.hosts) == ("network", ("node-03",)), told(verdict)
    assert any("went down" in proof.says for proof in verdict.because), told(verdict)


@pytest.mark.parametrize("offset", ["+0100", "+0200"])
def test_a_job_that_ran_for_longer_than_the_offset(offset: str, tmp_path: Path) -> None:
    """As they stand both ranges overlap; the journal spoke all the time and falls silent with the job."""
    report = lost_host(tmp_path, offset, steps=20_000, fell=20_003, gave_up=20_950, journal_from=16_000)
    verdict = report.verdicts[0]

    assert any("went down" in proof.says for proof in verdict.because), told(verdict)


def test_a_link_of_an_hour_before_is_not_why(tmp_path: Path) -> None:
    report = lost_host(tmp_path, "Z", steps=6000, fell=1000, gave_up=6900, journal_from=900)
    verdict = report.verdicts[0]

    assert not any("went down" in proof.says for proof in verdict.because), told(verdict)


def test_one_rank_alone_proves_no_broken_path(tmp_path: Path) -> None:
    """One process may fail for reasons of its own: only several that tell the same make it sure."""
    report = lost_host(tmp_path, "Z", steps=1200, fell=10, gave_up=6000, journal_from=0, ranks=1)

    assert report.verdicts[0].grade != "proven", told(report.verdicts[0])


def stamped(texts: Sequence[tuple[str, str, str, datetime]]) -> list[Fact]:
    """(file, kind of source, excerpt, UTC as read) -> facts"""
    return [
        Fact(
            "member",
            Spot(Source(name, kind), number, text),
            int(at.replace(tzinfo=timezone.utc).timestamp()) * 10**9,
            "wall",
        )
        for number, (name, kind, text, at) in enumerate(texts)
    ]


def lines(
    name: str, kind: str, begin: datetime, count: int, offset_h: int | None
) -> list[tuple[str, str, str, datetime]]:
    """A line a minute; `begin` is what the file writes."""
    zone = "" if offset_h is None else f"{offset_h:+03d}00"
    moments = [begin + timedelta(minutes=number) for number in range(count)]
    return [(name, kind, f"{at.isoformat()}{zone} x", at - timedelta(hours=offset_h or 0)) for at in moments]


@pytest.mark.parametrize(
    "others",
    [
        lines("a_journal", "kernel", LOCAL + timedelta(hours=2), 60, 2),  # the job writes UTC: they meet as they are
        lines("a_journal", "kernel", LOCAL - timedelta(days=3), 60, 2),  # another day's
        lines("a_journal", "kernel", LOCAL, 60, 0),  # UTC: no local time to learn
        lines("a", "kernel", LOCAL, 60, 2) + lines("b", "kernel", LOCAL, 60, 1),  # two zones: which is the job's?
        lines("a_journal", "kernel", LOCAL, 60, 2) + lines("events", "scheduler", LOCAL, 60, 0),  # UTC's lines meet it
    ],
    ids=["meets", "another-day", "utc", "two-zones", "meets-utc"],
)
def test_what_is_not_shown_is_not_moved(others: list[tuple[str, str, str, datetime]]) -> None:
    facts = stamped([*lines("job.out", "training", LOCAL, 60, None), *others])

    moved, _ = unite(facts, [], of_items(facts))

    assert [fact.at_ns for fact in moved] == [fact.at_ns for fact in facts]


@pytest.mark.parametrize("hours", [-8, -3, 1, 2, 9])
def test_stamps_without_a_zone_move_and_others_stay(hours: int) -> None:
    facts = stamped([*lines("job.out", "training", LOCAL, 30, None), *lines("a_journal", "kernel", LOCAL, 30, hours)])

    moved, _ = unite(facts, [], of_items(facts))

    assert [fact.at_ns for fact in moved[:30]] == [fact.at_ns for fact in moved[30:]]
    assert [fact.at_ns for fact in moved[30:]] == [fact.at_ns for fact in facts[30:]]


@pytest.mark.parametrize("earlier", [True, False])
def test_a_card_short_of_power_all_day_is_no_news(earlier: bool, tmp_path: Path) -> None:
    job = Incident(layout="merged")
    job.init()
    end = job.steps(100, 300)
    job.time_out(end + 603, seq=301, but=[])
    for at in (*(range(0, int(end), 30) if earlier else ()), *range(int(end), int(end) + 500, 30)):
        when = (job.start + timedelta(seconds=at)).isoformat()
        job.raw(at, "node-01_journal.txt", f"{when} node-01 kernel: mlx5_core 0000:21:00.1: mlx5_pcie_event:299:(pid 1402): Detected insufficient power on the PCIe slot (27W).")  # fmt: skip
    report = job.report(tmp_path)

    shown = [proof for verdict in report.verdicts for proof in verdict.because if "trouble of its own" in proof.says]
    assert report.verdicts[0].cause != "network" or not shown, told(report.verdicts[0])
