"""Explanations for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from whichrank.report.columns import aligned, command, hanging, wrapped
from whichrank.report.explained import Explained
from whichrank.report.printable import lead, printable

INDENT = 13


def lines(explained: Sequence[Explained], width: int) -> Iterator[Text]:
    """Each explanation: its title, the line it is about, and what there is to say under short labels."""
    for number, entry in enumerate(explained):
        if number:
            yield Text()
        yield from wrapped(Text(printable(entry.title), "bold"), width)
        if entry.line:
            more = f" (+{entry.more} alike)" if entry.more else ""
            shown = Text(lead(entry.line, width - 2 - len(more), lines=2) + more, "dim")
            yield from (Text("  ") + line for line in wrapped(shown, width - 2))
        for label, text in entry.parts:
            yield from hanging(label, printable(text), width, INDENT, label_style="cyan")
        for place, check in enumerate(entry.checks):
            label = "" if place else entry.asks
            if check.says or label:
                yield from hanging(label, printable(check.says), width, INDENT, label_style="cyan")
            yield from command(check.command, INDENT)
        if entry.page:
            yield from hanging("more", entry.page, width, INDENT, label_style="cyan")


def index(sections: Iterable[tuple[str, list[tuple[str, str]]]], width: int) -> Iterator[Text]:
    """All names that can be asked for, under their headings."""
    for heading, rows in sections:
        yield Text(heading, "bold")
        yield from aligned([(Text(name, "cyan"), Text(printable(text))) for name, text in rows], width)
        yield Text()
    yield Text("whichrank explain NAME; or a log line, an exit code, an Xid, a file, - for standard input", "dim")


def plain(explained: Sequence[Explained], width: int = 80) -> str:
    """The same as text without colours."""
    return "".join(line.plain.rstrip() + "\n" for line in lines(explained, width))
