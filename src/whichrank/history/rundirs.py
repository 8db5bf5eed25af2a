"""Directories that `whichrank run` left, or their archives from --keep: each is one node's part in a run.

What is read: run.json, events.jsonl, the rings of the ranks, and incidents.json, which the last diagnosis at the job's end
wrote beside its report. Where the end was not seen (the node died, all of ours was killed) the part counts up to the last
sign of the job's life.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from whichrank.evidence import ring
from whichrank.facts import MOST_RANKS
from whichrank.history.incident import Incident, Run
from whichrank.history.node import Node, Seat, same_id
from whichrank.job.names import canon

INCIDENTS = "incidents.json"
FILES = ("run.json", "events.jsonl", INCIDENTS)
LARGEST = 64 << 20  # bytes of any of them
DEEPEST = 4  # folders below an argument
NEAR = 60.0  # seconds around a part in which a diagnosis may be of it
TOLD = (2, 10, 12, 15)  # signals by which somebody ends a job
COMMAND = 4000  # characters


@dataclass(frozen=True, slots=True)
class Part:
    """incidents: None where no diagnosis of the whole run lies there. hostname: what the job calls the node, such as a pod's."""

    path: str
    node: Node
    incidents: tuple[Incident, ...] | None
    hostname: str | None = None


def found(paths: Iterable[str]) -> list[Part]:
    """The run directories at these paths or below them, and archives of such, each once."""
    parts: dict[str, Part] = {}
    for path in dict.fromkeys(path for argument in paths for path in _places(Path(argument))):
        part = read(path)
        if part is not None:
            there = parts.get(part.node.key)
            if there is None or (there.node.outcome == "open", -there.node.ended) > (
                part.node.outcome == "open", -part.node.ended,
            ):  # fmt: skip
                parts[part.node.key] = part  # of several archives of one run the last
    return list(parts.values())


def _places(top: Path) -> Iterator[Path]:
    if top.is_file():
        if top.name == "run.json":
            yield top.parent
        elif top.name.endswith(".tar.gz"):
            yield top
        return
    for folder, folders, files in os.walk(top):
        folders.sort()
        here = Path(folder)
        if "run.json" in files:
            folders.clear()
            yield here
        elif len(here.relative_to(top).parts) >= DEEPEST:
            folders.clear()
        yield from (here / file for file in sorted(files) if file.endswith(".tar.gz") and "run.json" not in files)


def read(path: Path) -> Part | None:
    """None where it is no directory of a run, or its run.json cannot be read. Never raises for what is in it."""
    try:
        files = dict(_archive(path) if path.is_file() else _folder(path))
    except (OSError, EOFError, tarfile.TarError, ValueError):
        return None
    told = _json(files.get("run.json"))
    if not isinstance(told, dict) or "whichrank_run" not in told or (began := _wall(told.get("started"))) is None:
        return None
    rings = [one for name, data in files.items() if name.endswith(".ring") and (one := ring.parse(data))]
    events = [event for line in files.get("events.jsonl", b"").split(b"\n") if isinstance(event := _json(line), dict)]
    incidents = _incidents(files.get(INCIDENTS))
    return Part(
        str(path), _node(path, told, began, rings, events, incidents), incidents, canon(_text(told.get("host")))
    )


def _folder(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in (*(path / name for name in FILES), *sorted((path / "ring").glob("*.ring"))):
        if file.is_file() and file.stat().st_size <= LARGEST:
            yield file.name, file.read_bytes()


def _archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """Of an archive that breaks off, what is there."""
    with path.open("rb") as raw, tarfile.open(fileobj=io.BufferedReader(raw), mode="r|gz") as archive:
        try:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if member.isfile() and member.size <= LARGEST and (name in FILES or name.endswith(".ring")):
                    content = archive.extractfile(member)
                    yield name, content.read() if content else b""
        except (EOFError, tarfile.TarError, OSError):
            return


def _json(data: bytes | None) -> Any:
    try:
        return msgspec.json.decode(data) if data else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _wall(clocks: object) -> float | None:
    at = clocks.get("wall_ns") if isinstance(clocks, dict) else None
    return at / 1e9 if isinstance(at, int) and 0 < at < 1 << 62 else None


def _number(value: object, below: int = MOST_RANKS) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below else None


def _incidents(data: bytes | None) -> tuple[Incident, ...] | None:
    if data is None:
        return None
    try:
        return tuple(msgspec.json.decode(data, type=list[Incident]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def written(incidents: Sequence[Incident]) -> bytes:
    """As incidents.json."""
    return msgspec.json.encode([asdict(one) for one in incidents]) + b"\n"


def _node(
    path: Path, told: dict[str, Any], began: float, rings: Sequence[ring.Ring], events: Sequence[dict[str, Any]],
    incidents: Sequence[Incident] | None,
) -> Node:  # fmt: skip
    ids = told["ids"] if isinstance(told.get("ids"), dict) else {}
    who = [*(dict(one.identity) for one in rings), *(event for event in events if event.get("kind") == "rank")]
    job = next((one["job"] for one in who if isinstance(one.get("job"), str)), None)
    host = canon(_text(told.get("node")) or _text(told.get("host"))) or "unknown"
    name = _text(told.get("id")) or path.name
    command = told["command"] if isinstance(told.get("command"), list) else []
    ended = _wall(told.get("ended"))
    code = _number(told.get("exit_code"), 1 << 31)
    stopped = any(event.get("kind") == "signal" and event.get("signal") in TOLD for event in events)
    return Node(
        name=name,
        shared=same_id(ids, job, name, host, began),
        label=_text(ids.get("rdzv")) or _text(ids.get("job")) or (job if job not in (None, "none") else "") or name,
        host=host,
        began=began,
        ended=max(began, ended if ended is not None else _last_sign(rings, events)),
        outcome="open" if ended is None else _outcome(code, stopped, incidents),
        exit_code=code,
        world_size=max((_number(one.get("world")) or 0 for one in who), default=0),
        seats=_seats(who, events),
        command=" ".join(map(str, command))[:COMMAND],
    )


def _text(value: object) -> str | None:
    return value[:255] if isinstance(value, str) and value else None


def _outcome(code: object, stopped: bool, incidents: Sequence[Incident] | None) -> str:
    """An incident is none where nothing is known of it and the job ended well, because it was told to, or nobody saw how."""
    if any(one.cause != "undecided" or (one.rank is not None and code != 0) for one in incidents or ()):
        return "incident"
    if code == 0:
        return "healthy"
    return "stopped" if stopped or code is None else "incident" if incidents else "failed"


def _last_sign(rings: Sequence[ring.Ring], events: Sequence[dict[str, Any]]) -> float:
    beats = [at / 1e9 for one in rings if (at := one.wall_ns(one.last_ns)) is not None]
    return max([*beats, *(wall for event in events if (wall := _wall(event)) is not None)], default=0.0)


def _seats(who: Iterable[dict[str, Any]], events: Iterable[dict[str, Any]]) -> tuple[Seat, ...]:
    gpus: dict[Any, str] = {}
    for event in events:
        if event.get("kind") == "gpus" and isinstance(event.get("of"), dict):
            gpus |= event["of"]
    seats: dict[tuple[int, int], Seat] = {}
    for one in who:
        rank, attempt = _number(one.get("rank")), _number(one.get("attempt")) or 0
        if rank is not None:
            gpu = _text(gpus.get(str(one.get("pid"))))
            local = _number(one.get("local_rank"))
            before = seats.get((rank, attempt))
            if before is None or (before.gpu is None and gpu):
                seats[rank, attempt] = Seat(rank, attempt, local, gpu)
    return tuple(seats[key] for key in sorted(seats))


def kept_of(part: Part, diagnosed: Callable[[str], Sequence[Incident]] | None = None) -> tuple[Node, list[Incident]]:
    """The part and its incidents, as they are kept. diagnosed: asked where no diagnosis of the whole run lies there; without
    it the part is kept alone."""
    incidents, node = part.incidents, part.node
    if diagnosed is not None and (incidents is None or node.outcome == "open"):
        incidents = tuple(diagnosed(part.path))
        if incidents and node.outcome in ("open", "failed"):
            node = replace(node, outcome="incident") if _believed(incidents) else node
    return node, _at_home(incidents or (), [part]) if node.outcome == "incident" else []


def _at_home(incidents: Iterable[Incident], parts: Sequence[Part]) -> list[Incident]:
    """With the nodes' own names, where they are not what the job calls them."""
    names = {part.hostname: part.node.host for part in parts}
    return [replace(one, host=names.get(one.host, one.host)) for one in incidents]


def _believed(incidents: Sequence[Incident]) -> bool:
    return any(one.cause != "undecided" or one.rank is not None for one in incidents)


def sorted_out(
    runs: Sequence[Run], incidents: Sequence[Incident], parts: Sequence[Part]
) -> tuple[list[Run], list[Incident], list[tuple[Node, list[Incident]]]]:
    """A diagnosis of run directories: (runs of something else, their incidents, (part, what was said of its run)).

    A diagnosed run is that of the parts whose host and hours it has.
    """
    of = {run.id: [part for part in parts if _fits(run, part)] for run in runs}
    own: dict[str, list[Incident]] = {part.path: [] for part in parts}
    rest: list[Incident] = []
    for one in incidents:
        fits = of.get(one.run, [])
        home = [part for part in fits if any(seat.rank == one.rank for seat in part.node.seats)]
        (own[(home or fits)[0].path] if fits else rest).append(one)
    told = []
    for part in parts:
        node, said = part.node, _at_home(own[part.path], parts)
        if _believed(said):
            node = replace(node, outcome="incident")
        told.append((node, said if node.outcome not in ("healthy", "stopped") else []))
    return [run for run in runs if not of[run.id]], rest, told


def _fits(run: Run, part: Part) -> bool:
    hosts = {host for host, _ in run.placement if host}
    node = part.node
    began, ended = (
        run.began if run.began is not None else node.began,
        run.ended if run.ended is not None else node.ended,
    )
    return (
        (not hosts or node.host in hosts or part.hostname in hosts)
        and began <= node.ended + NEAR
        and ended >= node.began - NEAR
    )
