"""The page of `history why`: what it says, that nothing of a log becomes markup, that many incidents stay readable."""

from __future__ import annotations

import html as markup
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_histories import bad_node, nobody, runs, somebody

from whichrank import __main__ as program
from whichrank.history import html
from whichrank.history.answer import why
from whichrank.history.incident import History, Run

RUNS = Path(__file__).parent / "runs"
HOSTILE = '<script>window.ran=1</script><img src=x onerror="window.ran=1">\'"</title></svg>'
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (apt-get install chromium)")


def text(page: bytes) -> str:
    return page.decode("utf-8")


def plain(page: bytes) -> str:
    return markup.unescape(re.sub(r"<[^>]+>", " ", text(page).partition("<main>")[2]))


def confounded() -> History:
    dice = random.Random(1)
    placement = tuple((f"gn{place:03}", 8) for place in range(4))
    made = [Run(f"r{n}", "", 1.7e9 + 1e5 * n, 1.7e9 + 1e5 * n + 9e4, placement, 32) for n in range(8)]
    return History.of(made, [somebody(run, dice, rank=13, host="gn001") for run in made])


def many(count: int) -> History:
    """gn001 is in a third of all incidents."""
    dice = random.Random(3)
    made = runs(count, 60, 3)
    hit = [replace(run, placement=(("gn001", 8), *(row for row in run.placement[1:] if row[0] != "gn001"))) if n % 3 == 0 else run for n, run in enumerate(made)]  # fmt: skip
    return History.of(hit, [
        somebody(run, dice, rank=3, host="gn001", shard=f"p{n % 50}") if n % 3 == 0 else somebody(run, dice, shard=f"p{n % 50}")
        for n, run in enumerate(hit)
    ])  # fmt: skip


def test_the_conclusion_comes_first_then_the_next_action() -> None:
    answer = why(bad_node(6, 24, 1))
    told = plain(html.render(answer))

    assert told.index("gn001 is behind 6 of 9 incidents") < told.index(answer.says) < told.index(answer.action)
    assert told.index(answer.action) < told.index("Over time") < told.index("What was weighed")
    for command in answer.commands:
        assert command in told


def test_what_cannot_be_told_apart_is_said() -> None:
    told = plain(html.render(why(confounded())))

    assert "these runs cannot tell which" in told and "were never apart in these runs" in told and "rotated" in told


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_incidents_have_a_page_too(count: int) -> None:
    page = html.render(why(nobody(count, 12, 5)))

    assert text(page).count('<tr id="i') == count and "undecided" in plain(page)


def test_every_incident_of_a_small_history_is_a_mark_that_leads_to_its_row() -> None:
    page = text(html.render(why(bad_node(6, 24, 2))))

    rows = set(re.findall(r'<tr id="(i\d+)"', page))
    assert len(rows) == 9
    for view in re.findall(r'<svg class="plot times".*?</svg>', page, re.S):
        assert set(re.findall(r'href="#(i\d+)"', view)) <= rows
    assert rows == set(re.findall(r'class="mark" href="#(i\d+)"', page))


def test_very_many_incidents_are_counted_and_the_page_stays_small() -> None:
    page = html.render(why(many(6000)))

    assert len(page) < 2_000_000
    assert text(page).count('<tr id="i') == 200 and "5,800 more" in plain(page)
    cells = re.findall(r"gn001, [\d: -]+ to [\d: -]+: ([\d,]+) incidents?", plain(page))
    assert sum(int(cell.replace(",", "")) for cell in cells) == 2000 + sum(
        one.host == "gn001" for place, one in enumerate(many(6000).incidents) if place % 3
    )


def test_hostile_names_are_shown_and_are_no_markup() -> None:
    made = bad_node(6, 24, 3)
    bad = {"gn001": HOSTILE}
    hosts = lambda name: bad.get(name, name)  # noqa: E731
    made = History.of(
        [replace(run, label=HOSTILE, placement=tuple((hosts(host), count) for host, count in run.placement)) for run in made.runs],
        [replace(one, host=hosts(one.host), shard=HOSTILE, sample=HOSTILE, site=HOSTILE, says=HOSTILE, cause=HOSTILE, service=HOSTILE, grade=HOSTILE, source=HOSTILE) for one in made.incidents],
    )  # fmt: skip
    page = text(html.render(why(made), Path()))

    assert HOSTILE not in page and "<img" not in page and page.count("<script") == 1
    assert re.findall(r'\bon\w+="', page) == []
    assert markup.escape(HOSTILE)[:40] in page


@pytest.mark.parametrize(
    "source", ["javascript:alert(1)", "https://example.org/x.log", "data:text/html,x", "no/such.log:3"]
)
def test_what_is_no_file_here_is_no_link(source: str, tmp_path: Path) -> None:
    made = bad_node(6, 24, 3)
    page = text(
        html.render(
            why(replace(made, incidents=tuple(replace(one, source=source) for one in made.incidents))), tmp_path
        )
    )

    assert not [link for link in re.findall(r'href="([^"]*)"', page) if not link.startswith(("#", "data:,"))]


def test_the_command_writes_it_with_links_to_the_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(RUNS / "one-node", tmp_path / "all my logs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    assert program.run(["history", "why", "all my logs", "--html", "out/why.html"]) == 1
    told = capsys.readouterr().out
    page = (tmp_path / "out" / "why.html").read_text(encoding="utf-8")

    assert "hx07" in told and "hx07 is behind 6 of 6 incidents" in page
    links = re.findall(r'href="(\./[^"]*)"', page)
    assert len(links) == 6 and all(link.startswith("./../all%20my%20logs/run") for link in links)
    assert "took part" in page  # the nodes of each run are known

    assert program.run(["history", "why", "all my logs", "--html", "-"]) == 1
    assert capsys.readouterr().out.startswith("<!doctype html>")


def test_a_kept_history_leads_to_its_evidence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy")
    shutil.copytree(RUNS / "one-node", tmp_path / "logs")
    monkeypatch.chdir(tmp_path / "logs")
    for run in sorted((tmp_path / "logs").glob("run*")):
        assert program.run(["diagnose", run.name, "--history", str(tmp_path / "kept.db")]) == 1
    monkeypatch.chdir(tmp_path)
    assert program.run(["history", "why", "--history", "kept.db", "--html", "why.html"]) == 1
    page = (tmp_path / "why.html").read_text(encoding="utf-8")

    assert len(re.findall(r'href="\./logs/run\d', page)) == 6 and "took part" in page


# --- in a real browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as runner:
        started = runner.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    contexts = []

    def open_it(history: History, **options: Any) -> Any:
        path = tmp_path / "why.html"
        path.write_bytes(html.render(why(history)))
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                page.complaints.append(request.url) if not request.url.startswith(("file:", "data:")) else None
            ),
        )
        page.goto(path.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()


@needs_browser
def test_marks_and_tabs_by_the_keyboard(opened: Callable[..., Any]) -> None:
    page = opened(bad_node(6, 24, 2))
    page.focus("#view-node .mark[tabindex='0']")
    first = page.inner_text("#note")
    page.keyboard.press("ArrowRight")
    second = page.inner_text("#note")
    assert first and second and first < second  # in the order of time
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash").startswith("#i")
    assert page.evaluate("document.querySelector('tr:target') !== null")

    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("[role=tab][aria-selected=true]") == "Rank"
    assert page.is_visible("#view-rank") and page.is_hidden("#view-node")
    assert page.complaints == []


@needs_browser
def test_it_needs_no_script(opened: Callable[..., Any]) -> None:
    page = opened(bad_node(6, 24, 2), java_script_enabled=False)

    assert all(page.is_visible(f"#view-{name}") for name in ("node", "rank", "step", "hour")) and page.is_hidden(
        ".tabs"
    )


@needs_browser
@pytest.mark.parametrize("made", [bad_node(6, 24, 2), nobody(3, 12, 5), many(6000)], ids=["nine", "three", "thousands"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_scrolls_down_only(opened: Callable[..., Any], made: History, scheme: str) -> None:
    page = opened(made, viewport={"width": 390, "height": 800}, color_scheme=scheme)

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints == []


@needs_browser
def test_hostile_text_is_not_run(opened: Callable[..., Any]) -> None:
    made = bad_node(6, 24, 3)
    page = opened(
        History.of(
            made.runs, [replace(one, says=HOSTILE, sample=HOSTILE, host=one.host and HOSTILE) for one in made.incidents]
        )
    )
    page.focus("#view-node .mark[tabindex='0']")
    page.wait_for_timeout(50)

    assert page.evaluate("window.ran") is None and page.locator("img").count() == 0
    assert page.complaints == []


@needs_browser
def test_dark_and_light_by_hand(opened: Callable[..., Any]) -> None:
    page = opened(bad_node(6, 24, 2))
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
