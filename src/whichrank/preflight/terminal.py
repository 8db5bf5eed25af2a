"""The answer for a person: first go or no-go and what to change, then what was checked, then a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from whichrank.preflight.answer import CHECKS, Answer, Finding
from whichrank.report.columns import aligned, hanging
from whichrank.report.printable import printable

SHOWN = 8  # findings of a grade; the rest are counted: --json has them all
NODES = 32  # rows of the table
MARKS = {"passed": ("ok", "green"), "failed": ("NO", "bold red"), "warned": ("look", "yellow"), "skipped": ("-", "dim")}


def lines(answer: Answer, width: int) -> Iterator[Text]:
    for grade, label, style in (("stop", "NO-GO", "bold red"), ("warn", "look", "yellow"), ("note", "note", "dim")):
        found = answer.graded(grade)  # type: ignore[arg-type] # the three of them
        for place, finding in enumerate(found[:SHOWN]):
            yield from _finding("and" if place and grade == "stop" else label, style, finding, width)
        if len(found) > SHOWN:
            yield Text(f"         and {len(found) - SHOWN} more like these: --json has all", "dim")
        if grade == "stop":
            yield from _summary(answer, width)
    yield Text()
    yield from aligned([_check(check) for check in answer.checks], width)
    if answer.nodes:
        yield Text()
        yield from aligned(list(_table(answer)), width)
        if len(answer.nodes) > NODES:
            yield Text(f"  and {len(answer.nodes) - NODES} more nodes: --json has all", "dim")


def _summary(answer: Answer, width: int) -> Iterator[Text]:
    """Behind what stops, or GO with it, at the very top."""
    nodes = len({row["node"] for row in answer.ranks})
    came = f"{answer.world}" if len(answer.ranks) == answer.world else f"{len(answer.ranks)} of {answer.world}"
    says = f"{came} rank{'s' if answer.world != 1 else ''} on {nodes} node{'s' if nodes != 1 else ''}, {answer.backend}, checked in {answer.seconds:.0f} s"
    if answer.go:
        warned = len(answer.graded("warn"))
        tail = f", {warned} thing{'s' if warned != 1 else ''} to look at" if warned else ""
        yield from hanging("GO", says + tail, width, 9, label_style="bold green")
    else:
        yield Text()
        yield from hanging("", says, width, 9)


def _finding(label: str, style: str, finding: Finding, width: int) -> Iterator[Text]:
    yield from hanging(label, printable(finding.says), width, 9, label_style=style)
    yield from hanging("do", printable(finding.do), width, 9, label_style="bold cyan")


def _check(check: Any) -> tuple[Text, ...]:
    mark, style = MARKS[check.state]
    seconds = f"{check.seconds:.1f} s" if check.state != "skipped" else ""
    return Text(mark, style), Text(CHECKS[check.name]), Text(seconds, "dim"), Text(printable(check.says))


def _table(answer: Answer) -> Iterator[tuple[Text, ...]]:
    """Nodes, with what was measured from and to each."""
    titles = ["node", "ranks", "interface", "MTU", "Gb/s out", "in", "ms", "MB/s", "fsync ms"]
    rows = [_row(answer, node) for node in answer.nodes[:NODES]]
    used = [place for place in range(len(titles)) if any(row[place] for row in rows)]
    yield tuple(Text(titles[place], "bold") for place in used)
    for row in rows:
        yield tuple(Text(printable(row[place])) for place in used)


def _row(answer: Answer, node: dict[str, Any]) -> list[str]:
    name = node["node"]
    others = [row for row in answer.pairs if row["from"] != row["to"]]
    out = [row["gbps"] for row in others if row["from"] == name and row["gbps"] is not None]
    into = [row["gbps"] for row in others if row["to"] == name and row["gbps"] is not None]
    trips = [row["rtt_ms"] for row in others if name in (row["from"], row["to"]) and row["rtt_ms"] is not None]
    took = [one["took"] for one in answer.storage if one["node"] == name]
    writes = [8.388608 / one["write"] for one in took if one.get("write")]
    syncs = [one["fsync"] * 1000 for one in took if "fsync" in one]
    ranks = node["ranks"]
    return [
        name,
        f"{ranks[0]}-{ranks[-1]}"
        if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1
        else ",".join(map(str, ranks)),
        f"{node['interface'] or '?'} {node['address'] or ''}".strip(),
        str(node["mtu"] or ""),
        _middle(out),
        _middle(into),
        _middle(trips),
        _middle(writes),
        _middle(syncs),
    ]


def _middle(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = statistics.median(values)
    return f"{middle:.0f}" if middle >= 100 else f"{middle:.3g}"
