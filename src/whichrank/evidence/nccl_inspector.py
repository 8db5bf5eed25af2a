r"""NCCL Inspector: what each communicator completed on this process, how long it took, how much it moved.

Format: NCCL 2.28.3 to 2.30 (ext-profiler/inspector, later plugins/profiler/inspector), "v4.0": a JSON object a line, in a
file HOST-pidPID.log. `rank` is the rank in the communicator. Only completed operations are there, and some ranks log a
part of theirs: what is missing proves nothing. `coll_sn` counts each operation (AllReduce, …) by itself. 2.30 adds
`p2p_perf` and `comm_name`.

An operation takes as long as its slowest rank; who enters last has the *shortest* time. Such files are large: one fact a
process and communicator, with the last `KEPT` collectives as (coll_sn, operation, bytes, microseconds, busbw GB/s), and
the median busbw of the first and of the last third of the largest messages.

>>> data = b'''{"header":{"id":"0x7f8c49","rank":2,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1748030377748202,"hostname":"tern-4","pid":1639},"coll_perf":{"coll":"AllReduce","coll_sn":9,"coll_msg_size_bytes":1048576,"coll_exec_time_us":600,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":1.75,"coll_busbw_gbs":3.06}}
... {"header":{"id":"0x7f8c49","rank":2,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1748030377749102,"hostname":"tern-4","pid":1639},"coll_perf":{"coll":"AllReduce","coll_sn":10,"coll_msg_size_bytes":1048576,"coll_exec_time_us":610,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":1.72,"coll_busbw_gbs":3.01}}
... '''
>>> fact, = read(data, Source("tern-4-pid1639.log"))
>>> fact.kind, fact.who.host, fact.who.pid, fact.seq, fact["rank_in_comm"], fact["nranks"], fact["comm_id"]
('nccl_inspector', 'tern-4', 1639, 10, 2, 8, '0x7f8c49')
>>> fact["size"], fact["last"][-1], fact.spot.line
(None, (10, 'AllReduce', 1048576, 610, 3.01), 2)
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from whichrank.evidence.scan import Reader, Whole, excerpt
from whichrank.facts import Fact, Gap, Identity, Source, Spot

KEPT = 64  # collectives of one communicator
MOST = 256  # communicators of one file
SAMPLES = 4000  # busbw figures of one size that are kept
LARGE = 1 << 20  # bytes: below that busbw measures latency


class _Header(msgspec.Struct):
    id: str = ""
    rank: int = -1
    n_ranks: int = 0
    nnodes: int = 0
    comm_name: str | None = None


class _Metadata(msgspec.Struct):
    dump_timestamp_us: int = 0
    hostname: str = ""
    pid: int = 0


class _Perf(msgspec.Struct):
    coll: str = ""
    coll_sn: int = -1
    coll_msg_size_bytes: int = 0
    coll_exec_time_us: int = 0
    coll_busbw_gbs: float | str = 0.0


class _Record(msgspec.Struct):
    header: _Header
    metadata: _Metadata
    coll_perf: _Perf | None = None


@dataclass(slots=True)
class _Communicator:
    record: _Record
    line: int
    text: str
    total: int = 0
    last: deque[tuple[int, str, int, int, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    speeds: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def add(self, record: _Record, perf: _Perf, line: int, text: str) -> None:
        busbw = perf.coll_busbw_gbs if isinstance(perf.coll_busbw_gbs, float) else 0.0
        self.record, self.line, self.text = record, line, text
        self.total += 1
        self.last.append((perf.coll_sn, perf.coll, perf.coll_msg_size_bytes, perf.coll_exec_time_us, busbw))
        if perf.coll_msg_size_bytes >= LARGE and len(self.speeds) < 64:
            series = self.speeds.setdefault((perf.coll, perf.coll_msg_size_bytes), [])
            if len(series) >= SAMPLES:  # keep every second one: first and last third stay what they are
                del series[1::2]
            series.append(busbw)

    def speed(self) -> dict[str, Any]:
        """Of the operation and size that moved most bytes: its median busbw, early and late."""
        series = {key: values for key, values in self.speeds.items() if len(values) >= 6}
        if not series:
            return {}
        coll, size = max(series, key=lambda key: (key[1] * len(series[key]), key))
        values = series[coll, size]
        third = len(values) // 3
        return {
            "coll": coll,
            "size": size,
            "busbw_first": round(median(values[:third]), 3),
            "busbw_last": round(median(values[-third:]), 3),
        }


def sniff(head: bytes, path: str) -> bool:
    return head.lstrip()[:1] == b"{" and b'"inspector_output_format_version"' in head and b'"header"' in head


def read(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    """Facts of one file, objects on one line each or spread over several; a Gap if it breaks off."""
    source.kind = "metrics"
    found: dict[tuple[str, int, str, int], _Communicator] = {}
    strange = lines = 0
    for line, text in _objects(data):
        lines = line
        try:
            record = msgspec.json.decode(text, type=_Record)
        except (msgspec.DecodeError, RecursionError):
            strange += 1
            continue
        if record.coll_perf is None:
            continue
        key = (record.metadata.hostname, record.metadata.pid, record.header.id, record.header.rank)
        if key not in found and len(found) >= MOST:
            continue
        found.setdefault(key, _Communicator(record, line, "")).add(record, record.coll_perf, line, text)
    source.lines = lines
    for comm in found.values():
        yield _fact(comm, source)
    if strange:
        source.coverage = "cut"
        yield Gap(source.path, f"{strange} records of NCCL Inspector cannot be read", "the whole file")


def _objects(data: bytes) -> Iterator[tuple[int, str]]:
    """Each object with its line. Pretty-printed ones end with a brace at the start of a line."""
    text = data.decode("utf-8", "replace")
    if text.lstrip()[1:2] not in ("\n", "\r"):
        yield from ((line, one) for line, one in enumerate(text.split("\n"), 1) if one.strip())
        return
    decoder, at, line, counted = json.JSONDecoder(), 0, 1, 0
    while (at := text.find("{", at)) >= 0:
        line += text.count("\n", counted, at)
        counted = at
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield line, text[at : at + 200]
            return
        yield line, text[at:end]
        at = end


def _fact(comm: _Communicator, source: Source) -> Fact:
    header, metadata = comm.record.header, comm.record.metadata
    values: dict[str, Any] = {
        "comm_id": header.id,
        "rank_in_comm": header.rank,
        "nranks": header.n_ranks,
        "nnodes": header.nnodes,
        "total": comm.total,
        "last": tuple(comm.last),
        **comm.speed(),
    }
    if header.comm_name:
        values["name"] = header.comm_name
    at = metadata.dump_timestamp_us * 1000 or None
    who = Identity(host=metadata.hostname or None, pid=metadata.pid or None)
    spot = Spot(source, comm.line, excerpt(" ".join(comm.text.split())))
    return Fact("nccl_inspector", spot, at, "wall" if at else "none", who, seq=comm.last[-1][0], values=values)


READER = Reader(
    "nccl_inspector",
    whole=Whole(sniff, read),
    title="NCCL Inspector: times and bandwidths of completed operations",
    versions="JSON of NCCL 2.28.3 and newer",
    collect=("export NCCL_PROFILER_PLUGIN=inspector NCCL_INSPECTOR_ENABLE=1",),
)
