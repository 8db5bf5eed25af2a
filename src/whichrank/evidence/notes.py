"""Notes on a job's layout, read as a whole: who wrote "4 GPUs a node" on one line names the nodes on another."""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.evidence import placement_tables
from whichrank.evidence.envelope import Part
from whichrank.evidence.placed import FILE, HOST, NAME, Note, Place, numbers
from whichrank.evidence.scan import SHORT, clean
from whichrank.facts import Fact, Source

_LIST = r"\d+(?:\s*(?:-|–|\.\.+|\bto\b|,|\band\b|&|\+)\s*\d+)*"
_BUS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
_TAIL = r"\s*(?:[(,#].*)?$"
HOST_FIRST = re.compile(
    rf"^(?:[*•-]\s+)?(?:(?:host|node|pod|machine)\s+)?(?P<host>{NAME}|(?:\d{{1,3}}\.){{3}}\d{{1,3}})\s*(?:[:=]|[-=]+>|<->|\||\(|\bhas\b|\bruns\b|\bholds\b|\bhosts\b)\s*(?:global )?ranks?\s*[:=]?\s*\[?(?P<ranks>{_LIST})\]?\)?{_TAIL}",
    re.I,
)
RANK_FIRST = re.compile(
    rf"^(?:[*•-]\s+)?(?:global )?ranks?\s*[:=]?\s*\[?(?P<ranks>{_LIST})\]?\s*(?P<tie>[:=]|[-=]+>|<->|\||\bon\b|\bin\b|\bat\b|\bruns on\b|\bare on\b|\bis on\b|@)?\s*(?:(?:host|node|pod|machine)\s+)?(?P<host>{HOST})(?::(?P<process>\d{{2,8}}))?"
    rf"(?:[\s,|]+(?P<word>GPU|cuda:?|device|local[_ ]rank)\s*[:=]?\s*(?P<gpu>\d+))?(?:[\s,|]+(?:pid)\s*[:=]?\s*(?P<pid>\d+))?(?:[\s,|]*[(\[]?(?P<bus>{_BUS})[)\]]?)?(?:\s+slots?=[\d:,-]+)?{_TAIL}",
    re.I,
)
TASK = re.compile(
    rf"^(?P<host>{HOST})[\s:,|]+(?:task|rank)\s+(?P<rank>\d+)[\s:,|]+pid\s*[:=]?\s*(?P<pid>\d+)(?:[\s:,|]+(?:readers|workers|loaders|loader workers|data ?loader workers|children)\s*[:=]?\s*(?P<children>\d+(?:[ ,]+\d+)*))?\s*$",
    re.I,
)
NODE_RANK = re.compile(
    rf"(?P<host>{HOST})\s*(?:[:=(]|[-=]+>|\bis\b)?\s*(?:has )?node[_ -]?rank\s*[:=]?\s*(?P<node>\d+)", re.I
)
EACH = re.compile(
    r"(?P<n>\d+)\s*(?:x\s*)?(?:GPUs?|processes|procs|ranks|workers|tasks)\s*(?:each|(?:per|a|on each|on every)\s*(?:node|host|machine)|/\s*(?:node|host))|nproc[-_]per[-_]node\s*[:=]?\s*(?P<nproc>\d+)",
    re.I,
)
FORMULA = re.compile(r"\brank\s*=\s*node(?:[_ ]?(?:index|rank|id|number|nr))?\s*[*x×]\s*(?P<n>\d+)\s*\+", re.I)
PIDS = re.compile(r"pids?\b.*\bin local[-_ ]rank order\s*:?(?P<rest>.*)$", re.I)
PID_RUN = re.compile(rf"(?P<host>{HOST})\s*[:=]?\s*(?P<pids>\d{{2,8}}(?:\s*(?:\.\.+|-|–|,)\s*\d{{2,8}}(?!\w))*)")
NODES = re.compile(
    rf"^(?:(?:hosts?|nodes?|node ?list|order)\s*[:=]\s*)?(?P<hosts>{HOST}(?:[\s,]+{HOST})*)\s*(?:$|:|#|\()", re.I
)
SLOTS = re.compile(
    rf"^(?P<host>{NAME}|(?:\d{{1,3}}\.){{3}}\d{{1,3}})(?:\s+slots\s*=\s*(?P<slots>\d+)(?:\s+max[_-]slots\s*=\s*\d+)?|:(?P<count>\d{{1,3}}))\s*(?:#.*)?$"
)
SRUN = re.compile(rf"^\s*(?P<rank>\d+):\s+(?P<host>{HOST})\s*$")
LONGEST = 500  # characters: longer lines are no notes


def read_note(part: Part, source: Source, given: bool = False) -> Iterable[Fact]:
    """All that a short text says of where ranks run. given: the user says that it is a placement."""
    numbered = part.numbers or range(1, len(part.lines) + 1)
    note = Note(
        source,
        [
            (number, clean(line))
            for number, line in zip(numbered, part.lines, strict=True)
            if line.strip() and (given or len(line) <= LONGEST)
        ],
        given=given,
    )
    if not note.lines:
        return ()
    tables = (placement_tables.json, placement_tables.table, placement_tables.rows)
    sentences = (_clauses, _node_ranks, _formula) if given or len(note.lines) <= SHORT else ()
    for read in (*tables, *sentences, _hostfile, _srun):
        read(note)
        if note.places and read in tables:
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
                file = match["host"] if FILE.fullmatch(match["host"]) else None
                for rank in numbers(match["ranks"]):
                    note.put(Place(rank, None if file else match["host"], number, file=file))
            elif (match := RANK_FIRST.match(clause)) and (
                match["tie"] or match["gpu"] or match["pid"] or match["bus"] or re.search(r"\d", match["host"])
            ):
                _of_ranks(note, match, number)


def _of_ranks(note: Note, match: re.Match[str], number: int) -> None:
    """`rank 3 on cn-01`, and with it a local rank, a GPU, a pid."""
    bus, pid, index = match["bus"], match["pid"] or match["process"], int(match["gpu"]) if match["gpu"] else None
    local = index if match["word"] and match["word"].lower().startswith("local") else None
    file = match["host"] if FILE.fullmatch(match["host"]) else None
    for rank in numbers(match["ranks"]):
        note.put(
            Place(
                rank, None if file else match["host"], number, local=local, pid=int(pid) if pid else None,
                gpu=bus.lower() if bus else match["gpu"], index=index, file=file,
            )
        )  # fmt: skip


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
