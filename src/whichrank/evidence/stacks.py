"""Stacks of live processes: py-spy, gdb, faulthandler, pystack, printed ones, /proc/PID/stack; and tables of ps.

Formats: py-spy 0.3 to 0.4.3 (text, --native, --locals, --subprocesses, --json; 0.4.3 names a method's class), and what
stack_gdb.py, stack_dumps.py and stack_prints.py name. `ray stack` prints what py-spy prints.
One fact a thread; frames are "func (file:line)", innermost first; the spot is the frame that says what it does.

>>> from whichrank.evidence.sample import facts
>>> main, other = facts(READER, '''Process 20106: python -u train.py --rank 3
... Python v3.11.8 (/usr/bin/python3.11)
...
... Thread 20106 (idle): "MainThread"
...     wait (threading.py:331)
...     get (queue.py:180)
...     _try_get_data (torch/utils/data/dataloader.py:1251)
... Thread 20506 (idle): "Thread-3 (_pin_memory_loop)"
...     select (selectors.py:415)''')
>>> main.rank, main.who.pid, main["thread"], main["main"], main["state"], main["frames"][2], main.spot.line
(3, 20106, 'MainThread', True, 'idle', '_try_get_data (torch/utils/data/dataloader.py:1251)', 7)
>>> other["main"], other["frames"]
(False, ['select (selectors.py:415)'])
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from whichrank.evidence.kernel_blocks import PROC_FRAME
from whichrank.evidence.kernel_blocks import frame as kernel_frame
from whichrank.evidence.ps import LINES as PS_LINES
from whichrank.evidence.ps import Ps
from whichrank.evidence.scan import Line, Reader, Row, State, Whole, excerpt
from whichrank.evidence.stack_class import judge
from whichrank.evidence.stack_dumps import AfterAbort, FaultHandler, PyStack
from whichrank.evidence.stack_gdb import Gdb
from whichrank.evidence.stack_prints import Printed, RankHeading
from whichrank.facts import Fact, Gap, Identity, Source, Spot

STRAY = 12  # unrelated lines in a row after which a process's dump is over
_RANK = re.compile(r"(?:--(?:global[-_])?rank[= ]|(?<![\w_])(?:GLOBAL_)?RANK=)(\d{1,6})\b")
_LOCAL = re.compile(r"(?:--local[-_]rank[= ]|LOCAL_RANK=)(\d{1,4})\b")
_WORKER = re.compile(r"\bof (?:pid|process) (\d+)")
_PARENT = re.compile(r"^\s*Parent Process (\d+): ")


@dataclass(slots=True)
class Thread:
    """A thread as far as it was read. `rows` are the lines of its frames."""

    row: Row
    name: str | None
    ident: str
    state: str | None = None
    frames: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def fact(self, who: Identity, tool: str, main: bool, command: str | None, **more: Any) -> Fact:
        proof = self.rows[judge(self.frames)[1]] if self.frames else self.row
        values: dict[str, Any] = {"thread": self.name or self.ident, "main": main, "frames": self.frames, "tool": tool}
        values |= {
            name: value
            for name, value in {"state": self.state, "command": command, "ident": self.ident, **more}.items()
            if value
        }
        return proof.fact("stack", who=who, spot=proof.spot(), **values)


def who_of(command: str, pid: int | None) -> Identity:
    """Who a command line says that it is."""
    rank, local = _RANK.search(command), _LOCAL.search(command)
    return Identity(rank=int(rank[1]) if rank else None, local_rank=int(local[1]) if local else None, pid=pid)


class PySpy:
    """`py-spy dump`: a process, its threads, their frames."""

    anchors = ("Process ",)
    first = re.compile(r"^\s*Process (?P<pid>\d+): (?P<command>\S(?:.*\S)?)\s*$")

    def start(self, row: Row) -> State | None:
        match = self.first.match(row.text)
        return _Process(int(match["pid"]), match["command"]) if match else None


class PySpyThread:
    """The same without its first line, as an excerpt pasted somewhere: threads of an unnamed process."""

    anchors = ("Thread ", '"MainThread"')

    def start(self, row: Row) -> State | None:
        if not _Process.thread.match(row.text):
            return None
        state = _Process(None, "")
        state.take(row)
        return state


class _Process:
    thread = re.compile(
        r"^\s*Thread (?P<id>0x[0-9A-Fa-f]+|\d+) \((?P<state>(?:active|idle|gil)[a-z+ ]*)\)(?:: \"(?P<name>.*)\"|:)?\s*$"
    )
    _frame = re.compile(r"^\s+(?P<func>\S.*?) \((?P<file>[^()]+?|<[^>]*>)(?::(?P<line>\d+))?\)\s*(?:#.*)?$")

    def __init__(self, pid: int | None, command: str) -> None:
        self.pid, self.command, self.environment = pid, command, ""
        self.parent: int | None = None
        self.threads: list[Thread] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        text = row.text
        if match := self.thread.match(text):
            self.threads.append(Thread(row, match["name"], match["id"], match["state"]))
        elif PySpy.first.match(text):
            return False
        elif not self.threads and (match := _PARENT.match(text)):
            self.parent = int(match[1])  # py-spy --subprocesses
        elif not self.threads and _RANK.search(text):
            self.environment = text  # what whoever took the dump noted of the process
        elif self.threads and (match := self._frame.match(text)):
            self.threads[-1].frames.append(
                f"{match['func']} ({match['file']}{':' + match['line'] if match['line'] else ''})"
            )
            self.threads[-1].rows.append(row)
        elif not (
            re.match(r"^\s*Python v\d", text)
            or re.match(r"^\s+(?:Arguments|Locals):|^\s{8,}\w+: ", text)
            or not text.strip()
        ):
            self.stray += 1
            return None if self.stray < STRAY else False
        if text.strip():
            self.stray = 0
        return True

    def facts(self) -> Iterable[Fact]:
        who = who_of(f"{self.command} {self.environment}", self.pid)
        worker = _WORKER.search(self.command)
        parent = int(worker[1]) if worker else self.parent
        named = any(thread.name == "MainThread" for thread in self.threads)
        for index, thread in enumerate(self.threads):
            main = thread.name == "MainThread" if named else index == 0
            yield thread.fact(who, "py-spy", main, self.command, ppid=parent)


class ProcStack:
    """/proc/PID/stack: `[<0>] nfs_file_read+0x6d/0xb0 [nfs]`, perhaps below a prompt or heading that names the process."""

    anchors = ("[<",)
    _pid = re.compile(r"/proc/(\d+)/(?:task/(\d+)/)?stack|\bpid[ =:]+(\d+)", re.I)

    def start(self, row: Row) -> State | None:
        if not PROC_FRAME.match(row.text):
            return None
        state = _KernelFrames(row)
        state.take(row)
        return state


class _KernelFrames:
    def __init__(self, row: Row) -> None:
        found = ProcStack._pid.search(row.source.path)
        named = re.search(r"(?:^|[^0-9])(\d{3,7})[._-]?(?:kstack|stack)|stack[._-]?(\d{3,7})", row.source.path)
        pid = next((group for match in (found, named) if match for group in match.groups() if group), None)
        self.pid = int(pid) if pid else None
        self.thread = Thread(row, None, pid or "?")

    def take(self, row: Row) -> bool | None:
        match = PROC_FRAME.match(row.text)
        if not match:
            return False
        self.thread.frames.append(kernel_frame(match))
        self.thread.rows.append(row)
        return True

    def facts(self) -> Iterable[Fact]:
        yield self.thread.fact(Identity(pid=self.pid), "kernel", True, None)


class ProcStackOf:
    """A heading or prompt with /proc/PID/stack in it: the frames below belong to that process."""

    anchors = ("/stack",)

    def start(self, row: Row) -> State | None:
        match = ProcStack._pid.search(row.text)
        if not match or PROC_FRAME.match(row.text):
            return None
        state = _KernelFrames(row)
        state.pid, state.thread.ident = int(match[1] or match[3]), match[2] or match[1] or match[3]
        return _Headed(state)


class _Headed:
    """Kernel frames below a heading; a few lines may stand in between."""

    def __init__(self, inner: _KernelFrames) -> None:
        self.inner, self.stray = inner, 0

    def take(self, row: Row) -> bool | None:
        if self.inner.take(row):
            return True
        self.stray += 1
        return None if self.stray < 4 and not self.inner.thread.frames else False

    def facts(self) -> Iterable[Fact]:
        return self.inner.facts() if self.inner.thread.frames else ()


class _JsonFrame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    short_filename: str | None = None
    line: int | None = None


class _JsonThread(msgspec.Struct):
    pid: int
    thread_id: int = 0
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False
    frames: list[_JsonFrame] = []
    process_info: dict[str, object] | None = None


def sniff_json(data: bytes, name: str) -> bool:
    return data.lstrip()[:2] in (b"[{", b"[\n") and b'"thread_id"' in data and b'"frames"' in data


def read_json(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    """`py-spy dump --json`."""
    try:
        threads = msgspec.json.decode(data, type=list[_JsonThread])
    except (msgspec.DecodeError, RecursionError) as error:
        yield Gap(
            source.path, f"py-spy JSON that cannot be read: {error}", "the dump again, as text: py-spy dump --pid PID"
        )
        return
    named = {thread.pid for thread in threads if thread.thread_name == "MainThread"}
    seen: set[int] = set()
    for thread in threads:
        frames = [
            f"{frame.name} ({frame.short_filename or frame.filename}{f':{frame.line}' if frame.line else ''})"
            for frame in thread.frames
        ]
        command = str((thread.process_info or {}).get("command_line") or "")
        main = thread.thread_name == "MainThread" if thread.pid in named else thread.pid not in seen
        seen.add(thread.pid)
        state = "active+gil" if thread.owns_gil else "active" if thread.active else "idle"
        values = {
            "thread": thread.thread_name or str(thread.thread_id),
            "main": main,
            "frames": frames,
            "state": state,
            "tool": "py-spy",
        }
        deciding = frames[judge(frames)[1]] if frames else ""
        who = who_of(command, thread.pid).filled(source.identity)
        yield Fact(
            "stack",
            Spot(source, None, excerpt(f"{thread.thread_name or thread.thread_id}: {deciding}")),
            who=who,
            values=values | ({"command": command} if command else {}),
        )


# The command above a dump names the host that the process is on.
LINES = (
    *PS_LINES,
    Line(
        "member",
        ("py-spy ", "gdb ", "pystack "),
        r"(?:\bsrun\b.*?\s(?:-w|--nodelist)[ =]?|\bssh (?:-\S+ )*(?:[\w.-]+@)?|^[#\s]*(?=[\w.-]+(?:[:$>]| ~)))(?P<host>[A-Za-z][\w.-]*)[^\n]*?\b(?:py-spy dump|gdb|pystack remote)\b.*?(?:--pid|-p)?[ =](?P<pid>\d+)\b",
    ),
    # faulthandler: the process dies of it. An abort is the watchdog's, a bus error may be /dev/shm's.
    Line(
        "exception",
        "Fatal Python error: ",
        r"Fatal Python error: (?P<message>(?!Aborted|Bus error|.*(?:shutdown|finaliz)).*\S)",
        {"type": "Fatal Python error", "frames": [], "bare": True},
    ),
    Line(
        "member", "pid", r"^\s*(?:#{1,6}|={2,}|-{2,}) *(?P<host>[A-Za-z][\w.-]*\d[\w.-]*)[ :,]+pid[ =:]+(?P<pid>\d+)\b"
    ),
)

DUMPS = (PySpy(), PySpyThread(), Gdb(), FaultHandler(), PyStack(), ProcStack(), Printed())
READER = Reader(
    "stacks",
    LINES,
    blocks=(RankHeading(DUMPS), AfterAbort(), *DUMPS[:-2], ProcStackOf(), *DUMPS[-2:], Ps()),
    whole=Whole(sniff_json, read_json),
    title="stacks of live processes, and tables of `ps` and `top`",
    versions="py-spy 0.3 and 0.4 (text, `--native`, `--json`), gdb 8 to 15 (also `py-bt`), faulthandler of CPython 3.8 to 3.14, pystack 1, `/proc/PID/stack`",
    collect=(
        "py-spy dump --nonblocking --pid PID",
        "gdb -p PID -batch -ex 'thread apply all bt'",
        "cat /proc/PID/stack /proc/PID/wchan",
        "ps -eo pid,ppid,stat,wchan:20,pcpu,etime,cmd",
    ),
)
