"""What `whichrank explain` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.model import Check


@dataclass(frozen=True, slots=True)
class Explained:
    """What one message, number or word means.

    title   what it is about
    parts   (label, text) in the order in which they are read
    checks  commands that tell more, under the label `asks`
    line    the line that was explained, and `more` how many others are alike
    page    where the documentation says more
    """

    title: str
    parts: tuple[tuple[str, str], ...]
    checks: tuple[Check, ...] = ()
    line: str = ""
    more: int = 0
    asks: str = "prove it"
    page: str = ""
