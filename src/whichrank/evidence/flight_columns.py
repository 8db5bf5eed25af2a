"""A recorder's entries, as they come out of a pickle or JSON, into columns.

A job has millions of entries: each field is taken from all of them at once, shapes and stacks are kept once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from whichrank.dump import (
    BATCH,
    COLLECTIVE,
    COMPLETED,
    NEVER,
    PART,
    SINGLE,
    STATES,
    UNKNOWN,
    Dump,
    Frame,
    GroupOf,
    Signature,
    Status,
)
from whichrank.facts import MOST_RANKS, Source

MOST = 2_000_000  # entries
DEEP = 64  # frames of a stack
LONG = 400  # characters of a name
_NUMBER = re.compile(r"\d+")


class Strange(ValueError):
    """Data, but no dump of Flight Recorder."""


def columns(content: Any, source: Source) -> tuple[Dump, int]:
    """The dump, and how many of its entries had to be left out. Raises Strange."""
    if isinstance(content, list):
        content = {"entries": content, "version": ""}
        if not content["entries"] or not _is_entry(content["entries"][0]):
            raise Strange("a pickle, but not of Flight Recorder: a list of something else")
    if not isinstance(content, dict) or not ("pg_config" in content or ("version" in content and "entries" in content)):
        raise Strange("a pickle, but not of Flight Recorder")
    version = content.get("version")
    given = content.get("entries")
    entries = [entry for entry in given[:MOST] if _is_entry(entry)] if isinstance(given, list) else []
    table = _Table(entries)
    strange = (len(given) if isinstance(given, list) else 0) - len(entries)
    groups, group = _groups(table, content.get("pg_config"))
    names, name = _interned(table.texts("profiling_name"))
    backend, _, first = names[0].partition(":") if names else ("", "", "")
    old_times = bool(entries) and "time_created_ns" not in entries[0]
    created = table.numbers("time_created") * 1000 if old_times else table.numbers("time_created_ns")
    started, completed = table.numbers("time_discovered_started_ns"), table.numbers("time_discovered_completed_ns")
    signatures, signature = _signatures(table)
    sites, site = _sites(table)
    seq = table.numbers("collective_seq_id") if table.has("collective_seq_id") else table.numbers("seq_id")
    p2p = table.flags("is_p2p")
    bare = [text.partition(":")[2] or text for text in names]
    if not table.has("is_p2p"):
        p2p = np.array([text.startswith(("send ", "recv ")) for text in bare], bool)[name] if names else p2p
    kind, closes = _kinds(p2p, group, table.numbers("p2p_seq_id", 0), seq, [bare[n] for n in name])
    state = np.array([STATES.get(text, UNKNOWN) for text in table.texts("state")], np.int8)
    retired = table.flags("retired")
    backend = backend if first else "gloo" if _nameless(content.get("pg_config")) else "nccl"
    unfinished = ~retired if backend == "gloo" else state != COMPLETED
    unfinished = np.where(closes >= 0, unfinished[closes], unfinished) if len(entries) else unfinished
    dump = Dump(
        source=source,
        rank=None,
        version=version[:16] if isinstance(version, str) and version else "without a version",
        backend=backend,
        groups=groups,
        names=bare,
        signatures=signatures,
        sites=sites,
        record=table.numbers("record_id") if table.has("record_id") else _records(group, seq),
        group=group,
        name=name,
        signature=signature,
        site=site,
        seq=seq,
        p2p_seq=table.numbers("p2p_seq_id", 0),
        op=table.numbers("op_id"),
        kind=kind,
        open=unfinished,
        state=state,
        retired=retired,
        created=np.where(created > 0, created, NEVER),
        started=np.where(started > 0, started, NEVER),
        completed=np.where(completed > 0, completed, NEVER),
        timeout_ms=np.clip(table.numbers("timeout_ms"), NEVER, 2**31 - 1).astype(np.int32),
        status=_status(content.get("pg_status")),
        library=_text(content.get("comm_lib_version") or content.get("nccl_version")),
    )
    return dump, strange


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and "profiling_name" in entry


def _text(value: Any) -> str:
    return value[:LONG] if isinstance(value, str) else ""


class _Table:
    """Entries of one dump, by field. What has another type than it should have becomes the field's default."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = entries

    def has(self, field: str) -> bool:
        return bool(self.entries) and field in self.entries[0]

    def of(self, field: str, default: Any = None) -> list[Any]:
        try:
            return list(map(itemgetter(field), self.entries))
        except KeyError:
            return [entry.get(field, default) for entry in self.entries]

    def numbers(self, field: str, default: int = NEVER) -> npt.NDArray[np.int64]:
        values = self.of(field)
        kinds = set(map(type, values))
        if kinds <= {int}:
            try:
                return np.array(values, np.int64)
            except OverflowError:
                pass
        return np.array([_int(value, default) for value in values], np.int64)

    def flags(self, field: str) -> npt.NDArray[np.bool_]:
        return np.array([value is True for value in self.of(field)], bool)

    def texts(self, field: str) -> list[str]:
        values = self.of(field, "")
        return values if set(map(type, values)) <= {str} else [_text(value) for value in values]


def _int(value: Any, default: int) -> int:
    if isinstance(value, str):
        value = int(value) if re.fullmatch(r"-?\d{1,18}", value) else None
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else default


def _interned(values: Iterable[str]) -> tuple[list[str], npt.NDArray[np.int32]]:
    known: dict[str, int] = {}
    numbers = [known.setdefault(value, len(known)) for value in values]
    return [value[:LONG] for value in known], np.array(numbers, np.int32)


def _kept_once(
    keys: Sequence[Any], make: Callable[[int], Any], known: dict[Any, int], made: list[Any]
) -> npt.NDArray[np.int32]:
    """Numbers of equal keys; `make(at)` is asked once for each of them."""
    numbers = []
    for at, key in enumerate(keys):
        number = known.get(key)
        if number is None:
            number = known[key] = len(made)
            made.append(make(at))
        numbers.append(number)
    return np.array(numbers, np.int32)


def _records(group: npt.NDArray[np.int32], seq: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The oldest format does not number its entries. A group that does not begin with its first call has lost some."""
    _, first = np.unique(group, return_index=True)
    lost = int((seq[first] - 1).clip(0).sum()) if len(seq) else 0
    return np.arange(lost, lost + len(seq), dtype=np.int64)


def _nameless(config: Any) -> bool:
    """gloo lists its groups under no name."""
    return isinstance(config, dict) and "" in config


def _kinds(
    p2p: npt.NDArray[np.bool_],
    group: npt.NDArray[np.int32],
    p2p_seq: npt.NDArray[np.int64],
    seq: npt.NDArray[np.int64],
    names: Sequence[str],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """What each entry is; and for each part of a batch the entry that closes it, which alone carries the state.

    "coalesced" closes sends and receives where such entries of one number stand right before it, or where the ring has
    lost them: its number among sends and receives is then the news, not that among collectives.
    """
    kind = np.where(p2p, SINGLE, COLLECTIVE).astype(np.int8)
    closes = np.full(len(names), -1, np.int64)
    for at in (at for at, name in enumerate(names) if name == "coalesced"):
        first = at
        while first and p2p[first - 1] and group[first - 1] == group[at] and p2p_seq[first - 1] == p2p_seq[at]:
            first -= 1
        earlier = np.flatnonzero(group[:at] == group[at])
        if (
            first < at
            or (p2p_seq[at] > 0 and not len(earlier))
            or (len(earlier) and p2p_seq[earlier[-1]] < p2p_seq[at])
        ):
            kind[first:at], kind[at] = PART, BATCH
            closes[first:at] = at
    return kind, closes


# ---- groups


def _groups(table: _Table, config: Any) -> tuple[list[GroupOf], npt.NDArray[np.int32]]:
    """The groups that this process used: those of its entries first, then those that only pg_config lists."""
    members = _config(config)
    by_number = all(key.isdecimal() and name is None for key, (name, *_) in members.items()) and bool(members)
    ids = table.numbers("pg_id")
    pairs: list[Any] = table.of("process_group") if table.has("process_group") else [None] * len(ids)
    made: list[GroupOf] = []

    def make(at: int) -> GroupOf:
        pg_id, pair = int(ids[at]), pairs[at]
        if isinstance(pair, (tuple, list)) and len(pair) == 2 and any(pair):
            name, desc = _text(pair[0]), _text(pair[1])
        else:
            name, desc = ("", "") if pair is not None and not by_number else (str(pg_id), "")
        ranks = members.get(name if not by_number else str(pg_id), (None, "", None))[2]
        return GroupOf(name, desc, ranks, pg_id)

    keys = [
        (int(pg_id), tuple(pair) if isinstance(pair, (tuple, list)) and all(isinstance(p, str) for p in pair) else None)
        for pg_id, pair in zip(ids, pairs, strict=True)
    ]
    column = _kept_once(keys, make, {}, made)
    seen = {group.name for group in made}
    for key, (name, desc, ranks) in members.items():
        if (name if name is not None else key) not in seen and ranks:
            made.append(GroupOf(name if name is not None else key, desc, ranks, int(key) if by_number else NEVER))
    return made, column


def _config(config: Any) -> dict[str, tuple[str | None, str, tuple[int, ...] | None]]:
    """Of each key: name (None before format 2.1), description, members."""
    found: dict[str, tuple[str | None, str, tuple[int, ...] | None]] = {}
    if not isinstance(config, dict):
        return found
    for key, value in config.items():
        if isinstance(value, dict):
            found[str(key)[:LONG]] = (
                _text(value.get("name", str(key))),
                _text(value.get("desc")),
                _ranks(value.get("ranks")),
            )
        else:
            found[str(key)[:LONG]] = (None, "", _ranks(value))
    return found


def _ranks(value: Any) -> tuple[int, ...] | None:
    """A list of numbers, or its text: "[0, 1]"."""
    if isinstance(value, str):
        ranks = tuple(map(int, _NUMBER.findall(value[: 8 * MOST_RANKS])))
    elif isinstance(value, (list, tuple)):
        ranks = tuple(rank for rank in value if isinstance(rank, int))
    else:
        return None
    return ranks if ranks and len(ranks) <= MOST_RANKS and max(ranks) < MOST_RANKS else None


def _status(given: Any) -> dict[int, Status]:
    found: dict[int, Status] = {}
    for key, value in given.items() if isinstance(given, dict) else ():
        if isinstance(value, dict) and str(key).isdecimal() and len(str(key)) < 10:
            fields = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
            found[int(key)] = Status(*(_int(value.get(name), NEVER) for name in fields))
    return found


# ---- shapes and stacks


def _signatures(table: _Table) -> tuple[list[Signature], npt.NDArray[np.int32]]:
    given = [table.of(name, ()) for name in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")]
    made: list[Signature] = []
    keys = list(map(repr, zip(*given, strict=True)))
    return made, _kept_once(keys, lambda at: Signature(*_shapes(given, at)), {}, made)


def _shapes(given: list[list[Any]], at: int) -> tuple[Any, ...]:
    sizes = [
        tuple(tuple(n for n in shape if isinstance(n, int)) for shape in column[at] if isinstance(shape, (list, tuple)))
        if isinstance(column[at], (list, tuple))
        else ()
        for column in given[:2]
    ]
    dtypes = [
        tuple(_text(name) for name in column[at]) if isinstance(column[at], (list, tuple)) else ()
        for column in given[2:]
    ]
    return (*sizes, *dtypes)


def _sites(table: _Table) -> tuple[list[tuple[Frame, ...]], npt.NDArray[np.int32]]:
    made: list[tuple[Frame, ...]] = [()]
    if not any("frames" in entry for entry in table.entries[:8]):
        return made, np.zeros(len(table.entries), np.int32)
    stacks = table.of("frames", ())
    known: dict[Any, int] = {(): 0}
    # Equal frames are mostly one object: comparing those is faster than comparing what they say.
    keys = [tuple(map(id, stack[:DEEP])) if isinstance(stack, list) else () for stack in stacks]
    rough: list[tuple[Frame, ...]] = []
    column = _kept_once(keys, lambda at: tuple(map(_frame, stacks[at][:DEEP])) if keys[at] else (), {}, rough)
    numbers = []
    for site in rough:
        if site not in known:
            known[site] = len(made)
            made.append(site)
        numbers.append(known[site])
    return made, np.array(numbers, np.int32)[column] if numbers else column


def _frame(frame: Any) -> Frame:
    if not isinstance(frame, dict):
        return Frame("", "", 0)
    return Frame(_text(frame.get("name")), _text(frame.get("filename")), _int(frame.get("line"), 0))
