"""The terminal report: what is on the page, that it fits, and that nothing breaks out of it."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import golden
import pytest
import samples
from rich.cells import cell_len
from rich.console import Console

from whichrank.model import Culprit, Missing, Moment, Proof, RankRow, Report, Summary
from whichrank.report import terminal

ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_pages(name: str, width: int) -> None:
    golden.check(f"{name}-{width}.txt", terminal.plain(samples.SAMPLES[name](), width))


@pytest.mark.parametrize("name", ["oom", "desync"])
def test_pages_with_everything(name: str) -> None:
    golden.check(f"{name}-all-100.txt", terminal.plain(samples.SAMPLES[name](), 100, all=True))


@pytest.mark.parametrize("all", [False, True])
@pytest.mark.parametrize("width", [50, 80, 97, 120])
@pytest.mark.parametrize("name", [*samples.SAMPLES, "hostile"])
def test_every_line_fits(name: str, width: int, all: bool) -> None:
    report = getattr(samples, name)()
    for line in terminal.plain(report, width, all=all).splitlines():
        # A command is one line however long it is, so that it can be copied.
        assert cell_len(line) <= width or line.lstrip().startswith("$ "), line


def test_the_answer_comes_first() -> None:
    lines = terminal.plain(samples.oom(), 100).splitlines()

    assert lines[0] == "71 files, 64 ranks on 8 nodes, 1 incident at 2026-11-30 05:41:58Z"
    assert "Rank 17 on node-03" in lines[2]
    assert lines[2].endswith("cause: proven")
    assert lines[3].endswith("rank: proven")
    assert lines[5].startswith("  now ")
    assert "  fix    12 workers x 2.1 GiB" in lines[7]
    assert lines[8].startswith("  don't  raise the timeout")


def test_a_command_stays_in_one_piece() -> None:
    long = "srun " + " ".join(f"--option-{n}=value" for n in range(20))
    report = samples.oom()
    verdict = replace(report.verdicts[0], action=replace(report.verdicts[0].action, commands=(long,)))

    assert f"$ {long}\n" in terminal.plain(replace(report, verdicts=(verdict,)), 80)


def test_rows_of_4096_ranks_become_a_handful() -> None:
    text = terminal.plain(samples.big(), 100)
    table = section(text, "ranks")

    assert len(table) <= 12
    assert re.search(r"culprit +1088-1095 +all 8 ranks of node-137", table[0])
    assert len(text.splitlines()) < 60
    assert "kernel log of node-[001-512]" in text


def test_even_with_everything_4096_ranks_can_be_read() -> None:
    assert len(terminal.plain(samples.big(), 100, all=True).splitlines()) < 700


def test_alike_proof_is_folded_and_counted() -> None:
    proof = section(terminal.plain(samples.oom(), 120), "proof")

    assert sum("waited 1800 s" in line for line in proof) == 1
    assert any("rank0.log:9021 (+62)" in line for line in proof)


def test_the_timeline_keeps_what_decides() -> None:
    report = samples.oom()
    noise = tuple(
        Moment(f"2026-11-30T05:{n:02d}:00Z", f"{chr(97 + n % 26) * (n // 26 + 2)} happened", "x.log", n, 1)
        for n in range(10)
    )
    steps = section(terminal.plain(replace(report, timeline=noise + report.timeline), 100), "timeline")

    assert len(steps) <= 9
    assert any("killed for memory" in line for line in steps)
    assert "aa happened" in steps[0]
    assert "torchrun ends the job" in steps[-2]
    assert steps[-1].strip() == "… 7 more moments: --all"


def test_ranks_that_nothing_tells_of_are_named() -> None:
    assert re.search(r"no trace +16-31", terminal.plain(samples.network(), 80))


def test_undecided_asks_for_what_would_settle_it() -> None:
    text = terminal.plain(samples.single_line(), 80)

    assert "cause: undecided" in text
    assert "to be sure" in text
    assert "$ py-spy dump" in text
    assert "whichrank explain" not in text


def test_checks_are_left_out_where_all_is_proven() -> None:
    assert "to be sure" not in terminal.plain(samples.oom(), 80)


def test_healthy_has_one_grade_and_nothing_to_do() -> None:
    text = terminal.plain(samples.healthy(), 80)

    assert "healthy: proven" in text
    assert "incident" not in text
    assert "\n  now" not in text


def test_where_to_look_when_no_rank_is_named() -> None:
    assert "where    c2n02; group dp_0: ranks 0-15; in ALLREDUCE #77" in terminal.plain(samples.network(), 80)


def test_a_stopgap_that_warns_is_labelled_so() -> None:
    report = samples.network()
    verdict = replace(report.verdicts[0], stopgap="Restart without c2n02.\nDon't raise the timeout.")
    text = terminal.plain(replace(report, verdicts=(verdict,)), 80)

    assert "  stopgap  Restart without c2n02.\n  don't    raise the timeout.\n" in text


def test_each_incident_has_its_block() -> None:
    block = section(terminal.plain(samples.attempts(), 80), "incidents")

    assert [line for line in block if "attempt" in line and "exception" in line] == [
        "  1  attempt 0  2026-11-30 03:10:00Z  exception: proven  rank: proven",
        "  2  attempt 1  2026-11-30 04:10:00Z  exception: likely  rank: proven",
        "  3  attempt 2  2026-11-30 05:10:00Z  exception: likely  rank: proven",
    ]


@pytest.mark.parametrize("all", [False, True])
def test_hostile_text_stays_text(all: bool) -> None:
    text = terminal.plain(samples.hostile(), 100, all=all)

    assert not ESCAPES.search(text.replace("\n", ""))
    assert "[bold]markup[/bold] :boom:" in text


def test_colours_carry_no_text_of_their_own() -> None:
    """In colour or not, the characters are the same; the only sequences are colours and styles."""
    for make in [*samples.SAMPLES.values(), samples.hostile]:
        coloured = printed(make(), force_terminal=True, color_system="truecolor")
        assert "\x1b[" in coloured
        stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
        assert not ESCAPES.search(stripped.replace("\n", ""))
        assert [line.rstrip() for line in stripped.splitlines()] == terminal.plain(make(), 90).splitlines()


@pytest.mark.parametrize("options", [{"force_terminal": False}, {"force_terminal": True, "color_system": None}])
def test_no_sequences_where_there_are_no_colours(options: dict[str, object]) -> None:
    assert "\x1b" not in printed(samples.oom(), **options)


def printed(report: Report, **options: object) -> str:
    out = io.StringIO()
    terminal.render(report, Console(file=out, width=90, **options))  # type: ignore[arg-type]
    return out.getvalue()


def test_empty_parts_leave_no_empty_sections() -> None:
    bare = replace(samples.oom(), ranks=(), timeline=(), gaps=(), weighed=(), summary=Summary())
    verdict = replace(
        bare.verdicts[0], because=(), checks=(), fix=(), stopgap="", culprits=(), hosts=(), group_ranks=()
    )
    text = terminal.plain(replace(bare, verdicts=(verdict,)), 80, all=True)

    for name in ("proof", "against", "ranks", "timeline", "missing", "to be sure", "weighed", "incidents", "fix"):
        assert not re.search(rf"^ *{name}\b", text, re.M)


def test_nothing_read() -> None:
    text = terminal.plain(samples.empty(), 80)

    assert "Nothing that could be read" in text
    assert "logs/: no such file or folder" in text


def test_many_different_places_are_merged() -> None:
    rows = tuple(RankRow(rank, "waiting", "", "n1", f"g{rank}", rank, "SEND") for rank in range(300))
    table = section(terminal.plain(replace(samples.healthy(), ranks=rows, summary=Summary(1, 1, 300)), 100), "ranks")

    assert table == ["  waiting  0-299  all 300 ranks of n1  SEND #0 to #299 in 300 groups"]


def test_unknown_ranks_hosts_and_lines() -> None:
    report = samples.oom()
    verdict = replace(
        report.verdicts[0],
        culprits=(Culprit(None, "node-9"),),
        because=(Proof("says", "", None, ""),),
        op=None,
        seq=None,
    )
    text = terminal.plain(
        replace(report, verdicts=(verdict,), timeline=(Moment(None, "no clock", "x", None),), gaps=(Missing("x", ""),)),
        80,
    )

    assert "  ?  says" in text
    assert "no clock" in text
    assert "  - x\n" in text


def section(text: str, name: str) -> list[str]:
    """The lines below a title."""
    match = re.search(rf"^{name}\b.*\n((?:.+\n)*)", text, re.M)
    assert match, text
    return match[1].splitlines()
