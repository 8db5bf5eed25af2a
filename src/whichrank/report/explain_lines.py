"""Explanations for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from whichrank.report.columns import command, hanging, wrapped
from whichrank.report.explain import Explained
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
            yield from hanging("" if place else "prove it", printable(check.says), width, INDENT, label_style="cyan")
            yield from command(check.command, INDENT)


def plain(explained: Sequence[Explained], width: int = 80) -> str:
    """The same as text without colours."""
    return "".join(line.plain.rstrip() + "\n" for line in lines(explained, width))
