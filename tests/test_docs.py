"""The pages say what is there: links lead somewhere, commands run, every cause is described."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from whichrank.causes import CAUSES
from whichrank.cli import COMMANDS, main
from whichrank.evidence import READERS
from whichrank.model import FAMILY

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "plan").glob("*.md"),
        ROOT / "examples" / "README.md",
    ]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec and spec.loader
    module = sys.modules["docs_build"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prose(path: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    titles = re.findall(r"^#+ +(.+)$", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def commands() -> Iterator[tuple[str, str]]:
    """Every call of whichrank that a page shows, with the page's name."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```console\n(.*?)^```", text, re.S | re.M)
        lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
        lines += re.findall(r"`(whichrank [^`]+)`", text)
        for line in lines:
            if "whichrank " in line and not line.startswith(("pip", "uvx")):
                yield page.name, line[line.index("whichrank ") :]


def _options(command: click.Command) -> list[str]:
    return [option for param in command.params for option in (*param.opts, *param.secondary_opts)]


def test_options_exist() -> None:
    """An option that a page mentions beside whichrank is one of the command's."""
    known = {"--help", "--version"}
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        known.update(_options(command))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                known.update(_options(found))
    shown = list(commands())
    assert len(shown) > 8
    for page, line in shown:
        words = shlex.split(line, comments=True)
        for word in words[1:]:
            if word.startswith("--") and words[1] != "explain":
                assert word.split("=")[0] in known, (page, line)


def test_evidence_page_knows_the_options() -> None:
    command = main.get_command(click.Context(main), "diagnose")
    assert command is not None
    text = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    for option in ("--placement", "--world-size", "--attempt", "--since"):
        assert any(option in param.opts for param in command.params)
        assert option in text


def test_readme_counts_causes() -> None:
    """The number of causes in README and changelog; "none" is no cause."""
    count = len([cause for cause in CAUSES if cause.id != "none"])
    for name in ("README.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert {int(found) for found in re.findall(r"\b(\d+) \[?causes\b", text)} == {count}, name


def test_no_flight_recorder_yet() -> None:
    """The pages say that dumps are not read: once a reader is there they must say something else."""
    assert "flight_recorder" not in READERS
    for name in ("README.md", "docs/evidence.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(r"not (?:there )?yet.{0,80}Flight Recorder dumps", text, re.I | re.S), name


def test_causes_page_is_complete(build: ModuleType) -> None:
    page: str = build.causes_page()
    for cause in FAMILY:
        assert f"\n### {cause}\n" in page
        assert f"(#{cause})" in page
    assert not re.search(r"\{(?:host|rank|pid|site)\}", page), "a placeholder is left"


def test_picture_is_compared_by_text(build: ModuleType, tmp_path: Path) -> None:
    svg = (ROOT / "docs" / "img" / "verdict.svg").read_text(encoding="utf-8")
    copy = tmp_path / "copy.svg"
    copy.write_text(svg.replace("whichrank-r1", "other-r1").replace("12.2", "12.4"), encoding="utf-8")
    assert build.same(copy, svg)
    copy.write_text(svg.replace("cedar12", "cedar13"), encoding="utf-8")
    assert not build.same(copy, svg)
    assert "http" not in svg.replace("http://www.w3.org", "").replace("https://www.textualize.io", "")


def test_table_is_replaced_between_its_marks(build: ModuleType) -> None:
    text = "a\n<!-- accuracy -->\nold\n<!-- /accuracy -->\nb"
    new = build.replaced(text, build.TABLE, "new")
    assert new == "a\n<!-- accuracy -->\nnew\n<!-- /accuracy -->\nb"
    assert build.between(new, build.TABLE) == "new"
    assert build.replaced("no marks", build.TABLE, "new") == "no marks"
