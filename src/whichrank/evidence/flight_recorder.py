r"""PyTorch's Flight Recorder: the last collectives of one rank, as it dumped them.

Formats, by the `version` in the dump (PyTorch's TraceUtils.h, NCCLUtils.hpp, FlightRecorder.cpp and
FlightRecorderDetail.hpp): none, a bare list (2.2); 1.4 (2.3); 2.1 (2.4); 2.4 (2.5 to 2.7); 2.9 (2.8);
2.10 (2.9 to 2.14); other minors have other fields beside these. Pickle, or JSON: without stacks, with 0 for a time that
is not known, with text for the numbers of `pg_status`, without `entries` where there are none. NCCL's recorder and
gloo's, whose state stays "scheduled" for ever: there `retired` says that it ended.

A dump does not say whose it is. The rank stands in the file's name, mostly last (`nccl_trace_rank_3`); where it does
not, the groups tell that have only this process in common. A name that the groups contradict is not believed.

>>> data = b'''{"comm_lib_version":"2.27.3","entries":[{"collective_seq_id":7,"input_dtypes":["Float"],"input_sizes":[[512]],
... "is_p2p":false,"op_id":7,"output_dtypes":["Float"],"output_sizes":[[512]],"p2p_seq_id":0,"pg_id":0,
... "process_group":["0","default_pg"],"profiling_name":"nccl:all_reduce","record_id":6,"retired":false,
... "state":"scheduled","time_created_ns":1764480078000000000,"time_discovered_completed_ns":0,
... "time_discovered_started_ns":0,"timeout_ms":600000}],"pg_config":{"0":{"desc":"default_pg","name":"0",
... "ranks":"[0, 1]"}},"pg_status":{"0":{"last_completed_collective":"6","last_enqueued_collective":"7",
... "last_started_collective":"-1"}},"version":"2.10"}'''
>>> dump, fact = read(data, Source("comm_lib_trace_rank_1"))
>>> dump.rank, dump.version, dump.backend, len(dump), tuple(dump.groups[0].members), dump.status[0].completed
(1, '2.10', 'nccl', 1, (0, 1), 6)
>>> fact.spot.excerpt
'Flight Recorder 2.10, nccl 2.27.3: 1 call, the last all_reduce #7 of default_pg, scheduled'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from whichrank.evidence.dump_names import NAMELESS, in_groups, only_rank, rank_in
from whichrank.evidence.scan import Reader, Whole
from whichrank.evidence.unpickle import MOST, Refused, unpickle
from whichrank.facts import Fact, Gap, Identity, Source, Spot
from whichrank.uncollected import uncollected

if TYPE_CHECKING:
    from whichrank.dump import Dump

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_WORDS = (b"profiling_name", b"pg_config", b"entries", b"record_id", b"time_created", b"pg_id")
_JSON_WORDS = (b'"pg_config"', b'"collective_seq_id"', b'"profiling_name"', b'"nccl_comm_state"')


def sniff(head: bytes, path: str) -> bool:
    """A pickle (any: none is text) or JSON with a recorder's own words."""
    if _PICKLE.match(head):
        return True
    start = head.lstrip()[:1]
    return start == b"{" and any(word in head for word in _JSON_WORDS)


def read(data: bytes, source: Source) -> Iterator[Dump | Fact | Gap]:
    """The dump and a fact that it is there; a Gap where it cannot be read or does not say whose it is."""
    with uncollected():
        try:
            content = unpickle(data) if _PICKLE.match(data) else _json(data)
        except Refused as error:
            kind = "a pickle" if _PICKLE.match(data) else "a Flight Recorder dump"
            found: list[Dump | Fact | Gap] = [Gap(source.path, f"{kind}: {error}", "this rank's dump, copied whole")]
        else:
            found = list(of_content(content, source, source.identity))
            del content
    yield from found


def of_json(text: str, source: Source, who: Identity) -> Iterator[Dump | Fact | Gap]:
    """A dump within something else, whose rank is known (a page of the debug server)."""
    try:
        content = _json(text.encode())
    except Refused as error:
        yield Gap(source.path, f"a Flight Recorder dump of rank {who.rank}: {error}", "this rank's dump, copied whole")
        return
    yield from of_content(content, source, who, told=True)


def of_content(content: Any, source: Source, who: Identity, told: bool = False) -> Iterator[Dump | Fact | Gap]:
    """told: whoever answered is known; else a rank in `who` comes from the name of the file."""
    from whichrank.evidence.flight_columns import Strange, columns  # with numpy: only where there is a dump

    try:
        dump, strange = columns(content, source)
    except Strange as error:
        yield Gap(source.path, str(error), "a dump of PyTorch's Flight Recorder")
        return
    except (RecursionError, MemoryError):
        yield Gap(source.path, "a Flight Recorder dump nested or filled beyond all measure: not read")
        return
    if strange:
        what = "entry is" if strange == 1 else "entries are"
        yield Gap(source.path, f"{strange} {what} not what Flight Recorder writes: left out, the rest is read")
    dump.rank = who.rank if told else None
    if not told:
        yield from _named(dump, who)
    yield dump
    spot = Spot(source, None, _says(dump))
    at = dump.last_ns
    who = who.filled(Identity(rank=dump.rank)) if dump.rank is not None else who
    values = {"entries": len(dump), "version": dump.version, "backend": dump.backend}
    yield Fact("dump", spot, at_ns=at if at > 0 else None, clock="wall" if at > 0 else "none", who=who, values=values)


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        cut = "truncated" in str(error) or "end of input" in str(error)
        raise Refused("it breaks off: the file is cut" if cut else "damaged: no valid JSON") from None


def _named(dump: Dump, who: Identity) -> Iterator[Gap]:
    """Whose dump it is, by its name and its groups. Where others tell as well, job/dump_ranks.py looks again."""
    name = who.rank if who.rank is not None else rank_in(dump.source.path)
    if name is not None and in_groups(dump, name):
        dump.rank = name
        return
    dump.rank = only_rank(dump)
    if dump.rank is not None:
        if name is not None:
            why = f"its name says rank {name}, but only rank {dump.rank} is in all of its groups: taken as that"
            yield Gap(dump.source.path, why)
        return
    why = (
        "its name does not say of which rank it is"
        if name is None
        else f"rank {name} is not in the groups that it used"
    )
    help = "the rank as the last number of the name, or --placement FILE with its host, pid or file name"
    yield Gap(dump.source.path, f"{NAMELESS}{why}", help)


def _says(dump: Dump) -> str:
    library = f"{dump.backend} {dump.library}".strip()
    begin = f"Flight Recorder {dump.version}, {library}: {len(dump)} call{'s' * (len(dump) != 1)}"
    if not len(dump):
        return begin
    from whichrank.dump import describe

    return f"{begin}, the last {describe(dump, len(dump) - 1)}"


READER = Reader(
    "flight_recorder",
    whole=Whole(sniff, read, most=MOST),
    title="Flight Recorder dumps (pickle or JSON, NCCL or gloo)",
    versions="PyTorch 2.2 to 2.14: the unversioned list, 1.4, 2.1, 2.4, 2.9, 2.10",
    collect=(
        "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
        "export TORCH_FR_DUMP_TEMP_FILE=/local/fr_rank_ TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/local/fr_rank_",
    ),
)
