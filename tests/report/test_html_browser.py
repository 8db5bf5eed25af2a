"""The page in a real browser, headless: it works from a file, needs no network, obeys the keyboard, runs nothing hostile."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import samples
from made_dumps import report, stuck

from whichrank.dump import Frame
from whichrank.model import Moment, Report
from whichrank.report import html

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (apt-get install chromium)")

HOSTILE = '<script>window.ran=1</script><img src=x onerror="window.ran=1">\'"</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as runner:
        started = runner.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page with all that it complained of and all that it asked the network for."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def open_it(of: Report, **options: Any) -> Opened:
        path = tmp_path / "page.html"
        path.write_bytes(html.render(of))
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        return Opened(contexts[-1].new_page(), path)

    yield open_it
    for context in contexts:
        context.close()


def pixel(page: Any, x: float, y: float) -> list[int]:
    found: list[int] = page.evaluate(
        "([x, y]) => [...document.getElementById('cells').getContext('2d').getImageData(x, y, 1, 1).data.slice(0, 3)]",
        [x, y],
    )
    return found


def wait(page: Any, expression: str) -> None:
    """Until it is true. The page's policy forbids what playwright's own waiting needs: to make code of a string."""
    end = time.monotonic() + 5
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def ink(page: Any) -> int:
    """Different colours on the canvas: a grid that was not drawn has one."""
    found: int = page.evaluate(
        "() => { const c = document.getElementById('cells'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size; }"
    )
    return found


def tip(page: Any) -> str:
    text: str = page.inner_text("#tip")
    return text


@pytest.mark.parametrize("made", [report(stuck(8, 5, missing=[2]), [5]), samples.oom()], ids=["dumps", "logs"])
def test_it_opens_without_errors_and_without_network(opened: Callable[..., Opened], made: Report) -> None:
    shown = opened(made)
    assert made.verdicts[0].says in shown.page.inner_text("#answer")
    assert ink(shown.page) > 8
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith(("file:", "data:"))] == []


def test_the_keyboard_walks_through_the_grid(opened: Callable[..., Opened]) -> None:
    page = opened(report(stuck(8, 5), [5])).page
    page.focus("#cells")
    page.keyboard.press("c")  # to the culprit, where the others wait for it
    assert "rank 5 on node-000 (culprit)" in tip(page) and "#40" in tip(page) and "did not make it" in tip(page)
    page.keyboard.press("ArrowUp")
    assert "rank 4 on node-000" in tip(page) and "waits in it" in tip(page) and "train.py:88 train_step" in tip(page)
    page.keyboard.press("ArrowLeft")
    assert "#39 all_reduce [4096, 1024] bf16: ended" in tip(page)
    page.keyboard.press("Home")
    assert "#1 " in tip(page)
    page.keyboard.press("Escape")
    assert page.is_hidden("#tip")


def test_the_wheel_zooms_once_the_grid_has_the_focus_and_scrolls_the_page_before(opened: Callable[..., Opened]) -> None:
    page = opened(report(stuck(64, 5, calls=400), [5])).page
    box = page.locator("#cells").bounding_box()
    before = page.evaluate("document.getElementById('cells').toDataURL()")
    page.mouse.move(box["x"] + 400, box["y"] + 40)
    page.mouse.wheel(0, 200)
    wait(page, "scrollY > 0")
    assert page.evaluate("document.getElementById('cells').toDataURL()") == before
    page.evaluate("scrollTo(0, 0)")
    page.focus("#cells")
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(50)
    assert page.evaluate("document.getElementById('cells').toDataURL()") != before
    assert page.evaluate("scrollY") == 0


def test_another_rank_is_found_by_its_number(opened: Callable[..., Opened]) -> None:
    page = opened(report(stuck(512, 300), [300])).page
    page.uncheck("#fold")
    page.fill("#rank", "411")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tip:not([hidden])")
    assert "rank 411 on node-051" in tip(page)


def test_dark_mode_by_preference_and_by_hand(opened: Callable[..., Opened]) -> None:
    def paper(page: Any) -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    made = report(stuck(8, 5), [5])
    light, dark = opened(made).page, opened(made, color_scheme="dark").page
    assert paper(light) != paper(dark)
    assert pixel(light, 5, 100) != pixel(dark, 5, 100)
    before = pixel(light, 5, 100)
    light.click("#theme")
    assert paper(light) == paper(dark)
    assert pixel(light, 5, 100) != before


def test_it_is_light_on_paper(opened: Callable[..., Opened]) -> None:
    page = opened(report(stuck(8, 5), [5]), color_scheme="dark").page
    screen = pixel(page, 5, 100)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert pixel(page, 5, 100) == [255, 255, 255] != screen
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert pixel(page, 5, 100) == screen


def test_4096_ranks_are_ready_in_seconds(opened: Callable[..., Opened]) -> None:
    made = report(stuck(4096, 1069, calls=200), [1069], reasoned=False)
    assert len(html.render(made)) < 2_000_000
    start = time.monotonic()
    page = opened(made).page
    page.focus("#cells")
    page.keyboard.press("c")
    assert "rank 1069" in tip(page)
    assert "0-1068, 1070-4095" in page.evaluate("document.getElementById('list').textContent")
    page.uncheck("#fold")
    assert ink(page) > 4
    page.focus("#cells")
    page.keyboard.press("c")
    assert "rank 1069 on node-133 (culprit)" in tip(page)
    assert time.monotonic() - start < 10


def test_hostile_text_is_shown_and_not_run(opened: Callable[..., Opened]) -> None:
    table = stuck(4, 1, op=HOSTILE, group=HOSTILE, frame=Frame(HOSTILE, HOSTILE, 1))
    made = report(table, [1], says=HOSTILE, excerpt=HOSTILE)
    made = replace(
        made,
        ranks=tuple(replace(row, host=HOSTILE, says=HOSTILE) for row in made.ranks),
        timeline=(Moment("2027-01-15T08:00:00Z", HOSTILE, HOSTILE, 1, 1, HOSTILE),),
    )
    shown = opened(made)
    shown.page.focus("#cells")
    shown.page.keyboard.press("c")
    shown.page.wait_for_timeout(100)
    assert HOSTILE in tip(shown.page)
    assert HOSTILE in shown.page.inner_text("h1")
    assert shown.page.evaluate("window.ran") is None
    assert shown.page.locator("img").count() == 0
    assert shown.complaints == []


def test_scripts_that_are_not_the_pages_own_are_refused(opened: Callable[..., Opened]) -> None:
    shown = opened(report(stuck(4, 1), [1]))
    shown.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); }"
    )
    assert shown.page.evaluate("window.ran") is None


def test_nothing_moves_once_the_page_is_shown(opened: Callable[..., Opened]) -> None:
    page = opened(report(stuck(8, 5), [5])).page
    shift = page.evaluate(
        "() => new Promise((done) => { let sum = 0; new PerformanceObserver((list) => { for (const e of list.getEntries()) sum += e.value; })"
        ".observe({ type: 'layout-shift', buffered: true }); setTimeout(() => done(sum), 300); })"
    )
    assert shift < 0.01


def test_a_narrow_window_scrolls_down_only(opened: Callable[..., Opened]) -> None:
    page = opened(report(stuck(64, 5), [5]), viewport={"width": 360, "height": 700}).page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_node_of_the_graph_leads_to_where_its_ranks_stand(opened: Callable[..., Opened]) -> None:
    page = opened(report(stuck(8, 5), [5])).page
    page.focus(".node.culprit")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent").lstrip().startswith("Rank 5")
    assert "train.py:88 train_step" in page.evaluate("document.activeElement.textContent")


def test_commands_can_be_copied(opened: Callable[..., Opened]) -> None:
    page = opened(samples.oom()).page
    page.click("#answer .copy")
    wait(page, "['copied', 'selected'].includes(document.querySelector('#answer .copy').textContent)")
