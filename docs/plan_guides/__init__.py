"""Three guides, written from the calculators' own output: every number in them is computed when the pages are built."""

from __future__ import annotations

from collections.abc import Iterator

from plan_guides import networking, on_premises, parallelism
from whichrank.plan.catalog import Catalog


def guides(figures: Catalog) -> Iterator[tuple[str, str]]:
    """File name and Markdown of each guide; the first line is its title."""
    yield "guide-networking-and-storage.md", networking.networking(figures)
    yield "guide-parallelism.md", parallelism.parallelism(figures)
    yield "guide-on-premises.md", on_premises.on_premises(figures)
