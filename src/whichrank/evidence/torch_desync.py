"""Who lags or differs, in PyTorch's own words: the desync report, DETAIL's fingerprints, monitored barriers.

PyTorch 1.13 to 2.14 (torch/csrc/distributed/c10d/TraceUtils.h, ProcessGroupWrapper.cpp, ProcessGroupGloo.cpp).

>>> from whichrank.evidence.sample import facts
>>> report, *states = facts(READER, '''\\t - [0] Timeout at collective: ALLREDUCE, #341
... \\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
... \\t     [5] finished collective #204, but didn't join collective #205 (count from 1)
... \\t - Snapshot of ranks' latest states:
... \\t   #204 finished ranks:
... \\t     [5] finished ALLREDUCE
... \\t   #341 started ranks:
... \\t     [0, 1] started ALLREDUCE''')
>>> report.rank, report["lagging"], report["seq"], report["op"]
(0, [5], 205, 'ALLREDUCE')
>>> [(state.rank, state.seq, state["op"], state["state"]) for state in states]
[(5, 204, 'ALLREDUCE', 'finished'), (0, 341, 'ALLREDUCE', 'started'), (1, 341, 'ALLREDUCE', 'started')]
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row, State
from whichrank.facts import NOBODY, Fact, Identity

PATIENCE = 20  # lines of others that may stand between the lines of a report
_ASPECTS = (
    ("op", "Op type"),
    ("shape", "Tensor shapes"),
    ("dtype", "Tensor dtypes"),
    ("device", "Tensor devices"),
    ("seq", "Sequence number"),
    ("count", "Num tensors"),
)


def _fingerprint(side: str) -> str:
    return (
        rf"CollectiveFingerPrint\((?:SequenceNumber=(?P<{side}seq>\d+), )?OpType=(?P<{side}op>\w+)(?:, TensorShape=(?P<{side}shape>\[[^\]]*\]))?"
        rf"(?:, TensorDtypes=(?P<{side}dtype>[^,)]+))?"
    )


MANY = 1_000_000


def ranks_of(text: str) -> list[int]:
    """Ranks of a list such as "1, 2" or "[0-2, 5]".

    >>> ranks_of("0-2, 5")
    [0, 1, 2, 5]
    """
    spans = (match.groups() for match in re.finditer(r"(\d+)(?:-(\d+))?", text))
    pairs = [(int(first), int(last or first)) for first, last in spans]
    if sum(last - first + 1 for first, last in pairs) > MANY:
        return []  # no job has as many: the line is damaged
    return [rank for first, last in pairs for rank in range(first, last + 1)]


def _missing(values: dict[str, Any]) -> None:
    values["ranks"] = ranks_of(str(values["ranks"]))


def _differ(values: dict[str, Any]) -> None:
    """What differs: what PyTorch says, and where it says nothing, what the two sides show."""
    said = str(values.pop("aspects", None) or "")
    named = [name for name, words in _ASPECTS if words.lower() in said.lower()]
    seen = [name for name in ("op", "shape", "dtype", "seq") if values.get(f"a_{name}") != values.get(f"b_{name}")]
    values["differ"] = named or seen


LINES = (
    Line(
        "fingerprint",
        "Detected mismatch between collectives on ranks",
        rf"Rank (?P<a_rank>\d+) is running collective: {_fingerprint('a_')}.*?, but Rank (?P<b_rank>\d+) is running collective: {_fingerprint('b_')}"
        r".*?(?:Collectives differ in the following aspects:(?P<aspects>.*))?$",
        tidy=_differ,
    ),
    Line(
        "wrapper_error",
        "ProcessGroupWrapper: Monitored Barrier encountered error",
        rf"Monitored Barrier encountered error running collective: {_fingerprint('')}",
    ),
    Line(
        "barrier_missing",
        "failed to pass monitoredBarrier",
        r"Ranks? (?P<ranks>\d+(?:[-, ]+\d+)*) failed to pass monitoredBarrier(?: in (?P<timeout_ms>\d+) ?ms)?",
        tidy=_missing,
    ),
    Line(
        "barrier_innocent",
        "successfully reached monitoredBarrier",
        r"Rank (?P<group_rank>\d+) successfully reached monitoredBarrier, but received errors",
    ),
)


class Report:
    """The desync report. Its lines carry no label, but it says itself which rank wrote it."""

    anchors = ("Timeout at collective: ", "To our best knowledge, ")

    def start(self, row: Row) -> State | None:
        state = Desync(row)
        return state if state.take(row) else None


class Desync:
    loose = True
    _self = re.compile(r"- \[(?P<rank>\d+)\] Timeout at collective: (?P<op>\w+), #(?P<seq>\d+)")
    _never = re.compile(
        r"To our best knowledge, ranks \[(?P<ranks>[\d, -]*)\] are the lagging ranks that caused this timeout"
    )
    _head = re.compile(r"To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:")
    _stuck = re.compile(r"\[(?P<ranks>[\d, -]+)\] joined but didn't finish collective #(?P<seq>\d+)")
    _behind = re.compile(r"\[(?P<ranks>[\d, -]+)\] finished collective #\d+, but didn't join collective #(?P<seq>\d+)")
    _title = re.compile(r"#(?P<seq>\d+) (?P<state>started|finished) ranks:")
    _state = re.compile(r"\[(?P<ranks>[\d, -]+)\] (?P<state>started|finished) (?P<op>\w+)")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.said: dict[str, Any] = {}
        self.lagging: list[int] = []
        self.seq: int | None = None
        self.title: re.Match[str] | None = None
        self.states: list[tuple[Row, int, re.Match[str]]] = []
        self.patience = PATIENCE

    def take(self, row: Row) -> bool | None:
        text = row.text.strip()
        if match := self._self.search(text):
            if self.said:
                return False
            self.said = {"reporter": int(match["rank"]), "op": match["op"], "timeout_seq": int(match["seq"])}
        elif match := self._never.search(text):
            self._blame(row, "never_joined", match["ranks"], None)
        elif match := self._stuck.search(text):
            self._blame(row, "joined", match["ranks"], int(match["seq"]))
        elif match := self._behind.search(text):
            self._blame(row, "not_joined", match["ranks"], int(match["seq"]))
        elif match := self._title.search(text):
            self.title = match
        elif self.title and (match := self._state.match(text)):
            self.states.append((row, int(self.title["seq"]), match))
        elif not (self._head.search(text) or "Snapshot of ranks' latest states" in text):
            self.patience -= 1
            return None if self.patience > 0 else False
        self.patience = PATIENCE
        return True

    def _blame(self, row: Row, how: str, ranks: str, seq: int | None) -> None:
        found = ranks_of(ranks)
        if not self.lagging:
            self.row = row
        self.lagging.extend(rank for rank in found if rank not in self.lagging)
        self.said.setdefault(how, []).extend(found)
        self.seq = self.seq if self.seq is not None else seq

    def facts(self) -> Iterable[Fact]:
        values = dict(self.said)
        reporter = values.pop("reporter", None)
        who = Identity(rank=reporter) if reporter is not None else NOBODY
        if self.lagging or values:
            seq = self.seq if self.seq is not None else values.get("timeout_seq")
            values = {"lagging": self.lagging, **values, **({"seq": seq} if seq is not None else {})}
            row = self.row
            yield Fact("desync", row.spot(), row.at_ns, row.clock, who.filled(row.who), None, seq, values)
        for row, seq, match in self.states:
            for rank in ranks_of(match["ranks"]):
                known = {
                    "op": match["op"],
                    "state": match["state"],
                    **({"reporter": reporter} if reporter is not None else {}),
                }
                yield Fact("desync_state", row.spot(), row.at_ns, row.clock, Identity(rank=rank), None, seq, known)


READER = Reader(
    "torch_desync",
    LINES,
    (Report(),),
    title="desync reports, DETAIL's fingerprints, monitored barriers",
    versions="PyTorch 1.13 to 2.14",
    collect=("export TORCH_NCCL_DESYNC_DEBUG=1", "export TORCH_DISTRIBUTED_DEBUG=DETAIL"),
)
