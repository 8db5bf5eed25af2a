"""The timeline as a trace for ui.perfetto.dev: a track for each rank, a slice for each recorded call.

Chrome's JSON trace event format ("JSON Object Format" of the Trace Event Format document; what Perfetto's JSON importer
reads): complete events ("X"), instants ("i"), flows ("s", "f") and names of processes and threads ("M"). Times are
microseconds since the first moment of the trace.

A slice lasts from the call to when its end was seen; one that never ended lasts to the end of the trace and says so.
The trace ends a little after the last event, so that what began last can be seen too. Gloo records no ends: a call that
did end is drawn to the next one of its rank, the last one without a length.

Calls overlap, slices of one track may not: a call that ends before an older one lies inside it, one that ends after it
starts where the older one ends (`called_us_earlier` says by how much).

Assumes that hosts' clocks agree, as the wall clocks in the dumps do: they are not aligned here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timezone
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from whichrank.model import Report
from whichrank.report.condense import cited
from whichrank.report.printable import moment, printable

if TYPE_CHECKING:
    from whichrank.job.collectives import Collectives, Ring

DEEPEST = 24  # slices inside each other on one track
TAIL, SHORTEST = 20, 1_000_000  # a twentieth of the trace lies after its last event, and at least so many ns
JOB = 1  # process of what no rank has to itself
_encode = msgspec.json.encode


class Slice(NamedTuple):
    """One call on its track, ns. `at` is its index in the dump, `late` how long before its start it was called."""

    at: int
    start: int
    end: int
    late: int


def render(report: Report) -> Iterator[bytes]:
    """The trace in pieces, each as soon as it is made."""
    yield b'{"displayTimeUnit":"ms","otherData":' + _encode({"tool": printable(report.tool)}) + b',"traceEvents":[\n'
    events = _events(report)
    gap = b""
    while some := [_encode(event) for event in islice(events, 64)]:
        yield gap + b",\n".join(some)
        gap = b",\n"
    yield b"\n]}\n"


def _events(report: Report) -> Iterator[dict[str, Any]]:
    table = report.table
    start, end = _span(report)
    processes = _processes(report)
    for name, number in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
    hosts = _hosts(report)
    ranks = sorted({*(table.rings if table is not None else ()), *(row.rank for row in report.ranks)})
    culprits = _culprits(report)
    for rank in ranks:
        pid = processes[hosts.get(rank, "ranks")]
        name = f"rank {rank} (culprit)" if rank in culprits else f"rank {rank}"
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": rank + 1, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": rank + 1, "args": {"sort_index": rank}}
        if table is not None and (ring := table.rings.get(rank)) is not None:
            yield from _track(table, ring, pid, start, end)
    yield from _moments(report, processes, hosts, start, end)
    if table is not None:
        yield from _flows(report, table, processes, hosts, start, end)


def _culprits(report: Report) -> tuple[int, ...]:
    return report.verdicts[0].culprit_ranks if report.verdicts else ()


def _hosts(report: Report) -> dict[int, str]:
    return {row.rank: printable(row.host) for row in report.ranks if row.host}


def _processes(report: Report) -> dict[str, int]:
    """A process for each host, one for ranks of which the host is not known."""
    names = ["the job", *sorted(set(_hosts(report).values())), "ranks"]
    return {name: number for number, name in enumerate(dict.fromkeys(names), JOB)}


def _span(report: Report) -> tuple[int, int]:
    """First moment and the trace's end, ns since 1970."""
    times = [at for step in report.timeline if (at := _ns(step.at)) is not None]
    if report.table is not None:
        for ring in report.table.rings.values():
            created = ring.dump.created[ring.dump.created > 0]
            if len(created):
                times += [int(created.min()), ring.dump.last_ns]
    if not times:
        return 0, 0
    first, last = min(times), max(times)
    return first, last + max((last - first) // TAIL, SHORTEST)


def _ns(text: str | None) -> int | None:
    at = moment(text)
    if at is None or at.year == 2000:  # a time without its day
        return None
    seconds = (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    return int(seconds) * 1_000_000_000


def _track(table: Collectives, ring: Ring, pid: int, start: int, end: int) -> Iterator[dict[str, Any]]:
    dump = ring.dump
    held = ring.open_at[0] if ring.open_at else -1
    words = _Words(table, ring)
    opened, kinds, groups = dump.open.tolist(), dump.kind.tolist(), ring.group.tolist()
    no_end = (~dump.open & (dump.completed <= 0)).tolist()
    seqs, p2p, passed, sites = dump.seq.tolist(), dump.p2p_seq.tolist(), dump.signature.tolist(), dump.site.tolist()
    for entry in slices(ring, end):
        at = entry.at
        name = words.name(at) if kinds[at] else f"{words.name(at)} #{seqs[at]}"
        args: dict[str, Any] = {"group": words.group(groups[at])}
        args["p2p_seq" if kinds[at] else "seq"] = p2p[at] if kinds[at] else seqs[at]
        if shape := words.sizes[passed[at]]:
            args["sizes"] = shape
        if frame := words.place(at, sites[at]):
            args["called_at"] = frame
        if entry.late:
            args["called_us_earlier"] = entry.late / 1000
        if no_end[at]:
            args["ended"] = "at a time that is not on record"
        if opened[at]:
            args["unfinished"] = "waits in it" if at <= held else "behind an older one"
            name += " (unfinished)"
        yield {
            "ph": "X",
            "name": name,
            "cat": "unfinished" if opened[at] else "call",
            "pid": pid,
            "tid": ring.rank + 1,
            "ts": (entry.start - start) / 1000,
            "dur": (entry.end - entry.start) / 1000,
            "args": args,
        }


class _Words:
    """What the calls of a ring are called; each different one is put in words once."""

    def __init__(self, table: Collectives, ring: Ring) -> None:
        from whichrank.report.html.shown import sizes

        self.table, self.ring = table, ring
        self.sizes = [sizes(passed) for passed in ring.dump.signatures]
        self._numbers = ring.dump.name.tolist()
        self._names: dict[int, str] = {}
        self._places: dict[int, str] = {}
        self._groups: dict[int, str] = {}

    def name(self, at: int) -> str:
        from whichrank.findings.dumps.calls import operation

        if self.ring.dump.kind[at]:  # a batch is called by what it holds
            return printable(operation(self.ring, at))
        number = self._numbers[at]
        if number not in self._names:
            self._names[number] = printable(operation(self.ring, at))
        return self._names[number]

    def place(self, at: int, number: int) -> str:
        from whichrank.findings.dumps.calls import written
        from whichrank.report.html.shown import place

        if number not in self._places:
            self._places[number] = place(written(self.ring, at))
        return self._places[number]

    def group(self, number: int) -> str:
        if number not in self._groups:
            self._groups[number] = printable(self.table.groups[number].title)
        return self._groups[number]


def slices(ring: Ring, end: int) -> list[Slice]:
    """The calls of a rank as slices that nest or follow each other, in the order of their starts."""
    from whichrank.dump import PART

    dump = ring.dump
    created, completed, opened = dump.created.tolist(), dump.completed.tolist(), dump.open.tolist()
    found: list[Slice] = []
    around: list[int] = []  # ends of the slices that the next one may lie in, the innermost last
    chosen = sorted(((dump.created > 0) & (dump.kind != PART)).nonzero()[0].tolist(), key=created.__getitem__)
    last = 0
    for at, after in zip_longest(chosen, chosen[1:]):
        called = created[at]
        if opened[at]:
            done = end
        elif completed[at] > 0:
            done = completed[at]
        else:
            done = called if after is None else created[after]
        begin, done = max(called, last), max(called, done)
        while around and (around[-1] <= begin or around[-1] < done or len(around) >= DEEPEST):
            begin = max(begin, around.pop())
        done = max(done, begin)
        found.append(Slice(at, begin, done, begin - called))
        around.append(done)
        last = begin
    return found


def _moments(
    report: Report, processes: dict[str, int], hosts: dict[int, str], start: int, end: int
) -> Iterator[dict[str, Any]]:
    """What logs tell, as instants: on the rank's track, or over all where it is of none."""
    for step in report.timeline:
        at = _ns(step.at)
        if at is None:
            continue
        event = {
            "ph": "i",
            "name": printable(step.says),
            "cat": "log",
            "ts": (at - start) / 1000,
            "args": {"from": cited(step)},
        }
        if step.rank is None:
            yield event | {
                "pid": processes.get(printable(step.host or ""), JOB),
                "tid": 0,
                "s": "p" if step.host else "g",
            }
        else:
            yield event | {"pid": processes[hosts.get(step.rank, "ranks")], "tid": step.rank + 1, "s": "t"}
    if report.verdicts and report.verdicts[0].cause != "none" and end > start:
        says = printable(report.verdicts[0].says)
        yield {"ph": "i", "name": says, "cat": "verdict", "ts": (end - start) / 1000, "pid": JOB, "tid": 0, "s": "g"}


def _flows(
    report: Report, table: Collectives, processes: dict[str, int], hosts: dict[int, str], start: int, end: int
) -> Iterator[dict[str, Any]]:
    """Between the culprit's last call and the ranks that wait for it, one arrow for each call that they wait in."""
    culprits = [rank for rank in _culprits(report) if rank in table.rings and len(table.rings[rank])]
    if not culprits:
        return
    source = slices(table.rings[culprits[0]], end)
    seen: set[tuple[int, int]] = set()
    for number, (rank, at) in enumerate(_waiting(table, culprits)):
        call = (int(table.rings[rank].group[at]), int(table.rings[rank].dump.seq[at]))
        if call in seen:
            continue
        target = next((entry for entry in slices(table.rings[rank], end) if entry.at == at), None)
        if not source or target is None:
            continue
        seen.add(call)
        arrow = {"name": "waits for it", "cat": "waits", "id": number + 1}
        ends = sorted(((source[-1].start, culprits[0]), (target.start, rank)))  # an arrow points forward in time
        for (when, who), phase in zip(ends, "sf", strict=True):
            more = {"bp": "e"} if phase == "f" else {}
            where = {"pid": processes[hosts.get(who, "ranks")], "tid": who + 1, "ts": (when - start) / 1000}
            yield arrow | where | {"ph": phase} | more
        if len(seen) == 64:
            return


def _waiting(table: Collectives, culprits: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ranks that wait in a call of a group of the first culprit, and the call's place in their dumps."""
    mine = set(table.rings[next(iter(culprits))].places)
    for rank, ring in table.rings.items():
        if ring.open_at and rank not in culprits and int(ring.group[ring.open_at[0]]) in mine:
            yield rank, ring.open_at[0]
