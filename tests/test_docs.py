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
from whichrank.model import FAMILY, Check
from whichrank.report.evidence_pages import by_name, evidence_page, readers_of

ROOT = Path(__file__).parents[1]
DOC_PAGES = [page for page in (ROOT / "docs").rglob("*.md") if "templates" not in page.parts]
PAGES = sorted([*ROOT.glob("*.md"), *DOC_PAGES, ROOT / "examples" / "README.md"])
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
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
        ours = words[1 : words.index("--")] if "--" in words else words[1:]  # what follows is another program's
        for word in ours:
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


def test_pages_say_that_dumps_are_read() -> None:
    assert "flight_recorder" in READERS
    for name in ("README.md", "docs/evidence.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "docs/dumps.md" in text or "(dumps.md)" in text, name
        assert not re.search(r"not (?:there )?yet.{0,80}Flight Recorder dumps", text, re.I | re.S), name


def test_the_page_of_dumps_names_what_a_job_has_to_set() -> None:
    """The settings that the reader and the report ask for, and the formats that are read."""
    text = (ROOT / "docs" / "dumps.md").read_text(encoding="utf-8")
    for command in by_name()["flight_recorder"].collect:
        for name in re.findall(r"\b(TORCH_\w+)=", command):
            assert name in text, name
    for version in ("1.4", "2.1", "2.4", "2.9", "2.10"):
        assert f"| {version} |" in text, version
    assert "<!-- dump accuracy -->" in text


# What a reader has to bring for its page: docs/evidence.md, "For developers".
BINARY = ("digest", "ring")  # packed: no text could show it
RULE = "see docs/evidence.md, 'For developers: the page of a reader'"


@pytest.mark.parametrize("name", READERS)
def test_a_reader_brings_what_its_page_needs(name: str) -> None:
    reader, page = by_name()[name], evidence_page(name)
    assert reader.name == name
    assert page.title and page.title == page.title.strip(" ."), f"{name}: Reader(title=…) is missing; {RULE}"
    assert page.versions, f"{name}: Reader(versions=…) is missing; {RULE}"
    assert page.collect and all(page.collect), f"{name}: Reader(collect=(command, …)) is missing; {RULE}"
    assert page.about and page.about[0].endswith("."), f"{name}: the docstring begins with no sentence; {RULE}"
    assert page.samples or name in BINARY, (
        f"{name}: no doctest of the docstring gives a text to the reader that it knows; {RULE}"
    )


def test_every_page_is_there_and_fresh(build: ModuleType) -> None:
    """All but those that take a diagnosis of every case: `docs/build.py --check` looks at them too."""
    made = dict(build.made.pages())
    assert {path.stem for path in made if path.parent.name == "causes"} == set(FAMILY)
    assert {path.stem for path in made if path.parent.name == "evidence"} == set(READERS)
    stale = [path.relative_to(ROOT).as_posix() for path, text in made.items() if not build.same(path, text)]
    assert not stale, f"out of date: {stale}; run: python docs/build.py --quick"
    assert not build.stray(made), "pages of causes or readers that are gone; run: python docs/build.py --quick"


def test_the_table_of_formats_is_fresh(build: ModuleType) -> None:
    """Each row names a test and a file of a case that are there and hold such evidence."""
    page = ROOT / "docs" / "evidence.md"
    table = build.made.evidence_table(build.made.proofs(build.cases()))
    assert build.between(page.read_text(encoding="utf-8"), build.FORMATS) == table, "run: python docs/build.py --quick"
    for name in READERS:
        row = next(line for line in table.splitlines() if f"[{name}]" in line)
        assert "../tests/evidence/test_" in row, f"{name}: no test in tests/evidence speaks of its facts"


def test_pages_say_what_they_must(build: ModuleType) -> None:
    made = {path.relative_to(ROOT / "docs").as_posix(): text for path, text in build.made.pages()}
    for cause in CAUSES:
        for text in (made[f"causes/{cause.id}.md"], made["settle.md"]):
            assert all(build.made.filled(check.says) in text for check in cause.settles)
        assert f"causes/{cause.id}.md" in made["causes.md"]
    for name in READERS:
        text = made[f"evidence/{name}.md"]
        assert all(command in text for command in by_name()[name].collect)
        assert f"evidence/{name}.md" in made["settle.md"]
    for name, text in made.items():
        assert not re.search(r"\{(?:host|rank|pid|site)\}", text), f"a placeholder is left in {name}"
        assert "\n\n\n" not in text, name


def test_evidence_and_causes_point_at_each_other() -> None:
    """What a check collects settles its cause, seen from both sides."""
    kernel = {cause.id for cause, _ in evidence_page("kernel").settles}
    assert {"host_oom", "gpu_fault", "network", "slow_storage"} <= kernel and "cuda_oom" not in kernel
    assert readers_of(Check("", "ssh HOST 'py-spy dump --pid 3'")) == ["stacks"]
    assert readers_of(Check("", "sacct -j 3   # or: kubectl describe pod POD")) == ["slurm", "kubernetes"]
    assert readers_of(Check("rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL")) == ["torch_desync"]
    assert readers_of(Check("count the batches, ssh to the host", "ls -l; sleep 3")) == []


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
