"""Notes on a job's layout, read as a whole: who wrote "4 GPUs a node" on one line names the nodes on another.

>>> numbers("0,1"), numbers("24..27"), numbers("0-2, 5 and 7")
([0, 1], [24, 25, 26, 27], [0, 1, 2, 5, 7])
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from whichrank.evidence.envelope import Part
from whichrank.evidence.scan import clean, excerpt
from whichrank.facts import Fact, Identity, Source, Spot

_NAME = r"[A-Za-z](?:[\w.-]*[\w])?"
# A bare word is a host only if it looks like one: a digit, a hyphen or a dot in it.
_HOST = r"(?!(?i:ranks?|gpus?|step|epoch|local|global|node[_ -]?rank|world|pid)\b)(?:[A-Za-z][A-Za-z_]*[\d.-](?:[\w.-]*\w)?|(?:\d{1,3}\.){3}\d{1,3})"
_LIST = r"\d+(?:\s*(?:-|–|\.\.+|\bto\b|,|\band\b|&|\+)\s*\d+)*"
_BUS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
_TAIL = r"\s*(?:[(,#].*)?$"
HOST_FIRST = re.compile(
    rf"^(?:[*•-]\s+)?(?:(?:host|node|pod|machine)\s+)?(?P<host>{_NAME}|(?:\d{{1,3}}\.){{3}}\d{{1,3}})\s*(?:[:=]|[-=]+>|<->|\||\(|\bhas\b|\bruns\b|\bholds\b|\bhosts\b)\s*(?:global )?ranks?\s*[:=]?\s*\[?(?P<ranks>{_LIST})\]?\)?{_TAIL}",
    re.I,
)
RANK_FIRST = re.compile(
    rf"^(?:[*•-]\s+)?(?:global )?ranks?\s*[:=]?\s*\[?(?P<ranks>{_LIST})\]?\s*(?P<tie>[:=]|[-=]+>|<->|\||\bon\b|\bin\b|\bat\b|\bruns on\b|\bare on\b|\bis on\b|@)?\s*(?:(?:host|node|pod|machine)\s+)?(?P<host>{_HOST})"
    rf"(?:[\s,|]+(?:GPU|cuda:?|device|local[_ ]rank)\s*[:=]?\s*(?P<gpu>\d+))?(?:[\s,|]+(?:pid)\s*[:=]?\s*(?P<pid>\d+))?(?:[\s,|]*[(\[]?(?P<bus>{_BUS})[)\]]?)?{_TAIL}",
    re.I,
)
TASK = re.compile(
    rf"^(?P<host>{_HOST})[\s:,|]+(?:task|rank)\s+(?P<rank>\d+)[\s:,|]+pid\s*[:=]?\s*(?P<pid>\d+)(?:[\s:,|]+(?:readers|workers|loaders|loader workers|data ?loader workers|children)\s*[:=]?\s*(?P<children>\d+(?:[ ,]+\d+)*))?\s*$",
    re.I,
)
NODE_RANK = re.compile(
    rf"(?P<host>{_HOST})\s*(?:[:=(]|[-=]+>|\bis\b)?\s*(?:has )?node[_ -]?rank\s*[:=]?\s*(?P<node>\d+)", re.I
)
EACH = re.compile(
    r"(?P<n>\d+)\s*(?:x\s*)?(?:GPUs?|processes|procs|ranks|workers|tasks)\s*(?:each|(?:per|a|on each|on every)\s*(?:node|host|machine)|/\s*(?:node|host))|nproc[-_]per[-_]node\s*[:=]?\s*(?P<nproc>\d+)",
    re.I,
)
FORMULA = re.compile(r"\brank\s*=\s*node(?:[_ ]?(?:index|rank|id|number|nr))?\s*[*x×]\s*(?P<n>\d+)\s*\+", re.I)
PIDS = re.compile(r"pids?\b.*\bin local[-_ ]rank order\s*:?(?P<rest>.*)$", re.I)
PID_RUN = re.compile(rf"(?P<host>{_HOST})\s*[:=]?\s*(?P<pids>\d{{2,8}}(?:\s*(?:\.\.+|-|–|,)\s*\d{{2,8}}(?!\w))*)")
NODES = re.compile(
    rf"^(?:(?:hosts?|nodes?|node ?list|order)\s*[:=]\s*)?(?P<hosts>{_HOST}(?:[\s,]+{_HOST})*)\s*(?:$|:|#|\()", re.I
)
SLOTS = re.compile(
    rf"^(?P<host>{_NAME}|(?:\d{{1,3}}\.){{3}}\d{{1,3}})(?:\s+slots\s*=\s*(?P<slots>\d+)(?:\s+max[_-]slots\s*=\s*\d+)?|:(?P<count>\d{{1,3}}))\s*(?:#.*)?$"
)
SRUN = re.compile(rf"^\s*(?P<rank>\d+):\s+(?P<host>{_HOST})\s*$")
MANY = 65_536
LONGEST = 500  # characters: longer lines are no notes


def numbers(text: str) -> list[int]:
    """Ranks of a list with ranges; empty if it stands for absurdly many."""
    found: list[int] = []
    for part in re.split(r"\s*(?:,|\band\b|&|\+)\s*", text.strip()):
        ends = [int(end) for end in re.findall(r"\d+", part)]
        if not ends or ends[-1] - ends[0] > MANY:
            return []
        found.extend(range(ends[0], ends[-1] + 1))
    return found


@dataclass(slots=True)
class Place:
    """What a note says of one rank."""

    rank: int
    host: str
    line: int
    local: int | None = None
    pid: int | None = None
    gpu: str | None = None
    index: int | None = None  # of its GPU on the host


@dataclass(slots=True)
class Note:
    source: Source
    lines: list[tuple[int, str]]
    places: dict[int, Place] = field(default_factory=dict)
    children: list[tuple[int, int, int, str]] = field(default_factory=list)
    world: int | None = None

    def put(self, place: Place) -> None:
        self.places.setdefault(place.rank, place)

    def facts(self) -> Iterator[Fact]:
        text = dict(self.lines)
        for place in self.places.values():
            who = Identity(rank=place.rank, host=place.host, local_rank=place.local, pid=place.pid, gpu=place.gpu)
            values = {
                name: value
                for name, value in (("world_size", self.world), ("gpu_index", place.index))
                if value is not None
            }
            yield Fact("member", Spot(self.source, place.line, excerpt(text[place.line])), who=who, values=values)
        for number, pid, parent, host in self.children:
            yield Fact(
                "process",
                Spot(self.source, number, excerpt(text[number])),
                who=Identity(pid=pid, host=host),
                values={"ppid": parent},
            )


def read_note(part: Part, source: Source) -> Iterable[Fact]:
    """All that a short text says of where ranks run."""
    numbered = part.numbers or range(1, len(part.lines) + 1)
    note = Note(
        source,
        [
            (number, clean(line))
            for number, line in zip(numbered, part.lines, strict=True)
            if line.strip() and len(line) <= LONGEST
        ],
    )
    if not note.lines:
        return ()
    for read in (_json, _table, _clauses, _node_ranks, _formula, _hostfile, _srun):
        read(note)
        if note.places and read in (_json, _table):
            break
    _pids(note)
    return note.facts()


def _clauses(note: Note) -> None:
    for number, line in note.lines:
        for clause in re.split(r"\s*;\s*|\s*,\s*(?=ranks? )", line.strip()):
            if match := TASK.match(clause):
                rank, pid, host = int(match["rank"]), int(match["pid"]), match["host"]
                note.put(Place(rank, host, number, pid=pid))
                note.children.extend(
                    (number, int(child), pid, host) for child in re.findall(r"\d+", match["children"] or "")
                )
            elif match := HOST_FIRST.match(clause):
                for rank in numbers(match["ranks"]):
                    note.put(Place(rank, match["host"], number))
            elif (match := RANK_FIRST.match(clause)) and (
                match["tie"] or match["gpu"] or match["pid"] or match["bus"] or re.search(r"\d", match["host"])
            ):
                bus = match["bus"]
                for rank in numbers(match["ranks"]):
                    note.put(
                        Place(
                            rank,
                            match["host"],
                            number,
                            pid=int(match["pid"]) if match["pid"] else None,
                            gpu=bus.lower() if bus else match["gpu"],
                            index=int(match["gpu"]) if match["gpu"] else None,
                        )
                    )


def _node_ranks(note: Note) -> None:
    """`vx-1 node_rank 0, vx-2 node_rank 1, 4 processes each`"""
    nodes = {
        match["host"]: (int(match["node"]), number) for number, line in note.lines for match in NODE_RANK.finditer(line)
    }
    each = _each(note)
    if nodes and each:
        _spread(note, nodes, each)


def _formula(note: Note) -> None:
    """`rank = node index * 4 + GPU`, the nodes in the order in which the note names them."""
    formula = next((match for _, line in note.lines if (match := FORMULA.search(line))), None)
    if not formula:
        return
    nodes: dict[str, tuple[int, int]] = {}
    for number, line in note.lines:
        if match := NODES.match(line.strip()):
            for host in re.split(r"[\s,]+", match["hosts"]):
                nodes.setdefault(host, (len(nodes), number))
    _spread(note, nodes, int(formula["n"]))


def _each(note: Note) -> int | None:
    match = next((match for _, line in note.lines if (match := EACH.search(line))), None)
    return int(match["n"] or match["nproc"]) if match else None


def _spread(note: Note, nodes: dict[str, tuple[int, int]], each: int) -> None:
    if not nodes or not 0 < each <= 64:
        return
    if sorted(index for index, _ in nodes.values()) == list(range(len(nodes))):
        note.world = each * len(nodes)
    for host, (index, number) in nodes.items():
        for local in range(each):
            note.put(Place(index * each + local, host, number, local=local))


def _hostfile(note: Note) -> None:
    """`node1 slots=8` or `node1:8`: ranks in order. Only if the text is nothing but that."""
    rows = [(number, line.strip()) for number, line in note.lines if not line.lstrip().startswith("#")]
    matches = [(number, SLOTS.match(line)) for number, line in rows]
    if (
        not matches
        or not all(match for _, match in matches)
        or any(match and match["count"] for _, match in matches if len(matches) == 1)
    ):
        return
    rank = 0
    for number, match in matches:
        count = int(match["slots"] or match["count"]) if match else 0
        for local in range(min(count, 64)):
            note.put(Place(rank, match["host"] if match else "", number, local=local))
            rank += 1
    note.world = rank


def _srun(note: Note) -> None:
    """`srun -l hostname`: every line is `N: host`."""
    rows = [(number, line) for number, line in note.lines if not re.match(r"\s*[#$]", line)]
    matches = [(number, match) for number, line in rows if (match := SRUN.match(line))]
    if len(matches) > 1 and len(matches) == len(rows):
        for number, match in matches:
            note.put(Place(int(match["rank"]), match["host"], number))


def _json(note: Note) -> None:
    """{"0": "node-a", …} or {"node-a": [0, 1], …}"""
    text = "\n".join(line for _, line in note.lines)
    if not text.lstrip().startswith("{"):
        return
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    if isinstance(
        inner := next((found[name] for name in ("ranks", "rank_to_host", "placement", "hosts") if name in found), None),
        dict,
    ):
        found = inner
    for key, value in found.items():
        number = next((number for number, line in note.lines if f'"{key}"' in line), note.lines[0][0])
        if key.isdecimal() and isinstance(value, str):
            note.put(Place(int(key), value, number))
        elif (
            not key.isdecimal()
            and isinstance(value, list)
            and value
            and all(type(rank) is int for rank in value)
            and re.fullmatch(_HOST, key)
        ):
            for rank in value:
                note.put(Place(rank, key, number))


_COLUMNS = {
    "rank": "rank",
    "global_rank": "rank",
    "task": "rank",
    "host": "host",
    "hostname": "host",
    "node": "host",
    "pod": "host",
    "machine": "host",
    "pid": "pid",
    "local_rank": "local",
    "local": "local",
    "gpu": "gpu",
}


def _table(note: Note) -> None:
    """A table with a header that names rank and host (or node), by bars, commas, tabs or spaces."""
    names: list[str | None] = []
    for number, line in note.lines:
        cells = [cell for cell in re.split(r"\s*[|,\t]\s*|\s+", line.strip().strip("#|").strip()) if cell]
        header = [_COLUMNS.get(cell.lower()) for cell in cells]
        if {"rank", "host"} <= set(header) and not re.search(r"\d", line):
            names = header
            continue
        if not names or len(cells) < len(names):
            continue
        record = {name: cell for name, cell in zip(names, cells, strict=False) if name}
        if record["rank"].isdecimal() and re.fullmatch(rf"{_NAME}|(?:\d{{1,3}}\.){{3}}\d{{1,3}}", record["host"]):
            whole = {name: int(record[name]) for name in ("pid", "local") if record.get(name, "").isdecimal()}
            note.put(
                Place(
                    int(record["rank"]),
                    record["host"],
                    number,
                    local=whole.get("local"),
                    pid=whole.get("pid"),
                    gpu=record.get("gpu"),
                )
            )


def _pids(note: Note) -> None:
    """`pids in local-rank order: vx-1 20100..20103, vx-2 …` fills in the pids of ranks that are placed already."""
    for number, line in note.lines:
        if not (match := PIDS.search(line)):
            continue
        for run in PID_RUN.finditer(match["rest"]):
            ranks = sorted(place.rank for place in note.places.values() if place.host == run["host"])
            pids = numbers(run["pids"].replace("–", "-"))
            if len(ranks) == len(pids):
                for local, (rank, pid) in enumerate(zip(ranks, pids, strict=True)):
                    note.places[rank].pid, note.places[rank].local, note.places[rank].line = pid, local, number
