"""4,000 rows become a handful: what every renderer for people shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from whichrank.facts import MEMBER
from whichrank.model import Missing, Moment, Proof, RankRow, Report, Verdict
from whichrank.ranges import hosts as host_ranges
from whichrank.ranges import natural
from whichrank.report.printable import clock, lasting, many, moment, printable, shape

STATES = ("culprit", "dead", "behind", "silent", "ahead", "waiting", "unknown", "finished")
TELLING = frozenset(STATES[:5])


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that are in the same state at the same place. `where` names their hosts, `what` their place."""

    state: str
    ranks: tuple[int, ...]
    where: str
    what: str


def unread(report: Report) -> list[str]:
    """What held nothing that is known here; several members of one archive count as the archive.

    "bundle.zip: 12 files in it" is said of the archive, `rank0.log` of a file.
    """
    told = {gap.what for gap in report.gaps}
    found = Counter(name.partition(MEMBER)[0] for name in report.summary.unread if name not in told)
    alone = {name.partition(MEMBER)[0]: name for name in report.summary.unread}
    return [f"{name}: {count} files in it" if count > 1 else alone[name] for name, count in found.items()]


def all_gaps(report: Report) -> list[Missing]:
    """What is missing, and what was there and told nothing."""
    return [*report.gaps, *(Missing(name, "nothing in it was recognised") for name in unread(report))]


def cited(item: Proof | Moment) -> str:
    """ "rank0.log:12", "dumps/trace_rank_5"."""
    return printable(item.source) + ("" if item.line is None else f":{item.line}")


def later(at: str | None, start: datetime | None) -> str:
    """ "+44 s" after the start; "" where one of them is no time or not of the same kind of clock."""
    when = moment(at)
    if when is None or start is None or (when.tzinfo is None) != (start.tzinfo is None) or when <= start:
        return ""
    return "+" + lasting((when - start).total_seconds())


def operation(op: str | None, seq: int | str | None, group: str | None) -> str:
    """ "ALLREDUCE #1842 in default_pg", as far as it is known."""
    text = printable(op or "")
    if seq is not None and seq != "":
        text += f" #{seq}" if text else f"collective #{seq}"
    if group and text:
        text += f" in {printable(group)}"
    return text


def rank_groups(report: Report, per_state: int = 4) -> list[RankGroup]:
    """The ranks by state, at most `per_state` groups of each: beyond that places are merged, finest first."""
    hosts = {row.host for row in report.ranks if row.host}
    ranks_of: dict[str, set[int]] = {}
    for row in report.ranks:
        if row.host:
            ranks_of.setdefault(row.host, set()).add(row.rank)
    groups = []
    for state in STATES:
        rows = [row for row in report.ranks if row.state == state]
        for members in _merged(rows, per_state):
            ranks = tuple(sorted({row.rank for row in members}))
            groups.append(RankGroup(state, ranks, _where(members, ranks_of, len(hosts)), _what(members)))
    return groups + _unseen(report)


_KEYS: tuple[Callable[[RankRow], object], ...] = (
    lambda row: (row.op, row.seq, row.group, row.says if row.state in TELLING else ""),
    lambda row: (row.op, row.seq, row.group, shape(row.says) if row.state in TELLING else ""),
    lambda row: (row.op, row.seq, row.group),
    lambda row: (row.op, row.seq),
    lambda row: row.op,
    lambda row: None,
)


def _merged(rows: Sequence[RankRow], most: int) -> list[list[RankRow]]:
    found: dict[object, list[RankRow]] = {}
    for key in _KEYS:
        found = {}
        for row in rows:
            found.setdefault(key(row), []).append(row)
        if len(found) <= most:
            break
    return sorted(found.values(), key=lambda members: min(row.rank for row in members))


def _where(members: Sequence[RankRow], ranks_of: dict[str, set[int]], of: int) -> str:
    hosts = {row.host for row in members if row.host}
    if not hosts:
        return ""
    if len(hosts) == of and of > 1:
        return f"all {of:,} nodes"
    ranks = {row.rank for row in members}
    whole = len(ranks) > 1 and all(ranks_of[host] <= ranks for host in hosts)
    name = printable(hosts.copy().pop() if len(hosts) == 1 else host_ranges(hosts, 22))
    if not whole:
        return f"{len(hosts):,} of {of:,} nodes" if name.endswith(" nodes") else name
    return f"all {len(ranks):,} ranks of {name}" if len(hosts) == 1 else f"all of {name}"


def _what(members: Sequence[RankRow]) -> str:
    """Where they stand: the operation, since when, and what is said of all of them alike."""
    parts = []
    groups = {row.group for row in members}
    ops = {row.op for row in members}
    seqs = {row.seq for row in members if row.seq is not None}
    if len(ops) == 1:
        seq = f"{min(seqs)} to #{max(seqs)}" if len(seqs) > 1 else next(iter(seqs), None)
        place = operation(ops.pop(), seq, groups.copy().pop() if len(groups) == 1 else None)
        if place.startswith("collective #") and members[0].state in TELLING:
            place = "last seen at " + place
        if place and len(groups) > 1:
            place += f" in {len(groups):,} groups"
        parts.append(place)
    elif len(ops) > 1:
        parts.append(f"in {len(ops)} different operations")
    since = sorted(row.since for row in members if row.since)
    if since and len(since) == len(members) and _close(since[0], since[-1]):
        parts.append(f"since {clock(since[0])}")
    says = {printable(row.says) for row in members}
    if len(says) == 1:
        parts.append(says.pop().rstrip("."))
    return ", ".join(filter(None, parts))


def _close(first: str, last: str) -> bool:
    a, b = moment(first), moment(last)
    return first == last or (a is not None and b is not None and abs((b - a).total_seconds()) <= 2)


def _unseen(report: Report) -> list[RankGroup]:
    world = report.summary.world_size or 0
    missing = tuple(sorted(set(range(world)) - {row.rank for row in report.ranks}))
    return [RankGroup("no trace", missing, "", "nothing here tells of them")] if missing and report.ranks else []


def like_proofs(proofs: Sequence[Proof], alike_from: int = 4) -> list[tuple[Proof, int]]:
    """Proofs, and how many more say the same of other ranks: that many are not shown."""
    kinds: dict[tuple[str, str], list[Proof]] = {}
    for proof in proofs:
        kinds.setdefault((shape(proof.says), shape(proof.excerpt)), []).append(proof)
    shown: list[tuple[Proof, int]] = []
    for same in kinds.values():
        if len(same) < alike_from:
            shown.extend((proof, 0) for proof in same)
        else:
            shown.append((same[0], len(same) - 1))
    order = {id(proof): place for place, proof in enumerate(proofs)}
    return sorted(shown, key=lambda entry: order[id(entry[0])])


def like_gaps(gaps: Sequence[Missing], few: int = 1) -> list[Missing]:
    """Gaps that say the same, as one, with the first one's command, where there are more than `few` of them.

    Names that differ in a number only become "kernel log of node-[01-08]"; of more than three different sorts of names
    the first ones stand for all: "a.log, b.log, c.log and 1,497 more".
    """
    kinds: dict[tuple[str, ...], dict[str, list[Missing]]] = {}
    for gap in gaps:
        sorts = kinds.setdefault((gap.why, gap.would_help, shape(gap.command)), {})
        sorts.setdefault(shape(gap.what), []).append(gap)
    shown: list[Missing] = []
    for sorts in kinds.values():
        apart = len(sorts) <= max(few, 3)
        for same in sorts.values() if apart else [[gap for gaps in sorts.values() for gap in gaps]]:
            shown += same if len(same) <= few else [replace(same[0], what=_names([gap.what for gap in same], 60))]
    return shown


def _names(names: Sequence[str], room: int) -> str:
    """One family of names in brackets, if that is short; else the first ones, and how many more there are."""
    if len({shape(name) for name in names}) == 1 and len(text := host_ranges(names)) <= room:
        return text
    names = sorted(names, key=natural)
    first = 1 if len(names[0]) > room // 3 else 3
    more = len(names) - first
    return ", ".join(names[:first]) + (f" and {more:,} more" + (" like it" if first == 1 else "") if more > 0 else "")


def told_alike(gaps: Iterable[tuple[str, str]], most: int = 20) -> list[str]:
    """Lines for standard error, of (what, why): one for each reason that many files share.

    >>> told_alike((f"r{n}.log", "nothing in it is a log") for n in range(1500))
    ['1,500 files: nothing in them is a log: r0.log, r1.log, r2.log, …']
    >>> told_alike([("a.log", "empty"), ("b.log", "empty")])
    ['a.log: empty', 'b.log: empty']
    """
    reasons: dict[str, list[str]] = {}
    for what, why in gaps:
        reasons.setdefault(why, []).append(what)
    lines = []
    for why, names in reasons.items():
        if len(names) <= 3:
            lines += [f"{name}: {why}" for name in names]
        else:
            whole = why.replace("nothing in it is", "nothing in them is")
            lines.append(f"{many(len(names), 'file')}: {whole}: {', '.join(sorted(names, key=natural)[:3])}, …")
    more = len(lines) - most
    return lines if more <= 1 else [*lines[:most], f"and {more:,} more like these"]


def telling_moments(report: Report, verdict: Verdict | None, most: int = 8) -> tuple[list[tuple[Moment, int]], int]:
    """The first moment, the last, and those that decide, each with how many more are alike; and how many are left out.

    Alike: the same is said of another rank, culprits and others apart.
    """
    kept = _folded(report.timeline, verdict)
    if len(kept) <= most:
        return kept, 0
    chosen = {0, len(kept) - 1}
    weights = [_weight(step, verdict) + bool(more) for step, more in kept]
    for place in sorted(range(len(kept)), key=lambda place: -weights[place]):
        if len(chosen) == most:
            break
        chosen.add(place)
    return [kept[place] for place in sorted(chosen)], sum(1 + kept[p][1] for p in range(len(kept)) if p not in chosen)


def _folded(moments: Sequence[Moment], verdict: Verdict | None) -> list[tuple[Moment, int]]:
    culprits = {culprit.rank for culprit in verdict.culprits} if verdict else set()
    first: dict[tuple[str, bool], int] = {}
    kept: list[tuple[Moment, int]] = []
    for step in moments:
        kind = (shape(step.says), step.rank is not None and step.rank in culprits)
        if (place := first.setdefault(kind, len(kept))) < len(kept):
            kept[place] = (kept[place][0], kept[place][1] + 1)
        else:
            kept.append((step, 0))
    return kept


def _weight(step: Moment, verdict: Verdict | None) -> int:
    if verdict is None:
        return 0
    culprit = step.rank is not None and step.rank in {one.rank for one in verdict.culprits}
    told = (step.source, step.line) in {(proof.source, proof.line) for proof in verdict.because[:8]}
    return 2 * culprit + 2 * told
