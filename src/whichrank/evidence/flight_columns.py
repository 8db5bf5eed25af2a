"""A recorder's entries, as they come out of a pickle or JSON, into columns.

A job has millions of entries: all fields are taken from an entry at once (its neighbours in memory), then each field
as a whole; shapes, stacks and lists of ranks are made once for all dumps that a process reads.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from itertools import chain, islice, repeat
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
    UNVERSIONED,
    Dump,
    Frame,
    GroupOf,
    Ints,
    Signature,
    Status,
)
from whichrank.facts import MOST_RANKS, Source

MOST = 500_000  # entries
MOST_GROUPS = 5000
MOST_PASSED = 4_000_000  # shapes, dimensions, characters of types in one dump
DEEP = 64  # frames of a stack
UNSET = 10**18 // 2  # ns: before 1986 a clock was never set
LONG = 400  # characters of a name
FIELDS = (
    "profiling_name", "time_created", "time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns",
    "collective_seq_id", "seq_id", "p2p_seq_id", "op_id", "record_id", "is_p2p", "state", "retired", "timeout_ms",
    "pg_id", "process_group", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes", "frames",
)  # fmt: skip
KEPT = 50_000  # different lists of ranks, shapes, frames that are remembered
_NUMBER = re.compile(r"\d+")
_tables: dict[Any, Any] = {}


Ranks = tuple[int, ...] | range


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
    if given is not None and not isinstance(given, list):
        raise Strange("a Flight Recorder dump whose entries are damaged: left out, so that it does not look empty")
    entries = [entry for entry in (given or ())[:MOST] if _is_entry(entry)]
    table = _Table(entries)
    strange = len(given or ()) - len(entries)
    if strange > len(entries):
        raise Strange(f"a Flight Recorder dump of which {strange} of {len(given or ())} entries are damaged: left out")
    groups, group = _groups(table, content.get("pg_config"))
    names, name = _numbered(table.texts("profiling_name"))
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
    seq = seq.clip(NEVER)
    p2p_seq = table.numbers("p2p_seq_id", 0).clip(NEVER)
    kind, closes = _kinds(p2p, group, p2p_seq, [n for n, text in enumerate(bare) if text == "coalesced"], name)
    states, which = _numbered(table.texts("state"))
    state = np.array([STATES.get(text, UNKNOWN) for text in states] or [UNKNOWN], np.int8)[which]
    retired = table.flags("retired")
    backend = backend if first else "gloo" if _nameless(content.get("pg_config")) else "nccl"
    unfinished = ~retired if backend == "gloo" else state != COMPLETED
    if closes is not None:
        unfinished = np.where(closes >= 0, unfinished[closes], unfinished)
    record = table.numbers("record_id") if table.has("record_id") else _records(group, seq)
    dump = Dump(
        source=source,
        rank=None,
        version=_text(version)[:16] or UNVERSIONED,
        backend=backend,
        groups=groups,
        names=tuple(bare),
        signatures=tuple(signatures),
        sites=tuple(sites),
        record=_narrow(record.clip(NEVER)),
        group=_narrow(group),
        name=_narrow(name),
        signature=_narrow(signature),
        site=_narrow(site),
        seq=_narrow(seq),
        p2p_seq=_narrow(p2p_seq),
        op=_narrow(table.numbers("op_id").clip(NEVER)),
        kind=kind,
        open=unfinished,
        state=state,
        retired=retired,
        created=np.where(created > UNSET, created, NEVER),
        started=np.where(started > UNSET, started, NEVER),
        completed=np.where(completed > UNSET, completed, NEVER),
        timeout_ms=_narrow(np.clip(table.numbers("timeout_ms"), NEVER, 2**31 - 1)),
        status=_status(content.get("pg_status")),
        library=_text(content.get("comm_lib_version") or content.get("nccl_version")),
    )
    if len(_tables) > KEPT:
        _tables.clear()
    dump.share(_tables)
    return dump, strange


def _narrow(numbers: npt.NDArray[np.int64]) -> Ints:
    """In half or a quarter of the bytes where they fit: thousands of rings are held at once."""
    if not len(numbers):
        return numbers.astype(np.int16)
    low, high = int(numbers.min()), int(numbers.max())
    for sort in (np.int16, np.int32):
        if np.iinfo(sort).min <= low and high <= np.iinfo(sort).max:
            return numbers.astype(sort)
    return numbers


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("profiling_name"), str)


def _text(value: Any) -> str:
    """A name. Half a character (a surrogate, which a pickle can hold) has no place in any report."""
    if not isinstance(value, str):
        return ""
    text: str = value[:LONG]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class _Table:
    """Entries of one dump, by field. What has another type than it should have becomes the field's default."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = entries
        self._fields = [name for name in FIELDS if entries and name in entries[0]]
        try:
            taken = list(map(itemgetter(*self._fields), entries)) if len(self._fields) > 1 else []
        except KeyError:  # an entry lacks what the first one has
            taken = []
        self._columns = dict(zip(self._fields, zip(*taken, strict=True), strict=True)) if taken else {}

    def has(self, field: str) -> bool:
        return bool(self.entries) and field in self.entries[0]

    def of(self, field: str, default: Any = None) -> Sequence[Any]:
        if field in self._columns:
            return self._columns[field]
        return [entry.get(field, default) for entry in self.entries]

    def numbers(self, field: str, default: int = NEVER) -> npt.NDArray[np.int64]:
        values = self.of(field)
        kinds = set(map(type, values))
        if kinds <= {type(None)}:
            return np.full(len(values), default, np.int64)
        if kinds == {int, type(None)}:
            values = [default if value is None else value for value in values]
        if kinds <= {int, type(None)}:
            try:
                return np.array(values, np.int64)
            except OverflowError:
                pass
        return np.array([_int(value, default) for value in values], np.int64)

    def flags(self, field: str) -> npt.NDArray[np.bool_]:
        values = self.of(field)
        if set(map(type, values)) <= {bool}:
            return np.array(values, bool)
        return np.array([value is True for value in values], bool)

    def texts(self, field: str) -> Sequence[str]:
        values = self.of(field, "")
        return values if set(map(type, values)) <= {str} else [_text(value) for value in values]


def _int(value: Any, default: int) -> int:
    if isinstance(value, str):
        value = int(value) if re.fullmatch(r"-?\d{1,18}", value) else None
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else default


def _numbered(values: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Different texts in the order of their first use, and each value's number among them."""
    known = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return [_text(value) for value in known], np.array([*map(known.__getitem__, values)], np.int64)


def _kept_once(
    keys: Sequence[Any], make: Callable[[int], Any], known: dict[Any, int], made: list[Any]
) -> npt.NDArray[np.int64]:
    """Numbers of equal keys; `make(at)` is asked once for each of them, in the order of their first use."""
    first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    for key, at in sorted(first.items(), key=itemgetter(1)):
        if key not in known:
            known[key] = len(made)
            made.append(make(at))
    return np.array([*map(known.__getitem__, keys)], np.int64)


def _records(group: npt.NDArray[np.int64], seq: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The oldest format does not number its entries. A group that does not begin with its first call has lost some."""
    _, first = np.unique(group, return_index=True)
    lost = int((seq[first] - 1).clip(0).sum()) if len(seq) else 0
    return np.arange(lost, lost + len(seq), dtype=np.int64)


def _nameless(config: Any) -> bool:
    """gloo lists its groups under no name."""
    return isinstance(config, dict) and "" in config


def _kinds(
    p2p: npt.NDArray[np.bool_],
    group: npt.NDArray[np.int64],
    p2p_seq: npt.NDArray[np.int64],
    coalesced: Sequence[int],
    name: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64] | None]:
    """What each entry is; and for each part of a batch the entry that closes it, which alone carries the state.

    "coalesced" closes sends and receives where such entries of one number stand right before it, or where the ring has
    lost them: its number among sends and receives is then the news, not that among collectives.
    """
    kind = np.where(p2p, SINGLE, COLLECTIVE).astype(np.int8)
    if not coalesced:
        return kind, None
    closes = np.full(len(name), -1, np.int64)
    numbers, groups, transfers = p2p_seq.tolist(), group.tolist(), p2p.tolist()
    latest: dict[int, int] = {}  # of each group, the number of its last entry
    counted, last = 0, -1
    for at in np.flatnonzero(np.isin(name, coalesced)).tolist():
        latest.update(zip(groups[counted:at], numbers[counted:at], strict=True))
        counted = first = at
        while (
            first - 1 > last  # what one has closed no other closes
            and transfers[first - 1]
            and groups[first - 1] == groups[at]
            and numbers[first - 1] == numbers[at]
        ):
            first -= 1
        last = at
        before = latest.get(groups[at])
        if first < at or numbers[at] > (0 if before is None else before):
            kind[first:at], kind[at] = PART, BATCH
            closes[first:at] = at
    return kind, closes


# ---- groups


def _groups(table: _Table, config: Any) -> tuple[list[GroupOf], npt.NDArray[np.int64]]:
    """The groups that this process used: those of its entries first, then those that only pg_config lists."""
    members = _config(config)
    by_number = all(key.isdecimal() and name is None for key, (name, *_) in members.items()) and bool(members)
    ids = table.numbers("pg_id").tolist()
    pairs: Sequence[Any] = table.of("process_group") if table.has("process_group") else [None] * len(ids)
    made: list[GroupOf] = []

    def make(at: int) -> GroupOf:
        pg_id, pair = ids[at], pairs[at]
        if isinstance(pair, (tuple, list)) and len(pair) == 2 and any(pair):
            name, desc = _text(pair[0]), _text(pair[1])
        else:
            name, desc = ("", "") if pair is not None and not by_number else (str(pg_id), "")
        ranks = members.get(name if not by_number else str(pg_id), (None, "", None))[2]
        return GroupOf(name, desc, ranks, pg_id)

    column = _kept_once([*zip(ids, _pairs(pairs), strict=True)], make, {}, made)
    seen = {group.name for group in made}
    for key, (name, desc, ranks) in members.items():
        if (name if name is not None else key) not in seen and ranks:
            made.append(GroupOf(name if name is not None else key, desc, ranks, int(key) if by_number else NEVER))
    return made, column


def _pairs(pairs: Sequence[Any]) -> Sequence[Hashable]:
    """Name and description of each entry's group; None for what is something else."""
    # Parts are looked at before a pair is hashed: a tuple of one tuple twice, forty times over, is hashed for days.
    listed = set(map(type, pairs)) <= {tuple, list} and sum(map(len, pairs)) == 2 * len(pairs)
    if listed and set(map(type, chain.from_iterable(pairs))) <= {str}:
        return [*map(tuple, pairs)]
    return [
        tuple(pair) if isinstance(pair, (tuple, list)) and len(pair) < 9 and all(isinstance(part, str) for part in pair)
        else None
        for pair in pairs
    ]  # fmt: skip


def _config(config: Any) -> dict[str, tuple[str | None, str, Ranks | None]]:
    """Of each key: name (None before format 2.1), description, members."""
    found: dict[str, tuple[str | None, str, Ranks | None]] = {}
    if not isinstance(config, dict):
        return found
    lists: dict[int, Ranks | None] = {}  # one list may stand in many places

    def ranks(given: Any) -> Ranks | None:
        if id(given) not in lists:
            lists[id(given)] = _ranks(given)
        return lists[id(given)]

    for given, value in islice(config.items(), MOST_GROUPS):
        key = _key(given)
        if key is None:
            continue
        if isinstance(value, dict):
            found[key] = (_text(value.get("name", key)), _text(value.get("desc")), ranks(value.get("ranks")))
        else:
            found[key] = (None, "", ranks(value))
    return found


def _key(given: Any) -> str | None:
    """A group's number, as text. Python refuses to write numbers of thousands of digits."""
    if isinstance(given, int):
        return str(given) if -(2**63) <= given < 2**63 else None
    return _text(given) if isinstance(given, str) else None


def _ranks(value: Any) -> Ranks | None:
    """A list of numbers, or its text: "[0, 1]"."""
    if isinstance(value, str):
        return _ranks_in(value[: 8 * MOST_RANKS])
    if isinstance(value, (list, tuple)):
        return _known_ranks(tuple(rank for rank in value[:MOST_RANKS] if isinstance(rank, int)))
    return None


@lru_cache(KEPT // 10)  # each of N dumps has the text of N ranks
def _ranks_in(text: str) -> Ranks | None:
    return _known_ranks(tuple(map(int, _NUMBER.findall(text))))


def _known_ranks(ranks: tuple[int, ...]) -> Ranks | None:
    if not ranks or len(ranks) > MOST_RANKS or not -1 < min(ranks) <= max(ranks) < MOST_RANKS:
        return None
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    regular = range(ranks[0], ranks[-1] + 1, step) if step > 0 else ()
    return regular if isinstance(regular, range) and tuple(regular) == ranks else ranks


def _status(given: Any) -> dict[int, Status]:
    found: dict[int, Status] = {}
    for key, value in given.items() if isinstance(given, dict) else ():
        number = _key(key) or ""
        if isinstance(value, dict) and number.isdecimal() and len(number) < 10:
            fields = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
            found[int(number)] = Status(*(_int(value.get(name), NEVER) for name in fields))
    return found


# ---- shapes and stacks


def _signatures(table: _Table) -> tuple[list[Signature], npt.NDArray[np.int64]]:
    given = [table.of(name, ()) for name in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")]
    made: list[Signature] = []
    if all(
        _regular(column, depth, kind)
        for column, depth, kind in zip(given, (2, 2, 1, 1), (int, int, str, str), strict=True)
    ):
        # version 2 of the format: equal bytes for what is equal
        keys: list[Any] = list(map(marshal.dumps, zip(*given, strict=True), repeat(2)))
    else:
        most = max(4, MOST_PASSED // max(1, len(table.entries)))
        keys = [_cleaned(passed, most) for passed in zip(*given, strict=True)]
    return made, _kept_once(keys, lambda at: _signature(keys[at]), {}, made)


def _regular(column: Sequence[Any], depth: int, kind: type) -> bool:
    """Lists of lists of numbers, or lists of texts, and not too much of them.

    Looked at first, because one list may stand in many places: of a few bytes that nest it, no end would be found.
    """
    for _ in range(depth):
        if not set(map(type, column)) <= {list, tuple} or sum(map(len, column)) > MOST_PASSED:
            return False
        column = list(chain.from_iterable(column))
    return set(map(type, column)) <= {kind} and (kind is int or sum(map(len, column)) <= MOST_PASSED)


_known_signatures: dict[bytes, Signature] = {}


def _signature(key: bytes | Signature) -> Signature:
    if isinstance(key, Signature):
        return key
    if key not in _known_signatures:
        if len(_known_signatures) >= KEPT:
            _known_signatures.clear()
        _known_signatures[key] = _cleaned(marshal.loads(key), MOST_PASSED)
    return _known_signatures[key]


def _cleaned(passed: Sequence[Any], most: int) -> Signature:
    """What was passed, as far as it is shapes and names of types."""
    lists = [given[:most] if isinstance(given, (list, tuple)) else () for given in passed]
    inputs, outputs = (
        tuple(
            tuple(n for n in shape[:DEEP] if isinstance(n, int) and -(2**63) <= n < 2**63)
            for shape in given
            if isinstance(shape, (list, tuple))
        )
        for given in lists[:2]
    )
    input_dtypes, output_dtypes = (tuple(map(_text, given)) for given in lists[2:])
    return Signature(inputs, outputs, input_dtypes, output_dtypes)


def _sites(table: _Table) -> tuple[list[tuple[Frame, ...]], npt.NDArray[np.int64]]:
    made: list[tuple[Frame, ...]] = [()]
    if not any("frames" in entry for entry in table.entries[:8]):
        return made, np.zeros(len(table.entries), np.int64)
    stacks = table.of("frames", ())
    # Equal frames are mostly one object: comparing those is faster than comparing what they say.
    keys = [tuple(map(id, stack[:DEEP])) if isinstance(stack, list) else () for stack in stacks]
    rough: list[tuple[Frame, ...]] = []
    frames: dict[int, Frame] = {}

    def make(at: int) -> tuple[Frame, ...]:
        if not keys[at]:
            return ()
        for number, frame in zip(keys[at], stacks[at], strict=False):
            if number not in frames:
                frames[number] = _frame(frame)
        return tuple(map(frames.__getitem__, keys[at]))

    column = _kept_once(keys, make, {}, rough)
    known: dict[Any, int] = {(): 0}
    numbers = [_kept(site, known, made) for site in rough]
    return made, np.array(numbers, np.int64)[column] if numbers else column


def _kept(site: tuple[Frame, ...], known: dict[Any, int], made: list[tuple[Frame, ...]]) -> int:
    if site not in known:
        known[site] = len(made)
        made.append(site)
    return known[site]


def _frame(frame: Any) -> Frame:
    if not isinstance(frame, dict):
        return Frame("", "", 0)
    return _one_frame(_text(frame.get("name")), _text(frame.get("filename")), _int(frame.get("line"), 0))


_one_frame = lru_cache(KEPT)(Frame)
