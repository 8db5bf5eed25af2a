"""Python's tracebacks, and exceptions that stand alone or are only mentioned.

Reads what CPython 3.7 to 3.14 prints: chained tracebacks, exception groups, carets, syntax errors; also the boxes of
`rich`, Ray's and multiprocessing's tracebacks within tracebacks. A chain is printed first cause first: what came later
is `chained`.

>>> from whichrank.evidence.sample import facts
>>> error, = facts(READER, '''[rank5]: Traceback (most recent call last):
... [rank5]:   File "/srv/train.py", line 266, in main
... [rank5]:     batch = collate(next(it))
... [rank5]:   File "/usr/lib/python3.12/json/decoder.py", line 355, in raw_decode
... [rank5]:     raise JSONDecodeError("Expecting value", s, err.value) from None
... [rank5]: json.decoder.JSONDecodeError: Expecting value: line 1 column 40961 (char 40960)''')
>>> error.rank, error["type"], error["site"], error.spot.line
(5, 'json.decoder.JSONDecodeError', '/srv/train.py:266 main', 6)
>>> oom, = facts(READER, "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.75 GiB. GPU 2 has")
>>> oom.kind, oom.rank, oom["tried"]
('cuda_oom', 2, '6.75 GiB')
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from whichrank.evidence.exception_part import Part
from whichrank.evidence.scan import Line, Reader, Row, State
from whichrank.facts import NOBODY, Fact, Identity

PATIENCE = 40  # lines of others that may stand between the lines of a traceback
SOURCE = 12  # lines of source and carets that may stand under one frame

_HEAD = re.compile(r"(?P<group>Exception Group )?Traceback \(most recent call last\)")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<func>.*\S))?\s*$')
_RICH = re.compile(r"^(?P<file>(?:/|[A-Za-z]:\\|<frozen )[^:]*):(?P<line>\d+) in (?P<func>\S+)\s*$")
# An exception's name ends in one of these, or it has a package in front of it.
_ENDS = r"(?:Error|Exception|Interrupt|Exit|Iteration|Failure|Failed|Expired|Empty|Timeout|Closed|Died|Killed|Group|OutOfMemory|Warning)"
_NAME = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
_LAST = re.compile(rf"^(?P<type>{_NAME})(?:\((?P<inner>\w+)\))?(?:: ?(?P<message>.*)|\s*)$", re.S)
_SURE = re.compile(rf"^(?:(?:[a-z_]\w*\.)+[A-Za-z_]\w*|\w*{_ENDS}\d*)$")
_BARE = re.compile(
    r"^(?P<type>(?:[a-z_]\w*\.)*(?!nccl)\w*(?:Error|Exception|Interrupt|OutOfMemory)): (?P<message>\S.*)$"
)
_WITHIN = re.compile(
    rf"Process (?P<process>\d+) exited with error code (?P<code>-?\d+) and exception:\s*(?:(?P<type>{_NAME}): (?P<message>.*))?$"
)
_STAMP = re.compile(
    r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\]?(?: (?:stderr|stdout) [FP])?(?: \|)? ?(?=\s|Traceback|File|[A-Za-z_.]+: |[A-Za-z_.]+$)"
)
_CHAIN = re.compile(
    r"^(?:During handling of the above exception, another exception occurred|The above exception was the direct cause of the following exception):"
)
_CHILD = re.compile(r"^-- Process (?P<local>\d+) terminated with the following error:")
_RAY = re.compile(r"ray::\S+ \(pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:-]+))?")
_MORE = re.compile(
    r"^(?:nccl\w+: |Last error:|Exception raised from |frame #\d+: |C\+\+ CapturedTraceback:|#\d+ .* from |CUDA kernel errors might |"
    r"For debugging consider passing |Compile with `?TORCH_USE_CUDA_DSA|Device-side assertion|Search for `?cuda|Module call stack:|\S+ \(\S+\) \(root\)$)"
)


def body(row: Row) -> str:
    """The line without a stamp, box or tree in front of it."""
    text = _STAMP.sub("", row.text)
    if text.startswith("│"):
        return text[1:].rstrip("│ ").removeprefix(" ")
    return text[1:].removeprefix(" ") if text.startswith("|") else text


class Traceback:
    """Starts at the title, or at a frame whose title was lost."""

    anchors = ("Traceback (most recent call last)", 'File "')

    def start(self, row: Row) -> State | None:
        text = body(row)
        if head := _HEAD.search(text):
            return Trace(Part(row), group=bool(head["group"]))
        frame = _FRAME.match(text)
        if frame and frame["func"]:
            trace = Trace(Part(row, known={"headless": True}))
            trace.take(row)
            return trace
        return None


class Trace:
    def __init__(self, part: Part, group: bool = False, done: bool = False) -> None:
        self.parts = [part]
        self.group = group
        self.done = done  # the last line, `Type: message`, was read
        self.chain: dict[str, Any] | None = None  # what the next title would say about its traceback
        self.indented = -1  # the row after the last source line
        self.source = SOURCE if part.known.get("headless") else 0
        self.open = False  # "Last error:" was read, its text comes next
        self.patience = PATIENCE

    @property
    def part(self) -> Part:
        return self.parts[-1]

    def take(self, row: Row) -> bool | None:
        text = body(row)
        if self.group:
            text = (
                re.sub(r"^[\s|+-]*(?:\d+ -+)?\s?", "", text)
                if not _FRAME.match(text.lstrip(" |"))
                else text.lstrip(" |")
            )
        head = _HEAD.search(text)
        if head:
            return self._title(row, text)
        return self._after(row, text) if self.done else self._frame(row, text)

    def _title(self, row: Row, text: str) -> bool:
        if text.startswith("Original "):
            self.part.known["chained"] = True
            self.chain = {}
        if self.chain is None and not self.group:
            return False
        who = self.chain.pop("who", NOBODY) if self.chain else NOBODY
        self.parts.append(Part(row, known=self.chain or {}, who=who))
        if self.group and self.chain is None:
            self.parts[0].known["chained"] = True
        self.chain, self.done, self.open = None, False, False
        self.patience = PATIENCE
        return True

    def _frame(self, row: Row, text: str) -> bool | None:
        match = _FRAME.match(text) or _RICH.match(text.strip())
        if match:
            self.part.frames.append(f"{match['file']}:{match['line']} {match['func'] or ''}".rstrip())
            self.indented, self.source, self.patience = row.no + 1, SOURCE, PATIENCE
            return True
        if text and not text.strip("─╭╮╰╯ "):
            return True
        # Under a frame stands its line of source, carets under that, more of both where the call spans lines.
        if text[:1] == " " and text.strip() and self.source > 0:
            self.source -= 1
            self.indented = row.no + 1
            return True
        last = _LAST.match(text)
        if (
            last
            and text
            and (
                _SURE.match(last["type"])
                or (row.no == self.indented and last["type"][0].isupper() and not last["type"].isupper())
            )
        ):
            self._end(row, last)
            return True
        self.patience -= bool(text.strip())
        return None if self.patience else False

    def _end(self, row: Row, last: re.Match[str]) -> None:
        part = self.part
        part.row, part.type, part.message = row, last["type"], (last["message"] or "").strip()
        part.known.pop("headless", None)
        if last["inner"]:
            part.known["inner"] = last["inner"]
        within = _WITHIN.search(part.message)
        if within:
            part.who = Identity(local_rank=int(within["process"]))
            if within["type"]:
                part.type, part.message = within["type"], within["message"]
        worker = re.match(r"Caught (\w+) in DataLoader worker process (\d+)", part.message)
        if worker:
            part.known["dataloader_worker"] = int(worker[2])
        self.done, self.patience = True, 8

    def _after(self, row: Row, text: str) -> bool | None:
        """What may follow the last line: more of the message, or the next traceback of the chain."""
        stripped = text.strip()
        if _CHAIN.match(stripped):
            self.chain, self.patience = {"chained": True}, PATIENCE
            return True
        if child := _CHILD.match(stripped):
            self.chain, self.patience = {"who": Identity(local_rank=int(child["local"]))}, PATIENCE
            return True
        if self.open and stripped and not _MORE.match(stripped):
            self.part.last_error, self.open = stripped, False
            return True
        if stripped.startswith("Last error:"):
            self.part.last_error = stripped[len("Last error:") :].strip() or None
            self.open = self.part.last_error is None
            return True
        if self.part.type.startswith("ray.") and text[:1] == "\t" and stripped:
            self._actor(stripped)
            return True
        if _MORE.match(stripped):
            return True
        if (ray := _RAY.search(self.part.message)) and (frame := _FRAME.match(text)):
            self.part.known["launcher"] = True
            who = Identity(pid=int(ray["pid"]), host=ray["ip"])
            self.parts.append(Part(row, [f"{frame['file']}:{frame['line']} {frame['func'] or ''}".rstrip()], who=who))
            self.done, self.patience = False, PATIENCE
            return True
        self.patience -= bool(stripped)
        return None if self.patience > 0 else False

    def _actor(self, text: str) -> None:
        """Ray tells which actor died: `pid: 30646`, `ip: 10.9.1.7`, `name: …`."""
        name, _, value = text.partition(": ")
        part = self.part
        if name == "pid" and value.isdecimal():
            part.who = replace(part.who, pid=int(value))
        elif name == "ip":
            part.who = replace(part.who, host=value)
        elif name in ("name", "class_name"):
            part.known[f"actor_{name}"] = value

    def facts(self) -> Iterable[Fact]:
        for part in self.parts:
            if fact := part.fact():
                yield fact
                if part.type.startswith("ray.") and part.type.endswith(
                    ("ActorDiedError", "RayActorError", "WorkerCrashedError")
                ):
                    yield part.row.fact("exit", who=part.who, launcher="ray", text=part.message, root=False)


class Bare:
    """`Type: message` at the start of a line, its traceback elsewhere or nowhere."""

    anchors = ("Error: ", "Exception: ", "OutOfMemory: ", "Interrupt: ")

    def start(self, row: Row) -> State | None:
        text = body(row)
        match = _BARE.match(text)
        if not match or match["type"] == "Error":
            return None
        last = _LAST.match(text)
        if not last:
            return None
        trace = Trace(Part(row, known={"bare": True}), done=True)
        trace._end(row, last)
        return trace


_CAUGHT = r"\b(?:caught|ignor\w+|skip\w*|retry\w*|retries|recover\w*|handled|swallow\w*|suppress\w*|will retry)\b"
LINES = (
    Line(
        "exception",
        ("Error", "Exception", "OutOfMemory"),
        rf"(?i:^(?=.*{_CAUGHT})(?!\W{0, 40}(?:\[rank\d+\]:)?\s{0, 40}(?:Traceback|File \"|raise |[\w.]+(?:Error|Exception): )).*?)(?<![\w.\"'(])(?P<type>(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception))\b(?!\s*\()(?:: ?(?P<message>.*))?",
        {"caught": True},
    ),
    Line(
        "cuda_oom",
        "out of memory",
        rf"(?i:^(?=.*(?:{_CAUGHT}|\bwarn\w*|\boom\b))(?!.*(?:Error|Exception)\b)).*?(?P<message>(?:CUDA|HIP)(?: error:)? out of memory.*)",
        {"caught": True},
    ),
)

READER = Reader(
    "python_errors",
    LINES,
    (Traceback(), Bare()),
    title="Python tracebacks, also chained, boxed by `rich` or wrapped by Ray",
    versions="CPython 3.7 to 3.14",
    collect=("torchrun --log-dir LOGS --redirects 3 …",),
)
