"""`whichrank explain kernel`, `whichrank explain py-spy`, and the list of all that can be asked for by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from whichrank.causes import BY_ID
from whichrank.evidence import READERS
from whichrank.model import FAMILIES, Check
from whichrank.report.evidence_pages import by_name, evidence_page, tools
from whichrank.report.explained import Explained

LINES = 4  # of a sample


def of_name(word: str) -> list[Explained]:
    """The formats of this name: a reader's (`kernel`, `evidence/kernel`), or that of a tool (`dmesg`); usually one."""
    name = word.lower().removeprefix("evidence/").removesuffix(".md")
    if (key := name.replace("-", "_").replace(" ", "_")) in READERS:
        return [_evidence(key)]
    return [_evidence(reader) for reader, names in _tools().items() if {name, word} & names]


def _tools() -> Mapping[str, set[str]]:
    return {name: tools(reader) for name, reader in by_name().items()}


def _evidence(name: str) -> Explained:
    page = evidence_page(name)
    parts = [("reads", page.about[0] if page.about else page.title), ("versions", page.versions)]
    parts += [("" if place else "note", text) for place, text in enumerate(page.about[1:])]
    if page.samples:
        lines = page.samples[0][0].strip("\n").splitlines()
        shown = lines[:LINES] + (["…"] if len(lines) > LINES else [])
        parts += [("" if place else "a sample", line.strip()) for place, line in enumerate(shown)]
        parts.append(("says", ", ".join(dict.fromkeys(fact.kind.replace("_", " ") for fact in page.samples[0][1]))))
    if page.settles:
        parts.append(("settles", ", ".join(dict.fromkeys(cause.id for cause, _ in page.settles))))
    commands = tuple(Check("", command) for command in page.collect)
    told = tuple((label, text.replace("``", "`")) for label, text in parts if text)
    return Explained(f"{name}: a format of evidence", told, commands, asks="get it", page=f"docs/evidence/{name}.md")


def index() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(heading, rows of name and meaning) of all causes and formats of evidence."""
    yield (
        "causes",
        [
            (cause, BY_ID[cause].title if cause in BY_ID else "the evidence cannot say what")
            for causes in FAMILIES.values()
            for cause in causes
        ],
    )
    yield "evidence", [(name, by_name()[name].title) for name in READERS]


def nearest(text: str) -> list[str]:
    """Names that can be explained and look like this one."""
    from whichrank.report.explain import MESSAGES
    from whichrank.report.explain_codes import SETTINGS
    from whichrank.report.explain_words import WORDS

    word = text.strip()
    if not word or len(word) > 60 or len(word.split()) > 3:
        return []
    names: dict[str, str] = {}
    for name in (*(cause for causes in FAMILIES.values() for cause in causes), *READERS, *FAMILIES, *WORDS, *MESSAGES):
        names.setdefault(_plain(name), name)
    for name in (*(tool for found in _tools().values() for tool in found), *SETTINGS):
        names.setdefault(_plain(name), name)
    return [names[found] for found in get_close_matches(_plain(word), names, 3, 0.7)]


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())
