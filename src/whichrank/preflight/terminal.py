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
    stops = answer.graded("stop")
    yield from _headline(answer, stops, width)
    for finding in _first(stops[1:], SHOWN - 1):
        yield from _finding("and", "bold red", finding, width)
    yield from _more(stops, SHOWN)
    for grade, label, style in (("warn", "look", "yellow"), ("note", "note", "dim")):
        found = answer.graded(grade)  # type: ignore[arg-type] # the two of them
        for finding in _first(found, SHOWN):
            yield from _finding(label, style, finding, width)
        yield from _more(found, SHOWN)
    yield Text()
    yield from aligned([_check(check) for check in answer.checks], width)
    if answer.nodes:
        yield Text()
        yield from aligned(list(_table(answer)), width)
        if len(answer.nodes) > NODES:
            yield Text(f"  and {len(answer.nodes) - NODES} more nodes: --json has all", "dim")


def _headline(answer: Answer, stops: Sequence[Finding], width: int) -> Iterator[Text]:
    nodes = len({row["node"] for row in answer.ranks})
    where = f"{answer.world} rank{'s' if answer.world != 1 else ''} on {nodes} node{'s' if nodes != 1 else ''}"
    if answer.go:
        warned = len(answer.graded("warn"))
        tail = f", with {warned} thing{'s' if warned != 1 else ''} to look at" if warned else ""
        yield Text("GO", "bold green") + Text(f"     {where}, {answer.backend}, checked in {answer.seconds:.0f} s{tail}")
        return
    yield from _finding("NO-GO", "bold red", stops[0], width)
    yield Text()
    yield Text(f"       {where}, {answer.backend}, checked in {answer.seconds:.0f} s", "dim")


def _finding(label: str, style: str, finding: Finding, width: int) -> Iterator[Text]:
    yield from hanging(label, printable(finding.says), width, 9, label_style=style)
    yield from hanging("do", printable(finding.do), width, 9, label_style="bold cyan")


def _first(findings: Sequence[Finding], most: int) -> Sequence[Finding]:
    return findings[:most]


def _more(findings: Sequence[Finding], shown: int) -> Iterator[Text]:
    if len(findings) > shown:
        yield Text(f"         and {len(findings) - shown} more like these: --json has all", "dim")


def _check(check: Any) -> tuple[Text, ...]:
    mark, style = MARKS[check.state]
    seconds = f"{check.seconds:.1f} s" if check.state != "skipped" else ""
    return Text(mark, style), Text(CHECKS[check.name]), Text(seconds, "dim"), Text(printable(check.says))


def _table(answer: Answer) -> Iterator[tuple[Text, ...]]:
    """Nodes, with what was measured from and to each."""
    titles = ["node", "ranks", "interface", "MTU", "Gb/s out", "in", "ms", "write MB/s", "fsync ms"]
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
        f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1 else ",".join(map(str, ranks)),
        f"{node['interface'] or '?'} {node['address'] or ''}".strip(),
        str(node["mtu"] or ""),
        _middle(out),
        _middle(into),
        _middle(trips),
        _middle(writes),
        _middle(syncs),
    ]


def _middle(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g}" if values else ""
