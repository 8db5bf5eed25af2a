"""Read a few lines with one reader alone: for the readers' docstrings and tests."""

from __future__ import annotations

from whichrank.evidence import envelope
from whichrank.evidence.scan import Reader, Scanner
from whichrank.facts import Fact, Source


def facts(reader: Reader, text: str) -> list[Fact]:
    """What `reader` alone makes of a text.

    >>> from whichrank.evidence.scan import Line
    >>> facts(Reader("x", (Line("step", "step", r"step (?P<n>\\d+)"),)), "[rank3]: step 7")[0]["n"]
    7
    """
    source = Source("sample")
    return [fact for part in envelope.peel(text, source) for fact in Scanner((reader,)).scan(part, source)[0]]
