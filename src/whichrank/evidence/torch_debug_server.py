r"""Pages of PyTorch's debug server, saved: stacks, wait counters and Flight Recorder data of all ranks in a hanging job.

Formats: torch 2.11 to 2.13, torch/distributed/debug (`_frontend.py`, `_debug_handlers.py`): the HTML pages /stacks,
/pyspy_dump, /wait_counters, /fr_trace_json and /fr_trace_nccl_json, and the text files that `dump_dir` gets (of the
recorder those hold tables made for reading: they are left alone). Each rank's answer stands below a line with
its rank and the address of its worker server; the rank is the global one. A rank that did not answer is told too:
status 408 (no answer in time: stack dumps need the GIL) or 503 (nobody there).

>>> text = b'''=== Rank 0: http://tern-4:44985/handler/dump_traceback? ===
... Current thread 0x00007faa9ffff6c0 (most recent call first):
...   <no Python frame>
...
... Thread 0x00007faac79c9b80 (most recent call first):
...   File "/w/train.py", line 19 in refresh_index
...   File "/w/train.py", line 30 in <module>
... === Rank 1: http://tern-5:41491/handler/dump_traceback? ===
... Error: 408'''
>>> for fact in read(text, Source("stacks_20261130_112204.txt")):
...     if isinstance(fact, Fact): print(fact.kind, fact.rank, fact.who.host, fact.spot.line, fact["frames"] or dict(fact.values))
stack 0 tern-4 6 ['refresh_index (/w/train.py:19)', '<module> (/w/train.py:30)']
debug_silent 1 tern-5 8 {'page': 'dump_traceback', 'status': 408}
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from whichrank.evidence.envelope import Part
from whichrank.evidence.flight_recorder import of_json
from whichrank.evidence.parallel import per_thread
from whichrank.evidence.scan import Reader, Scanner, Whole, excerpt
from whichrank.evidence.stack_dumps import FaultHandler
from whichrank.evidence.stacks import PySpy
from whichrank.facts import Fact, Gap, Identity, Source, Spot

if TYPE_CHECKING:
    from whichrank.dump import Dump

MOST = 100_000  # ranks of one page
_RECORDER = ("fr_trace_json", "dump_nccl_trace_json")  # what the pages ask the ranks for
_RANK = re.compile(
    r"(?:\s*<h2[^>]*>|=== )?\s*Rank (?P<rank>\d{1,6}): https?://(?P<host>\[[^\]]+\]|[^:/\s]+):\d+/handler/(?P<page>\w+)"
)
_STATUS = re.compile(r"(?:Failed to fetch: status=|^Error: )(?P<status>\d{3})")
_TAG = re.compile(r"</?(?:pre|p|h[1-6]|div|section|form|input|label|span|body|html|main)\b[^>]*>")


def sniff(head: bytes, path: str) -> bool:
    """A page of the debug server, or a dump whose first lines are of one."""
    if b"Torch Distributed Debug Server" in head and b"- PyTorch Distributed</title>" in head:
        return True
    start = head.lstrip()[:400]
    return (b"/handler/" in start and re.match(rb"=== Rank \d+: https?://", start) is not None) or (
        start.startswith(b"PARTIAL DATA: ") and b"workers responded" in start and b"  Rank " in start
    )


@dataclass(slots=True)
class _Answer:
    """What one rank's worker server said."""

    who: Identity
    page: str
    line: int
    heading: str
    status: int = 200
    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    @property
    def json(self) -> str:
        """From the first brace to the last."""
        text = "\n".join(self.lines)
        start = text.find("{")
        return text[start : text.rfind("}") + 1] if start >= 0 else ""


def _answers(text: str) -> Iterator[_Answer]:
    answer: _Answer | None = None
    number = 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = html.unescape(_TAG.sub("", raw)).rstrip("\r")
        if match := _RANK.match(raw):
            if answer:
                yield answer
            who = Identity(rank=int(match["rank"]), host=match["host"].strip("[]"))
            answer = _Answer(who, match["page"], number, line.strip())
            continue
        if answer is None:
            continue
        if (status := _STATUS.search(line)) and answer.status == 200:
            answer.status = int(status["status"])
        # In a page the first line of an answer stands behind its tag, with the page's own indentation before it.
        answer.lines.append(line.lstrip() if "<pre" in raw else line)
        answer.numbers.append(number)
    if answer:
        yield answer


def read(data: bytes, source: Source) -> Iterator[Dump | Fact | Gap]:
    """Facts of a page, dumps of one of the recorder; a Gap for ranks that did not answer."""
    text = data.decode("utf-8", "replace")
    source.kind, source.lines = "stack", text.count("\n") + 1
    silent: list[str] = []
    for number, answer in enumerate(_answers(text)):
        if number >= MOST:
            break
        if answer.status != 200:
            if answer.status != 500:
                spot = Spot(source, answer.line, excerpt(answer.heading))
                yield Fact("debug_silent", spot, who=answer.who, values={"page": answer.page, "status": answer.status})
            silent.append(f"{answer.who.rank} ({answer.status})")
        elif answer.page in ("dump_traceback", "pyspy_dump"):
            yield from _stacks(answer, source)
        elif answer.page == "wait_counter_values":
            yield from _counters(answer, source)
        elif answer.page in _RECORDER:
            yield from of_json(answer.json, source, answer.who)
    if silent:
        shown = ", ".join(silent[:8]) + (", …" if len(silent) > 8 else "")
        yield Gap(
            source.path,
            f"the debug server got no answer from rank {shown}",
            "their stacks, taken on their hosts",
            "py-spy dump --nonblocking --pid PID",
        )


@per_thread
def _scanner() -> Scanner:
    return Scanner((Reader("stacks", blocks=(PySpy(), FaultHandler())),))


def _stacks(answer: _Answer, source: Source) -> Iterator[Fact]:
    """Each answer is scanned by itself: CPython lists the main thread last, and the next rank's begin right below."""
    part = Part(answer.lines, answer.numbers, whos=[answer.who] * len(answer.lines))
    facts, _ = _scanner().scan(part, source, answer.who)
    for fact in facts:
        # The server's own thread, which serves this very page, stands in no Python code.
        if fact["frames"]:
            yield Fact("stack", fact.spot, who=answer.who.filled(fact.who), values=fact.values)


def _counters(answer: _Answer, source: Source) -> Iterator[Fact]:
    """Wait counters in which a thread stands now, and those of compilation."""
    try:
        counters = msgspec.json.decode(answer.json or "{}", type=dict[str, dict[str, int]])
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return
    places = {
        line.strip().partition('"')[2].partition('"')[0]: n
        for line, n in zip(answer.lines, answer.numbers, strict=True)
    }
    for name, counter in counters.items():
        if counter.get("active_count", 0) > 0:
            short = name.removeprefix("pytorch.wait_counter.")
            spot = Spot(source, places.get(name, answer.line), f'"{name}"' if name in places else answer.heading)
            values = {"name": short, "active": counter["active_count"], "calls": counter.get("total_calls", 0)}
            yield Fact("wait_counter", spot, who=answer.who, values=values)


READER = Reader(
    "torch_debug_server",
    whole=Whole(sniff, read),
    title="PyTorch's debug server: its saved pages /stacks, /pyspy_dump, /wait_counters, /fr_trace_json, and its dump folder",
    versions="PyTorch 2.11 to 2.13",
    collect=(
        "curl -s http://RANK0_HOST:25999/stacks > stacks.html",
        "curl -s http://RANK0_HOST:25999/fr_trace_json > fr_trace.html   # NCCL: /fr_trace_nccl_json",
    ),
)
