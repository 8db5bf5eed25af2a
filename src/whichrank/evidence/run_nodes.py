r"""What another node told `whichrank run` of its ranks, where its own evidence did not come: `node` in events.jsonl.

One event a node and question; the last one of each node counts. Of a rank the phase, since when, and what it waits in; of
one whose process ended, that it did, the signal where the kernel still knew it, and the exception it left. Times are on
the clock of the node that was told.

>>> event = {"kind": "node", "wall_ns": 1796064665999377797, "host": "node-b", "told_ns": 1796064665000000000,
...     "world": 4, "ranks": [{"rank": 2, "pid": 77, "step": 9, "phase": "data", "since": 1796064650.0}], "ended": []}
>>> [(fact.kind, fact.rank, fact.who.host, fact["seconds"]) for fact in told([(7, event)], Source("events.jsonl"))]
[('member', 2, 'node-b', None), ('phase', 2, 'node-b', 15.0)]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whichrank.evidence.scan import excerpt
from whichrank.facts import MOST_RANKS, Fact, Gap, Identity, Source, Spot

MOST = 4096  # ranks and ends of one node


def told(events: Sequence[tuple[int, dict[str, Any]]], source: Source) -> Iterator[Fact | Gap]:
    """events: (line, event) of any kind."""
    last: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
    for number, event in events:
        if event["kind"] == "node":
            last[str(event.get("host")), str(event.get("number"))] = number, event
        elif event["kind"] == "passed":  # what was told before knows nothing of what came after it
            last.clear()
    for number, event in last.values():
        yield from _ranks(event, number, source)
        yield from _ended(event, number, source)


def _rows(event: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    rows = event.get(name)
    for row in rows[:MOST] if isinstance(rows, list) else ():
        if isinstance(row, dict) and _number(row.get("rank"), MOST_RANKS) is not None:
            yield row


def _ranks(event: Mapping[str, Any], line: int, source: Source) -> Iterator[Fact]:
    at = _number(event.get("told_ns"), 1 << 62)
    world = _number(event.get("world"), MOST_RANKS)
    for row in _rows(event, "ranks"):
        who = _who(event, row)
        name = f"node {who.host}: rank {who.rank}"
        values: dict[str, Any] = {"world_size": world} if world else {}
        yield _fact("member", f"{name}, pid {who.pid}", at, line, source, who, values)
        phase, since = _text(row.get("phase")) or "unknown", _seconds(row.get("since"))
        own = phase.removeprefix("own:") if phase.startswith("own:") else None
        seconds = round(max(0.0, (at or 0) / 1e9 - since), 3) if since is not None else 0.0
        values = {"name": "own" if own else phase, "seconds": seconds, "step": _number(row.get("step"), 1 << 62) or 0}
        values |= {key: value for key, value in (("op", _text(row.get("op"))), ("own", own)) if value}
        group, seq = _text(row.get("group")), _number(row.get("seq"), 1 << 62)
        where = f" ({values['op']}{f' #{seq}' if seq is not None else ''})" if "op" in values else ""
        says = f"{name} in phase {phase}{where} for {seconds:.1f} s, after {values['step']} steps"
        begun = int(since * 1e9) if since is not None else None
        yield _fact("phase", says, begun, line, source, who, values, group, seq)


def _ended(event: Mapping[str, Any], line: int, source: Source) -> Iterator[Fact | Gap]:
    for row in _rows(event, "ended"):
        who = _who(event, row)
        at, raised = _nanoseconds(row.get("at")), _text(row.get("raised"), 20_000)
        how = "by an exception" if raised else "without a word"
        says = f"node {who.host}: rank {who.rank} (pid {who.pid}) ended {how}"
        yield _fact("rank_end", says, at, line, source, who, {"in_order": False, "raised": bool(raised)})
        signal = _number(row.get("signal"), 65)
        if signal:
            says = f"node {who.host}: rank {who.rank} (pid {who.pid}) ended by signal {signal}"
            yield _fact("exit", says, at, line, source, who, {"signal": signal, "exitcode": -signal})
        if raised:
            yield from _exceptions(raised, _nanoseconds(row.get("raised_at")) or at, line, source, who)


def _exceptions(text: str, at: int | None, line: int, source: Source, who: Identity) -> Iterator[Fact]:
    from whichrank.evidence import python_errors
    from whichrank.evidence.envelope import Part
    from whichrank.evidence.scan import Scanner

    lines = [one.rstrip() for one in text.split("\n")]
    part = Part(lines, list(range(1, len(lines) + 1)))
    found, _ = Scanner((python_errors.READER,)).scan(part, Source(source.path), who)
    for fact in [fact for fact in found if fact.kind in ("exception", "cuda_oom")][-8:]:
        says = f"node {who.host}: rank {who.rank}: {fact['type'] or 'exception'}: {fact['message'] or ''}"
        yield _fact(fact.kind, says, at, line, source, who, fact.values)


def _who(event: Mapping[str, Any], row: Mapping[str, Any]) -> Identity:
    return Identity(
        attempt=_number(event.get("attempt")),
        rank=_number(row.get("rank"), MOST_RANKS),
        local_rank=_number(row.get("local_rank")),
        host=_text(event.get("host")),
        pid=_number(row.get("pid")),
    )


def _fact(
    kind: str, says: str, at: int | None, line: int, source: Source, who: Identity, values: Mapping[str, Any],
    group: str | None = None, seq: int | None = None,
) -> Fact:  # fmt: skip
    return Fact(kind, Spot(source, line, excerpt(says)), at, "wall" if at else "none", who, group, seq, values)


def _number(value: object, below: int = 1 << 31) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below else None


def _seconds(value: object) -> float | None:
    sound = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e10
    return float(value) if sound else None  # type: ignore[arg-type] # mypy does not see through the flag


def _nanoseconds(value: object) -> int | None:
    seconds = _seconds(value)
    return int(seconds * 1e9) if seconds else None


def _text(value: object, most: int = 400) -> str | None:
    return value[:most] if isinstance(value, str) and value else None
