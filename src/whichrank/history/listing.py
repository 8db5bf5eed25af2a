"""A history for a terminal: five lines that answer, then a table; and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

import msgspec
from rich.text import Text

from whichrank.errors import UsageProblem
from whichrank.history import words
from whichrank.history.answer import Why, tables
from whichrank.history.incident import Incident
from whichrank.history.views import Blame, blame
from whichrank.history.why import SURE
from whichrank.report.columns import GRADE_STYLE, aligned, command, hanging, wrapped
from whichrank.report.printable import many, printable

ROWS = 12  # incidents of an answer that are shown
BLAMED = 5  # nodes of which it is shown what they are blamed for
ALIKE = (
    ("host", 3),
    ("gpu", 3),
    ("sample", 4),
    ("shard", 4),
    ("service", 3),
    ("site", 2),
    ("rank", 2),
    ("cause", 2),
    ("family", 1),
)


def as_json(incidents: Sequence[Incident]) -> bytes:
    rows = [{"key": one.key, **asdict(one), "at": _time(one.at)} for one in incidents]
    return msgspec.json.format(msgspec.json.encode({"schema_version": 1, "incidents": _clean(rows)}), indent=1) + b"\n"


def why_json(why: Why) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_clean(why.to_json())), indent=1) + b"\n"


def _clean(value: Any) -> Any:
    """Texts without terminal sequences: names come from logs."""
    if isinstance(value, str):
        return printable(value, keep_lines=True)
    if isinstance(value, dict):
        return {printable(str(name)): _clean(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(inner) for inner in value]
    return value if not hasattr(value, "item") else value.item()


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def alike(incidents: Sequence[Incident], key: str) -> list[Incident]:
    """The others, most like the one with this key first; those with nothing in common are left out."""
    fits = [one for one in incidents if one.key.startswith(key)]
    if len(fits) != 1:
        raise UsageProblem(f"{key}: {'no' if not fits else 'more than one'} incident has a key that begins so")
    this = fits[0]
    scored = [(_likeness(this, other), other) for other in incidents if other.key != this.key]
    return [other for score, other in sorted(scored, key=lambda row: (-row[0], -(row[1].at or 0.0))) if score >= 2]


def _likeness(one: Incident, other: Incident) -> int:
    return sum(
        weight
        for name, weight in ALIKE
        if getattr(one, name) is not None and getattr(one, name) == getattr(other, name)
    )


def lines(incidents: Sequence[Incident], width: int) -> Iterator[Text]:
    """One line for each incident."""
    if not incidents:
        yield Text("no incident fits")
        return
    yield Text(f"{many(len(incidents), 'incident')}, the latest first", "dim")
    yield Text()
    rows = [
        (
            Text(_when(one.at), "dim"),
            Text(one.cause, "bold"),
            Text(one.grade, GRADE_STYLE.get(one.grade, "")),
            Text(_who(one)),
            Text(one.key[:8], "dim"),
            Text(printable(one.says)),
        )
        for one in incidents
    ]
    yield from aligned(rows, width)


def _when(at: float | None) -> str:
    if at is None:
        return "-"
    found = datetime.fromtimestamp(at, timezone.utc)
    return found.strftime("%H:%M" if found.year <= 1970 else "%Y-%m-%d %H:%M")  # a time of day without a date


def _who(one: Incident) -> str:
    rank = f"rank {one.rank}" if one.rank is not None else ""
    return printable(" ".join(filter(None, [rank, f"on {one.host}" if one.host and rank else one.host or ""]))) or "-"


def why_lines(why: Why, width: int) -> Iterator[Text]:
    """The answer, what to do, and below it the incidents that it rests on."""
    found = why.findings
    seen = f"{many(found.incidents, 'incident')} in {many(found.runs, 'run')} on {many(found.hosts, 'node')}"
    if found.coalesced:
        seen += f"; {many(found.coalesced, 'repeat')} of the same failure counted once"
    yield Text(seen, "dim")
    yield Text()
    yield from _headline(why, width)
    yield Text()
    yield from hanging("now", printable(why.action), width, 8, label_style="bold cyan")
    for line in why.commands:
        yield from command(line, 8)
    for pattern in why.patterns[1:]:
        yield from hanging(
            "also", f"{printable(words.says(pattern, found))} {printable(words.action(pattern))}", width, 8
        )
    yield from _weighed(why, width)
    yield from _incidents(why, width)
    yield from _counts(why, width)


def _headline(why: Why, width: int) -> Iterator[Text]:
    if not why.patterns:
        yield from wrapped(Text("  ") + Text(printable(why.says), "bold"), width)
        return
    best = why.patterns[0]
    title = Text.assemble("  ", (printable(best.name), "bold red"), "   ")
    grade = "" if best.posterior >= SURE else ": likely"
    told = "cannot be told apart" if best.confounded else f"{best.posterior:.0%} sure{grade}"
    sure = Text(told, "magenta" if best.confounded else "yellow" if grade else "green")
    yield title + sure
    for line in wrapped(Text(printable(why.says)), width - 2):
        yield Text("  ") + line
    if best.also:
        yield from wrapped(Text(f"  The same incidents also share: {printable(', '.join(best.also))}.", "dim"), width)


def _weighed(why: Why, width: int) -> Iterator[Text]:
    seen: set[tuple[str, str]] = set()
    rows: list[tuple[Text, ...]] = []
    for pattern in (*why.patterns, *why.findings.weighed):
        if (pattern.kind, pattern.name) in seen or pattern.posterior < 0.02 or len(rows) >= 6:
            continue
        seen.add((pattern.kind, pattern.name))
        count = f"{pattern.hits} of {pattern.of}, {pattern.expected:.1f} by chance"
        rows.append(
            (
                Text(pattern.kind.replace("_", " ")),
                Text(printable(pattern.name), "bold"),
                Text(count, "dim"),
                Text(f"{pattern.posterior:4.0%}"),
                Text("█" * max(1, round(10 * pattern.posterior)), "cyan"),
            )
        )
    if rows:
        yield Text()
        yield Text("weighed", "bold")
        yield from aligned(rows, width)


def _incidents(why: Why, width: int) -> Iterator[Text]:
    """In time order, those of the answer marked; where there are many, only those."""
    mine = set(why.patterns[0].incidents) if why.patterns else set()
    numbered = [(place, one) for place, one in enumerate(why.history.incidents) if one.cause != "none"]
    shown = sorted(numbered, key=lambda row: row[1].order)
    if len(shown) > ROWS and mine:
        shown = [row for row in shown if row[0] in mine]
    rest = len(numbered) - len(shown[-ROWS:])
    if not shown:
        return
    yield Text()
    yield Text("incidents", "bold")
    rows = [
        (
            Text("●" if place in mine else " ", "red"), Text(_when(one.at), "dim"), Text(_who(one)), Text(one.cause),
            Text(", ".join(filter(None, [
                printable(one.sample or one.shard or ""), f"step {one.step}" if one.step is not None else "",
                printable(one.site or ""), printable(one.service or ""),
            ])), "dim"),
        )
        for place, one in shown[-ROWS:]
    ]  # fmt: skip
    yield from aligned(rows, width)
    if rest > 0:
        yield Text(f"  … {rest:,} more: whichrank history, or --json", "dim")


def _counts(why: Why, width: int) -> Iterator[Text]:
    """Blame by node, rank and hour: what the pictures of the page show."""
    by = tables(why.history)
    rows = []
    for name, word in (
        ("node", "nodes"),
        ("rank", "ranks"),
        ("shard", "data"),
        ("cause", "causes"),
        ("hour", "hours (UTC)"),
    ):
        top = by[name][:5]
        if top and (len(by[name]) > 1 or top[0]["incidents"] > 1):
            told = ", ".join(f"{row['name']}: {row['incidents']}" for row in top) + (" …" if len(by[name]) > 5 else "")
            rows.append((Text(word, "bold"), Text(printable(told))))
    if rows:
        yield Text()
        yield Text("counted", "bold")
        yield from aligned(rows, width)
    found = blame(why.history.incidents, BLAMED)
    if found and len(found.causes) > 1 and found.rows[0][1] > 1:
        yield Text()
        yield Text("blamed", "bold")
        yield from aligned(list(_blamed(found)), width)


def _blamed(found: Blame) -> Iterator[tuple[Text, ...]]:
    for host, count, cells in found.rows:
        most = sorted(zip(cells, found.causes, strict=True), key=lambda row: -row[0][0])
        told = ", ".join(f"{cause} {hits:,}" for (hits, _), cause in most if hits)
        yield Text(host, "bold"), Text(f"{count:,}"), Text(told, "dim")
