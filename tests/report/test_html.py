"""The page without a browser: what it says, what it holds, what it must not hold."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import samples
from made_dumps import dump, report, stuck
from markupsafe import escape

from whichrank.dump import Frame
from whichrank.findings.dumps.lateness import Late, Lateness
from whichrank.job.collectives import collectives
from whichrank.model import Missing, Moment, Proof, Report
from whichrank.report import html
from whichrank.report.html import cluster, draw, late
from whichrank.report.printable import printable
from whichrank.report.redact import redact

HOSTILE = "<script>boom()</script><img src=x onerror=boom()>\"'&{{7*7}}</script><!--"


def page(of: Report) -> str:
    return html.render(of).decode()


def data(text: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    loaded: dict[str, object] = json.loads(found[1])
    return loaded


def patterns(of: Report, ranks: int) -> dict[int, str]:
    """Each rank's row of the first group, a letter a column."""
    group = data(page(of))["groups"][0]  # type: ignore[index]
    numbers = [first + i for first, count in group["ranks"] for i in range(count)]
    rows = [pattern for pattern, count in group["rows"] for _ in range(count)]
    assert len(numbers) == len(rows) == ranks
    whole = ["".join(letter * int(n) for n, letter in re.findall(r"(\d+)([A-Z])", p)) for p in group["patterns"]]
    return {rank: whole[row] for rank, row in zip(numbers, rows, strict=True)}


@pytest.mark.parametrize("sample", list(samples.SAMPLES.values()))
def test_everything_that_is_said_in_the_answer_is_on_the_page(sample) -> None:  # type: ignore[no-untyped-def]
    made = sample()
    text = page(made)
    for verdict in made.verdicts[:1]:
        for said in (verdict.says, *verdict.fix, *verdict.action.commands):
            assert str(escape(printable(said))) in text


def test_it_needs_nothing_from_elsewhere() -> None:
    text = page(report(stuck(8, 5), [5]))
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", text)
    assert "url(" not in text.replace("url(#arrow)", "")
    assert "default-src 'none'" in text


def test_the_three_kinds_of_missing_are_told_apart() -> None:
    rows = patterns(report(stuck(8, 5, missing=[2], short=[3]), [5]), 8)
    assert rows[0] == "D" * 39 + "W"
    assert rows[5] == "D" * 39 + "A"  # made no call: did not arrive
    assert rows[3] == "G" * 29 + "D" * 10 + "W"  # its ring no longer holds the first ones
    assert rows[2] == "N" * 40  # no dump


def test_calls_behind_an_older_unfinished_one_are_not_waited_in() -> None:
    table = collectives([dump(0, 2, 12, 9), dump(1, 2, 9, 9)])
    assert table is not None
    rows = patterns(report(table, [1]), 2)
    assert rows == {0: "D" * 9 + "WQQ", 1: "D" * 9 + "AAA"}


def test_a_call_that_differs_is_marked() -> None:
    table = collectives([dump(rank, 4, 20, 19, odd={20: "broadcast"} if rank == 2 else None) for rank in range(4)])
    assert table is not None
    group = data(page(report(table, [2])))["groups"][0]  # type: ignore[index]
    assert [(member, column) for member, column, _ in group["odd"]] == [(2, 19)]
    assert group["differ"] == [0]


def test_ranks_that_stand_alike_are_written_once() -> None:
    made = report(stuck(512, 77), [77])
    group = data(page(made))["groups"][0]  # type: ignore[index]
    assert len(group["patterns"]) == 2
    assert len(page(made)) < 120_000


def test_a_rank_far_behind_is_in_the_window() -> None:
    table = collectives([dump(rank, 4, 3000 if rank else 1500, 1500, first=1) for rank in range(4)])
    assert table is not None
    rows = patterns(report(table, [0]), 4)
    assert rows[0].startswith("D") and rows[0].endswith("A" * 1500)


def test_a_ring_that_counts_backwards_is_drawn_all_the_same() -> None:
    wild = dump(1, 4, 40, 39)
    wild.seq[:] = wild.seq[::-1].copy() * 10**15
    table = collectives([dump(0, 4, 40, 39), wild, dump(2, 4, 40, 39)])
    assert table is not None
    assert b"<canvas" in html.render(report(table, [1]))


def test_hostile_text_is_never_markup() -> None:
    table = stuck(4, 1, op=HOSTILE, group=HOSTILE, frame=Frame(HOSTILE, HOSTILE, 1))
    made = report(table, [1], says=HOSTILE, excerpt=HOSTILE)
    made = replace(
        made,
        ranks=tuple(replace(row, host=HOSTILE, says=HOSTILE, op=HOSTILE, group=HOSTILE) for row in made.ranks),
        timeline=(Moment("2027-01-15T08:00:00Z", HOSTILE, HOSTILE, 1, 1, HOSTILE),),
        gaps=(Missing(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        label=HOSTILE,
        tool=HOSTILE,
        footnotes=(HOSTILE,),
    )
    text = page(made)
    assert "<script>boom" not in text and "<img" not in text and "49" not in re.findall(r"\{\{.*?\}\}", text)
    assert len(re.findall(r"<script\b", text)) == len(re.findall(r"</script>", text)) == 2
    logs = page(replace(made, table=None, told=None))
    assert "<script>boom" not in logs and "<img" not in logs


def test_terminal_sequences_and_hidden_characters_do_not_reach_the_page() -> None:
    made = report(stuck(4, 1, op="all\x1b[31m_reduce\u202e"), [1], says="Rank\x1b]0;title\x07 1\u202e is late")
    text = page(made)
    assert "\x1b" not in text and "\u202e" not in text
    assert "Rank 1 is late" in text


def test_redaction_holds_for_all_of_the_page() -> None:
    frame = Frame("train_step", "/home/alice/secretproject/train.py", 88)
    made = report(stuck(8, 5, frame=frame, group="dp"), [5], says="Rank 5 on node-000 did not come.")
    plain = page(made)
    assert "/home/alice/secretproject" in plain and "node-000" in plain
    hidden = page(redact(made, pictures=True))
    for private in ("alice", "secretproject", "node-000"):
        assert private not in hidden
    assert patterns(redact(made, pictures=True), 8) == patterns(made, 8)
    assert "canvas" in hidden and "train_step" in hidden


def test_a_redacted_report_without_pictures_has_no_dumps() -> None:
    made = redact(report(stuck(8, 5), [5]))
    assert made.table is None and made.told is None


def test_logs_alone_have_a_grid_and_a_graph() -> None:
    made = samples.oom()
    rows = patterns(made, 64)
    assert rows[0].endswith("W") and rows[17].endswith("A")
    assert "Rank 17 on node-03" in page(made)


def test_all_ranks_at_a_glance() -> None:
    text = page(samples.oom())
    assert 'aria-label="Ranks by state: 1 culprit, 63 waiting"' in text
    assert "<title>rank 17 on node-03: culprit</title>" in text
    assert len(cluster.draw(report(stuck(4096, 1), [1], reasoned=False))) < 120_000


def test_a_healthy_job_has_nobody_who_did_not_arrive() -> None:
    made = report(stuck(8, 5))
    calm = page(replace(made, verdicts=(replace(made.verdicts[0], cause="none", mechanism="no_hang"),)))
    assert "did not arrive" not in calm and "not made yet" in calm
    assert 'id="waits"' not in calm


def test_a_report_that_says_nothing_is_a_page_too() -> None:
    text = page(Report(()))
    assert "Nothing that could be read" in text and "<canvas" not in text


def test_lateness_is_drawn_where_there_is_any() -> None:
    made = report(stuck(8, 3), [3])
    assert made.told is not None
    one = Late(3, 31, 40, 0.8, 1.5)
    slow = Lateness("rank", (3,), (one,), {rank: 0.8 if rank == 3 else -0.01 for rank in range(8)}, 40)
    text = page(replace(made, told=replace(made.told, late=slow)))
    assert "Rank 3 came late again and again" in text
    assert "rank 3: usually 0.8 s after the median of its group; late in 31 of 40 calls, at worst by 1.5 s" in text
    assert 'class="plot"' in text
    assert 'class="plot"' not in page(replace(made, told=replace(made.told, late=replace(slow, what="none", late=()))))
    assert 'id="late"' not in page(replace(made, told=replace(made.told, late=None)))


def test_a_plot_of_very_many_ranks_has_few_bars() -> None:
    many = Lateness("moving", (), (), {rank: rank / 1e4 for rank in range(4096)}, 40)
    assert draw.lateness(late.bars(many)).count("<g ") <= draw.BUCKETS


def test_proofs_that_are_alike_are_told_once() -> None:
    made = samples.oom()
    assert "more like it" in page(made)
    assert len(made.verdicts[0].because) > 60
    many = tuple(Proof(f"rank {n} waited", f"r{n}.log", n, "x") for n in range(5000))
    big = replace(made, verdicts=(replace(made.verdicts[0], because=many),))
    assert len(page(big)) < 200_000
