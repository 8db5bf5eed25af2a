"""What the watchdog of ProcessGroupNCCL prints: timeouts, the queue of a group, dump signals, a stuck heartbeat.

PyTorch 1.13 to 2.14 (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp). The rank in `[Rank 3]` and `[PG … Rank 3]` is
the rank in that group. The timeout line does not say which group: the status line after it does.

>>> from whichrank.evidence.sample import facts
>>> line = ("[rank7]:[E1130 05:41:18.324909491 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation "
...         "timeout: WorkNCCL(SeqNum=1842, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600063 "
...         "milliseconds before timing out.")
>>> timeout, = facts(READER, line)
>>> timeout.kind, timeout.rank, timeout.seq, timeout["op"], timeout["group_rank"], timeout["ran_ms"]
('timeout', 7, 1842, 'ALLREDUCE', 3, 600063)
>>> line = ("[rank7]:[E1130 05:41:18.325 ProcessGroupNCCL.cpp:2268] [PG ID 1 PG GUID 3(mesh_fsdp) Rank 3]  failure "
...         "detected by watchdog at work sequence id: 1842 PG status: last enqueued work: 1843, last completed work: 1841")
>>> status, = facts(READER, line)
>>> status.group, status["failed"], status["enqueued"], status["completed"]
('mesh_fsdp', 1842, 1843, 1841)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row, State
from whichrank.facts import Fact

# 18446744073709551615 is -1 in an unsigned number: a coalesced batch has no sequence number.
_SEQ = r"(?:18446744073709551615|(?P<seq>-?\d{1,18}))"
_WORK = (
    rf"WorkNCCL\((?:SeqNum={_SEQ}, )?OpType=(?P<op>\w+)(?:, TensorShape=(?P<shape>\[[^\]]*\]))?"
    r"(?:, NumelIn=(?P<numel_in>\d+))?(?:, NumelOut=(?P<numel_out>\d+))?(?:, Timeout\(ms\)=(?P<timeout_ms>\d+))?\)"
)
# The description of a group names it best; without one its globally unique id does, else its number.
_GROUP = r"\[PG (?:ID \d+ PG GUID )?(?:\w+ ?\((?!undefined))?(?P<group>[^()\[\]]+?)(?:\(undefined\))?\)? Rank (?P<group_rank>\d+)\]"
_RANK = r"(?:\[Rank (?P<group_rank>\d+)\] )?"
_TIMED_OUT = r"Watchdog caught collective operation timeout: "
_RAN = r"(?: ran for (?P<ran_ms>\d+) milliseconds)?"
_QUEUE = (
    r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+)(?:, last started (?:NCCL )?work: (?P<started>-?\d+))?"
    r", last completed (?:NCCL )?work: (?P<completed>-?\d+)"
)
_FAILED = r"(?:18446744073709551615|(?P<failed>-?\d{1,18}))"
_NCCL = {"backend": "nccl"}
PATIENCE = 20  # lines of others that may stand between the lines of a block

LINES = (
    # Printed with TORCH_CPP_LOG_LEVEL=INFO: who is in which group, and its limit.
    Line(
        "group_member",
        "ProcessGroupNCCL initialization options",
        rf"{_GROUP} ProcessGroupNCCL initialization options:.*?size: (?P<size>\d+), global rank: (?P<rank>\d+)(?:, TIMEOUT\(ms\): (?P<timeout_ms>\d+))?",
    ),
    Line(
        "timeout",
        "Watchdog caught collective operation timeout",
        rf"^(?!.*(?:terminated with exception|what\(\):)).*?{_RANK}{_TIMED_OUT}(?:{_WORK})?{_RAN}",
        _NCCL,
    ),
    # The wrapper repeats a timeout. Some ranks print nothing else.
    Line(
        "timeout",
        ("terminated with exception", "what():"),
        rf"(?:{_GROUP} )?(?:Process group|NCCL) watchdog thread terminated with exception: (?:\[Rank \d+\] )?{_TIMED_OUT}{_WORK}{_RAN}",
        {**_NCCL, "echo": True},
    ),
    Line(
        "timeout",
        "what():",
        rf"what\(\): +{_RANK}{_TIMED_OUT}{_WORK}{_RAN}",
        {**_NCCL, "echo": True},
    ),
    Line(
        "timeout",
        "timed out in blocking wait",
        rf"{_RANK}(?:Work )?{_WORK} timed out in blocking wait",
        {**_NCCL, "blocking": True},
    ),
    Line(
        "timeout",
        "timeout - timeout watchdog detected",
        r"timeout - timeout watchdog detected operation timeout",
        {"backend": "nccl2"},
    ),
    Line(
        "pg_status",
        ("at NCCL work: ", "watchdog at work: "),
        rf"(?:{_GROUP}.*?)?(?:Timeout at NCCL work|detected by watchdog at work): {_FAILED}, {_QUEUE}",
    ),
    Line(
        "pg_status",
        "failure detected by watchdog at work sequence id",
        rf"(?:{_GROUP} +)?failure detected by watchdog at work sequence id: {_FAILED},? PG status: {_QUEUE}",
    ),
    Line(
        "dump_signal",
        "Received a dump signal due to a collective timeout",
        rf"(?:{_GROUP} +)?Received a dump signal due to a collective timeout from +(?:rank (?P<from_rank>\d+)|this local rank).*?(?i:{_QUEUE})",
    ),
    Line(
        "dump_signal",
        "Received a global",
        rf"(?:{_GROUP} +)?Received a global (?:timeout from another rank|dump signal from rank (?P<from_rank>\d+))(?:.*?(?i:{_QUEUE}))?",
        {"remote": True},
    ),
    Line(
        "dump_signal",
        "Observed flight recorder dump signal from another rank",
        rf"(?:{_GROUP} +)?Observed flight recorder dump signal from another rank",
        {"remote": True},
    ),
    Line(
        "watchdog_stuck",
        "watchdog got stuck for",
        rf"(?:{_GROUP} +)?ProcessGroupNCCL's watchdog got stuck for (?P<seconds>\d+) ?seconds without making progress",
    ),
    Line(
        "watchdog_stuck",
        ("NCCL monitor thread timeout", "Heartbeat monitor timed out"),
        r"NCCL monitor thread timeout\.|Heartbeat monitor timed out!",
    ),
    Line(
        "watchdog_stuck",
        "due to ProcessGroupNCCL watchdog hang",
        r"after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang",
    ),
    Line("gil_stuck", "Could not acquire GIL", r"Could not acquire GIL within \d+ ?ms on exit"),
    Line(
        "generic_abort",
        "Some NCCL operations have failed or timed out",
        r"Some NCCL operations have failed or timed out",
    ),
    Line(
        "generic_abort",
        "we are taking the entire process down",
        r"^(?!.*Some NCCL operations).*we are taking the entire process down",
    ),
    Line(
        "generic_abort",
        "terminate called",
        r"terminate called (?:after throwing an instance of|without an active exception|recursively)",
    ),
    Line(
        "generic_abort",
        "due to collective timeout or exception",
        r"after attempting to dump debug info, due to collective timeout or exception",
    ),
    Line("remote_error", "emote error detected from rank", r"[Rr]emote error detected from rank:? (?P<from_rank>\d+)"),
)


class FailedCollective:
    """Where the failed collective was issued: `#0 func from file:line` under its title.

    >>> from whichrank.evidence.sample import facts
    >>> site, = facts(READER, '''[rank0]:[E625 09:25:44.1 ProcessGroupNCCL.cpp:664] Stack trace of the failed collective:
    ... #0 all_gather_into_tensor from /usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:3798
    ... #1 fit from /work/train.py:61''')
    >>> site.rank, site["frames"][-1]
    (0, 'fit /work/train.py:61')
    """

    anchors = ("Stack trace of the failed collective",)
    _title = re.compile(r"Stack trace of the failed collective: *(?P<first>#0 .*)?$")

    def start(self, row: Row) -> State | None:
        match = self._title.search(row.text)
        return Site(row, match["first"]) if match else None


class Site:
    loose = True
    _frame = re.compile(r"^\s*#(?P<number>\d+) (?P<func>.+?) from (?P<where>\S.*:\d+)\s*$")

    def __init__(self, row: Row, first: str | None) -> None:
        self.row = row
        self.frames: list[str] = []
        self.patience = PATIENCE
        if first:
            self._add(first)

    def _add(self, text: str) -> bool:
        match = self._frame.match(text)
        if not match or int(match["number"]) != len(self.frames):
            return False
        self.frames.append(f"{match['func']} {match['where']}")
        return True

    def take(self, row: Row) -> bool | None:
        if self._add(row.text):
            self.patience = PATIENCE
            return True
        self.patience -= 1
        return None if self.patience > 0 else False

    def facts(self) -> Iterable[Fact]:
        if self.frames:
            yield self.row.fact("failed_collective_site", frames=self.frames)


class AsyncError:
    """An error of the communicator that the watchdog reports: its word, and the last error that NCCL remembers.

    The text after `Last error:` stands on lines of its own, which carry no label.
    """

    anchors = (
        "raised the following async exception",
        "terminated with exception: NCCL error",
        "exception: NCCL error",
        "nccl hit async error",
    )
    _text = re.compile(
        rf"(?:{_WORK} raised the following async exception|(?P<echo>watchdog thread terminated with exception)|error - nccl hit async error): "
        r"(?:\[Rank \d+\] )?(?:NCCL error(?: in)?: )?(?:\S+\.[ch]pp:\d+, )?(?P<word>[^,(\n]+?)(?: \(run with[^)]*\))?(?:, NCCL version (?P<version>[\d.]+))?\s*$"
    )

    def start(self, row: Row) -> State | None:
        match = self._text.search(row.text)
        return LastError(row, match) if match else None


class LastError:
    loose = True

    def __init__(self, row: Row, match: re.Match[str]) -> None:
        self.row, self.match = row, match
        self.last: str | None = None
        self.wanted = 3  # lines that may follow: "ncclSystemError: …", "Last error:", its text
        self.open = False
        self.patience = PATIENCE

    def take(self, row: Row) -> bool | None:
        text = row.text.strip()
        if self.open and text and not text.startswith("["):
            self.last, self.open, self.wanted = text, False, 0
            return True
        if self.wanted and (
            text.startswith("Last error:") or re.match(r"nccl\w+(?:Error|Usage|Argument|InProgress): ", text)
        ):
            self.wanted -= 1
            if text.startswith("Last error:"):
                self.last = text[len("Last error:") :].strip() or None
                self.open = self.last is None
            return True
        self.patience -= 1
        return None if self.patience > 0 and self.last is None else False

    def facts(self) -> Iterable[Fact]:
        found = self.match.groupdict()
        values: dict[str, Any] = {name: found[name] for name in ("word", "version", "op") if found[name]}
        if found["echo"]:
            values["echo"] = True
        if self.last:
            values["last_error"] = self.last
        yield self.row.fact("nccl_error", seq=int(found["seq"]) if found["seq"] else None, **values)


READER = Reader(
    "torch_watchdog",
    LINES,
    (FailedCollective(), AsyncError()),
    title="collective timeouts, queue states, dump signals, stuck watchdogs",
    versions="PyTorch 1.13 to 2.14, NCCL backend",
    collect=("torchrun --log-dir LOGS --redirects 3 …",),
)
