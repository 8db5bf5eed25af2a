"""What training frameworks say of their own health: straggler reports, timers over ranks, hang detectors, engines.

Their verdicts are hints. A detector compares what it can measure: a rank that is slow because it waits for another looks
slow too, and the one that stopped reports nothing. Times are kept only where the ranks part: a log holds such a table
every few steps. Formats:

- Megatron-LM core (megatron/core/timers.py, utils.py StragglerDetector, rerun_state_machine.py; core 0.6 to 0.17):
  `(min, max) time across ranks (ms):`, `max time …`, `times across ranks (ms):` with a line for each rank.
- nvidia-resiliency-ext 0.1 to 0.7 and NeMo, Megatron-Bridge that use it: `GPU relative performance:`, STRAGGLER DETECTION
  WARNING, rank monitors (`[RankMonServer88@node-7:3]`, before 0.2 `[RankMonitorServer:3]`), health checks of GPU and NIC.
- vLLM 0.6 to 0.14 (shm_broadcast.py, multiproc_executor.py, core_client.py), SGLang 0.4 and 0.5 (scheduler watchdog).

>>> from whichrank.evidence.sample import facts
>>> for fact in facts(READER, '''(min, max) time across ranks (ms):
...     forward-backward ...............................: (1204.30, 1391.02)
...     batch-generator ................................: (3.12, 48211.53)'''):
...     print(fact["name"], fact["low"], fact["high"], fact["unit"])
batch-generator 3.12 48211.53 ms
>>> low, = facts(READER, '''GPU relative performance:
...  Worst performing 1/512 ranks:
...   Rank=76 Node=h100-253-012 Score=0.61
...  Best performing 1/512 ranks:''')
>>> low.kind, low.rank, low.who.host, low["what"], low["score"]
('rank_score', 76, 'h100-253-012', 'relative', 0.61)
>>> late, = facts(READER, "[2026-07-30 09:33:15,123] [WARNING] [RankMonServer3411@node-7:3] Section 'checkpointing' has been open for 901.20 seconds. Timeout is 900.00 seconds.")
>>> late.kind, late.rank, late.who.host, late["section"], late["seconds"]
('heartbeat_missed', 3, 'node-7', 'checkpointing', 901.2)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row, State
from whichrank.facts import Fact, Identity

PATIENCE = 6  # strange lines within a table
MOST = 4096  # ranks of one table
_EXTREME = re.compile(
    r"\b(?P<end>Mn|Mx)(?P<name>[A-Z]\w{1,5})/Rnk: (?P<value>-?\d+(?:\.\d+)?)(?P<unit>[A-Za-z%]*)/(?P<rank>\d{1,6})"
)


# Ratios of the highest to the lowest from which ranks part: the detector's own metrics, then timers by name.
_APART = {"Rtt": 1.33, "Etpt": 1.33, "Clk": 1.33, "DRtt": 2.0}
# Timers of waits and transfers: there the others' times show, and pipelines make them uneven.
_WAITS = re.compile(r"recv|send|sync|reduce|gather|barrier|interval|wait|embedding-grads|layernorm")
LONG = 1000.0  # ms: shorter times hold nobody up


def _parted(name: str, low: float, high: float) -> bool:
    """Is the highest value of this metric or timer so far from the lowest that it is worth a word?"""
    if name in _APART:
        return high > _APART[name] * low and (name != "DRtt" or high >= LONG)
    return not name[:1].isupper() and not _WAITS.search(name) and high >= LONG and high > 2 * low


def read_extremes(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """Megatron's StragglerDetector: `MnRtt/Rnk: 1446.49ms/13 | MxRtt/Rnk: 1570.32ms/30 | …`."""
    found: dict[str, dict[str, Any]] = {}
    for part in _EXTREME.finditer(row.text):
        values = found.setdefault(part["name"], {"name": part["name"], "unit": part["unit"], "by": "megatron"})
        low = part["end"] == "Mn"
        values["low" if low else "high"] = float(part["value"])
        values["low_rank" if low else "high_rank"] = int(part["rank"])
    for values in found.values():
        if {"low", "high"} <= values.keys() and _parted(str(values["name"]), values["low"], values["high"]):
            yield row.fact("rank_extremes", **values)


def read_slowest(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """Megatron: `^^^^ Bottom 4 Ranks with lowest  Etpt(TF): 296.02/0, 296.10/9,`."""
    pairs = re.findall(r"(\d+(?:\.\d+)?)\w*/(\d{1,6})", match["ranks"])
    if pairs:
        ranks = [int(rank) for _, rank in pairs]
        yield row.fact(
            "straggler_hint", by="megatron", what="throughput", ranks=ranks, scores=[float(n) for n, _ in pairs]
        )


def read_warning(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """NVRx: `Affected ranks: {StragglerId(rank=3, node='h3')}` or `[76, 13]`."""
    named = re.findall(r"rank=(\d{1,6}), node='([^']*)'", match["ranks"])
    ranks = [int(rank) for rank, _ in named] or [int(rank) for rank in re.findall(r"\b\d{1,6}\b", match["ranks"])]
    for rank, host in named[:MOST]:
        yield row.fact("member", who=Identity(rank=int(rank), host=host))
    what = "relative" if "relative" in match[0] else "individual"
    if ranks:
        yield row.fact("straggler_hint", by="nvrx", what=what, ranks=ranks[:MOST])


def read_heartbeat(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """A rank monitor's word on its own rank, whose number stands in the logger's name."""
    old = re.search(r"\[RankMonitorServer:(\d{1,6})\]", row.raw)
    found = match.groupdict()
    values: dict[str, Any] = {"seconds": float(found["waited"] or found["open"] or found["out"])}
    if found["section"]:
        values["section"] = found["section"]
    elif found["out"]:
        values["section"] = "none"
    yield row.fact("heartbeat_missed", who=Identity(rank=int(old[1]) if old else None), by="nvrx", **values)


_BAD = r"(?:Requires a reset to recover|Requires a node reboot to recover|Requires peer-to-peer traffic to be drained|Operating at reduced capacity|NVL link \d+ is in DISABLED state)"
LINES = (
    Line("rank_extremes", "MnRtt/Rnk: ", r"MnRtt/Rnk: ", read=read_extremes),
    Line("straggler_hint", "Ranks with lowest", r"\^\^\^\^ Bottom \d+ Ranks with lowest\s+Etpt\(TF\):(?P<ranks>.*)", read=read_slowest),
    Line(
        "straggler_hint",
        "STRAGGLER DETECTION WARNING",
        r"STRAGGLER DETECTION WARNING: Some GPUs (?:have worse relative performance|performance dropped)\. Affected ranks: (?P<ranks>[\[{(].*)",
        read=read_warning,
    ),
    Line(
        "heartbeat_missed",
        ("Did not get subsequent heartbeat", "Did not get initial heartbeat", "has been open for", "Was out of section for"),
        r"Did not get (?:initial|subsequent) heartbeat\. Waited (?P<waited>\d+(?:\.\d+)?) seconds|Section '(?P<section>[^']+)' has been open for (?P<open>\d+(?:\.\d+)?) seconds\. Timeout|Was out of section for (?P<out>\d+(?:\.\d+)?) seconds\. Timeout",
        read=read_heartbeat,
    ),
    # NVRx's own checks; the GPU's verdict is the driver's (NVML recovery action).
    Line("health_failed", ("Requires a reset to recover", "Requires a node reboot to recover", "traffic to be drained. Terminate", "Operating at reduced capacity", "is in DISABLED state"), rf"\bGPU (?P<index>\d+): (?P<text>{_BAD}.*)", {"by": "nvrx", "what": "gpu"}),
    Line("health_failed", "Port state changed from", r"NIC device (?P<device>[\w.-]+): (?P<text>Port state changed from \w+ to \w+\. Health check FAILED)", {"by": "nvrx", "what": "nic"}),
    # Megatron's rerun state machine: was a result reproducible?
    Line(
        "result_check",
        ("nexpected result", "Possible transient error", "Possible persistent error", "Correct result (but possible"),
        r"\bRank (?P<rank>\d{1,6}), node (?P<host>[\w.-]+), device (?P<device>\d+), iteration #?(?P<step>\d+): (?:(?P<unexpected>Unexpected result .*)|.*?(?P<transient>Possible transient error)|(?P<persistent>Possible persistent error)|(?P<correct>Correct result))",
        {"by": "megatron"},
        lambda values: values.update(
            verdict=next((name for name in ("unexpected", "transient", "persistent", "correct") if values.pop(name, None)), "unexpected")
        ),
    ),
    # Serving engines. None of these lines tells which worker is to blame.
    Line("engine_waits", "No available shared memory broadcast block", r"No available shared memory broadcast block found in (?P<seconds>\d+) ?s", {"by": "vllm"}),
    Line("engine_waits", ("watchdog timeout (self.watchdog_timeout", "Watchdog timeout (self.watchdog_timeout"), r"atchdog timeout \(self\.watchdog_timeout=(?P<seconds>\d+)", {"by": "sglang"}),
    Line("engine_death", "died unexpectedly, shutting down", r"(?P<name>(?:Engine core|Worker) proc \S+) died unexpectedly, shutting down", {"by": "vllm"}),
    Line("engine_death", "EngineDeadError: ", r"(?P<name>EngineDeadError): EngineCore encountered an issue", {"by": "vllm"}),
)  # fmt: skip


class Scores:
    """NVRx: `GPU relative performance:` and below it `  Rank=76 Node=h100 Score=0.94`, the worst first."""

    anchors = ("GPU relative performance:", "GPU individual performance:")

    def start(self, row: Row) -> State | None:
        match = re.search(r"\bGPU (relative|individual) performance:\s*$", row.text)
        return _ScoreRows(match[1]) if match else None


class _ScoreRows:
    _row = re.compile(r"^\s*Rank=(?P<rank>\d{1,6}) Node=(?P<host>\S+) Score=(?P<score>\d+(?:\.\d+)?|nan)\s*$")
    _heading = re.compile(r"^\s*(?:Worst|Best) performing \d+/(?P<ranks>\d+) ranks:\s*$")

    def __init__(self, what: str) -> None:
        self.what = what
        self.found: list[Fact] = []
        self.strange = 0

    def take(self, row: Row) -> bool | None:
        if match := self._row.match(row.text):
            if match["score"] != "nan" and len(self.found) < MOST:
                who = Identity(rank=int(match["rank"]), host=match["host"])
                self.found.append(
                    row.fact("rank_score", who=who, by="nvrx", what=self.what, score=float(match["score"]))
                )
        elif not self._heading.match(row.text):
            self.strange += 1
            return None if self.strange < PATIENCE else False
        self.strange = 0
        return True

    def facts(self) -> Iterable[Fact]:
        return self.found


class Timers:
    """Megatron's timers: over all ranks the least and the most, or each rank's own."""

    anchors = ("time across ranks (ms):", "times across ranks (ms):")

    def start(self, row: Row) -> State | None:
        match = re.search(r"(?P<which>\(min, max\) time|max time|times) across ranks \(ms\):(?P<rest>.*)$", row.text)
        if not match:
            return None
        state = _TimerRows(match["which"])
        if match["rest"].strip():
            state.read(row, match["rest"])  # log collectors join lines
        return state


class _TimerRows:
    _pair = re.compile(r"^\s*(?P<name>[a-z][\w/ -]{1,60}?) ?\.*: ?\((?P<low>\d+\.\d+), (?P<high>\d+\.\d+)\)")
    _most = re.compile(r"^\s*(?P<name>[a-z][\w/ -]{1,60}?) ?\.+: (?P<high>\d+\.\d+)\s*$")
    _name = re.compile(r"^\s{2}(?P<name>[a-z][\w/-]{1,60}):\s*$")
    _rank = re.compile(r"^\s+rank\s+(?P<rank>\d{1,6}): (?P<value>\d+\.\d+)\s*$")

    def __init__(self, which: str) -> None:
        self.each = which == "times"
        self.most_only = which.startswith("max")
        self.name = ""
        self.rows: dict[str, Row] = {}
        self.times: dict[str, dict[int, float]] = {}
        self.found: list[Fact] = []
        self.strange = 0

    def read(self, row: Row, text: str) -> bool:
        if self.each:
            return self._of_rank(row, text)
        match = (self._most if self.most_only else self._pair).match(text)
        if match and len(self.found) < MOST:
            name, high = match["name"].strip(), float(match["high"])
            if not self.most_only and _parted(name, float(match["low"]), high):
                low = float(match["low"])
                self.found.append(row.fact("rank_extremes", name=name, unit="ms", low=low, high=high, by="megatron"))
        return match is not None

    def _of_rank(self, row: Row, text: str) -> bool:
        if match := self._name.match(text):
            self.name = match["name"]
            self.rows.setdefault(self.name, row)
        elif self.name and (match := self._rank.match(text)):
            times = self.times.setdefault(self.name, {})
            rank, value = int(match["rank"]), float(match["value"])
            if len(times) < MOST:
                if value > max(times.values(), default=-1.0):
                    self.rows[self.name] = row  # the line of the slowest is the proof
                times[rank] = value
        else:
            return False
        return True

    def take(self, row: Row) -> bool | None:
        if Timers.anchors[0] in row.text or Timers.anchors[1] in row.text:
            return False
        if self.read(row, row.text):
            self.strange = 0
            return True
        self.strange += 1
        return None if self.strange < PATIENCE else False

    def facts(self) -> Iterable[Fact]:
        yield from self.found
        for name, times in self.times.items():
            low, high = min(times, key=lambda rank: times[rank]), max(times, key=lambda rank: times[rank])
            if _parted(name, sorted(times.values())[-2] if len(times) > 1 else times[high], times[high]):
                yield self.rows[name].fact(
                    "rank_extremes", name=name, unit="ms", low=times[low], high=times[high], low_rank=low, high_rank=high, by="megatron"
                )  # fmt: skip


READER = Reader(
    "framework_health",
    LINES,
    (Scores(), Timers()),
    title="what training frameworks say of their own health: straggler reports, timers over ranks, hang detectors",
    versions="Megatron-LM core 0.6 to 0.17, nvidia-resiliency-ext 0.1 to 0.7, vLLM 0.6 to 0.14, SGLang 0.4 and 0.5",
    collect=("--timing-log-level 1 --timing-log-option minmax  # Megatron-LM",),
)
