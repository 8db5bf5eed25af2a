"""Layouts as tables: JSON, columns with and without a header.

A row says of one rank as much as it has: host, pod, local rank, pid, GPU, the name of the file that it left.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.placement import READER
>>> def members(text):
...     return [(fact.rank, fact.who.host, fact.who.pid, fact["file"]) for fact in facts(READER, text)]
>>> members('{"0": {"host": "cn-01", "pid": 4242}, "1": {"host": "cn-01", "pid": 4243}}')
[(0, 'cn-01', 4242, None), (1, 'cn-01', 4243, None)]
>>> members('{"cn-01:4242": 0, "cn-02:977": 1}')
[(0, 'cn-01', 4242, None), (1, 'cn-02', 977, None)]
>>> members("file rank host\\nfr_a.pkl 0 cn-01\\nfr_b.pkl 1 cn-02")
[(0, 'cn-01', None, 'fr_a.pkl'), (1, 'cn-02', None, 'fr_b.pkl')]
>>> members("0 cn-01\\n1 cn-01\\n2 cn-02")
[(0, 'cn-01', None, None), (1, 'cn-01', None, None), (2, 'cn-02', None, None)]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from whichrank.evidence.placed import FILE, HOST, NAME, Note, Place, numbers

_COLUMNS = {
    **dict.fromkeys(("rank", "global_rank", "globalrank", "task", "procid", "slurm_procid", "process_index"), "rank"),
    **dict.fromkeys(("host", "hostname", "node", "node_name", "nodename", "machine", "instance", "ip"), "host"),
    **dict.fromkeys(("pod", "pod_name", "container"), "pod"),
    **dict.fromkeys(("pid", "process", "process_id"), "pid"),
    **dict.fromkeys(("local_rank", "local", "localrank", "localid", "slurm_localid"), "local"),
    **dict.fromkeys(("gpu", "cuda", "device", "gpu_index"), "gpu"),
    **dict.fromkeys(("file", "filename", "file_name", "path", "dump", "log"), "file"),
}
_INNER = ("ranks", "rank_to_host", "placement", "hosts", "nodes", "members", "workers", "processes")
_A_HOST = re.compile(rf"{NAME}|(?:\d{{1,3}}\.){{3}}\d{{1,3}}")
_PROCESS = re.compile(rf"(?P<host>{HOST}):(?P<pid>\d{{1,8}})")


def json(note: Note) -> None:
    """{"0": "node-a"}, {"0": {"host": …, "pid": …}}, {"node-a": [0, 1]}, {"node-a:4242": 0}, [{"rank": 0, …}]."""
    text = "\n".join(line for _, line in note.lines)
    if not text.lstrip().startswith(("{", "[")):
        return
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    if isinstance(found, dict):
        inner = next((found[name] for name in _INNER if name in found), None)
        found = inner if isinstance(inner, (dict, list)) else found
    where = _finder(note)
    if isinstance(found, list):
        for record in found:
            if isinstance(record, dict):
                _record(note, record, where(str(next(iter(record.values()), ""))))
    elif isinstance(found, dict):
        if found and all(type(value) is int for value in found.values()):
            _by_name(note, found, where)
        else:
            for key, value in found.items():
                _entry(note, str(key), value, where(f'"{key}"'))


def _finder(note: Note) -> Callable[[str], int]:
    """The first line, from the last one found on, that holds a text: keys of an object stand in order."""
    state = {"at": 0}

    def where(text: str) -> int:
        for at in range(state["at"], len(note.lines)):
            if text in note.lines[at][1]:
                state["at"] = at
                return note.lines[at][0]
        return note.lines[min(state["at"], len(note.lines) - 1)][0]

    return where


def _entry(note: Note, key: str, value: Any, line: int) -> None:
    if key.isdecimal() and len(key) < 7:
        if isinstance(value, str):
            note.put(_named(int(key), value, line))
        elif isinstance(value, dict):
            _record(note, {**value, "rank": int(key)}, line)
    elif re.fullmatch(HOST, key):
        ranks = value.get("ranks") if isinstance(value, dict) else value
        ranks = numbers(ranks) if isinstance(ranks, str) and re.fullmatch(r"[\d ,.-]+", ranks) else ranks
        if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
            for rank in ranks:
                note.put(Place(rank, key, line))


def _record(note: Note, record: Mapping[str, Any], line: int) -> None:
    """One row with the names of its columns."""
    named = {column: value for key, value in record.items() if (column := _COLUMNS.get(str(key).lower())) is not None}
    rank = _whole(named.get("rank"))
    texts = {name: str(named[name]) for name in ("host", "pod", "file", "gpu") if named.get(name) not in (None, "")}
    host, pod = texts.get("host"), texts.get("pod")
    if rank is None or not all(_A_HOST.fullmatch(name) for name in (host, pod) if name):
        return
    if not (host or pod or "file" in texts or _whole(named.get("pid"))):
        return
    note.put(
        Place(
            rank, host or pod, line, local=_whole(named.get("local")), pid=_whole(named.get("pid")),
            gpu=texts.get("gpu"), pod=pod if host else None, file=texts.get("file"),
        )
    )  # fmt: skip


def _whole(value: object) -> int | None:
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 9 else None


def _named(rank: int, name: str, line: int) -> Place:
    """Of a rank's process a host, host:pid, or the file that it left."""
    if process := _PROCESS.fullmatch(name):
        return Place(rank, process["host"], line, pid=int(process["pid"]))
    return Place(rank, None, line, file=name) if FILE.fullmatch(name) else Place(rank, name, line)


def _by_name(note: Note, found: Mapping[str, int], where: Callable[[str], int]) -> None:
    """{"node-a:4242": 0, "worker-1": 1, "fr_b.pkl": 2}: only where these are all ranks, each once."""
    names = all(_PROCESS.fullmatch(key) or FILE.fullmatch(key) or re.fullmatch(HOST, key) for key in found)
    ranks = sorted(found.values())
    if not names or len(set(ranks)) < len(ranks) or not (note.given or ranks == list(range(len(ranks)))):
        return
    for key, rank in found.items():
        note.put(_named(rank, key, where(f'"{key}"')))


def table(note: Note) -> None:
    """A table with a header that names rank and a host, pod, pid or file, by bars, commas, tabs or spaces."""
    names: list[str] = []
    for number, line in note.lines:
        cells = [cell.strip("\"'") for cell in re.split(r"\s*[|,;\t]\s*|\s+", line.strip().strip("#|").strip()) if cell]
        header = {_COLUMNS.get(cell.lower()) for cell in cells}
        if "rank" in header and header & {"host", "pod", "file", "pid"} and not re.search(r"\d", line):
            names = [cell.lower() for cell in cells]
        elif names and len(cells) >= len(names):
            _record(note, dict(zip(names, cells, strict=False)), number)


_ROW = re.compile(r"(?P<rank>\d{1,6})[ \t,]+(?P<name>\S+?)(?:[ \t,]+(?P<local>\d{1,3}))?(?:[ \t,]+(?P<pid>\d{1,8}))?")
_ROW_OF = re.compile(
    rf"(?P<name>(?:{HOST})(?::\d{{1,8}})?|\S+\.\w+)(?:[ \t,]+|[ \t]*(?:->|=>|=|:)[ \t]*)(?P<rank>\d{{1,6}})"
)


def rows(note: Note) -> None:
    """`0 node-a`, `0 node-a 3 4242` (local rank, pid) or `node-a:4242 0`, `fr_a.pkl 0`: nothing but such rows.

    Numbers before names may count anything: these must be all ranks from 0 on, unless it is said to be a placement.
    """
    lines = [(number, line.strip()) for number, line in note.lines if not line.lstrip().startswith("#")]
    for pattern in (_ROW, _ROW_OF):
        matches = [(number, match) for number, line in lines if (match := pattern.fullmatch(line))]
        if len(matches) < len(lines) or not _all_ranks([int(match["rank"]) for _, match in matches], note.given):
            continue
        if not all(_is_name(match["name"], note.given) for _, match in matches):
            continue
        for number, match in matches:
            place = _named(int(match["rank"]), match["name"], number)
            more = match.groupdict()
            place.local = _whole(more.get("local"))
            place.pid = place.pid if place.pid is not None else _whole(more.get("pid"))
            note.put(place)
        return


def _is_name(name: str, given: bool) -> bool:
    wanted = _A_HOST if given else re.compile(HOST)
    return bool(wanted.fullmatch(name) or _PROCESS.fullmatch(name) or FILE.fullmatch(name))


def _all_ranks(ranks: Iterable[int], given: bool) -> bool:
    found = sorted(ranks)
    if len(set(found)) < len(found) or not found:
        return False
    return given or (len(found) > 1 and found == list(range(len(found))))
