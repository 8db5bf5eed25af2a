"""Stacks as gdb and cuda-gdb print them: `bt`, `thread apply all bt`, and the Python frames of `py-bt`.

Formats: gdb 8 to 15 and cuda-gdb 12; py-bt of CPython's python-gdb.py 3.8 to 3.13. Where both kinds of frames of one
thread are there, the Python ones take the place of the interpreter's.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> fact, = facts(Reader("x", (), (Gdb(),)), '''Thread 1 (Thread 0x7f41a8b22740 (LWP 28811) "python3.11"):
... #0  0x00007f41a89d7b17 in sched_yield () from /lib/x86_64-linux-gnu/libc.so.6
... #1  0x00007f4160c8d3c8 in cudaLaunchKernel () from /srv/lib/libcudart.so.12''')
>>> fact.who.pid, fact["thread"], fact["main"], fact["frames"]
(28811, 'python3.11', True, ['sched_yield (libc.so.6)', 'cudaLaunchKernel (libcudart.so.12)'])
>>> fact, = facts(Reader("x", (), (Gdb(),)), '''Thread 1 (Thread 0x7ff4dd3fcb80 (LWP 4425) "python"):
... Traceback (most recent call first):
...   <built-in method recv_into of _socket.socket object at remote 0x7ff4dc3d1a80>
...   File "/usr/lib/python3.11/socket.py", line 706, in readinto
...     return self._sock.recv_into(b)
...   File "/w/train.py", line 24, in http
...     urllib.request.urlopen(url)''')
>>> fact.who.pid, fact["main"], fact["frames"]
(4425, True, ['recv_into (<built-in>)', 'readinto (/usr/lib/python3.11/socket.py:706)', 'http (/w/train.py:24)'])
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.evidence.scan import Row, State
from whichrank.evidence.stack_dumps import STRAY, Frames
from whichrank.facts import Fact, Identity


class Gdb:
    """`thread apply all bt`, or `bt` alone; `info threads` before it names the thread that is selected."""

    anchors = ("(LWP ", "Thread ", "#0 ", "Attaching to process", "attaching to process")
    thread = re.compile(
        r"^\s*Thread (?P<number>\d+) \((?:Thread 0x[0-9a-f]+ \()?(?:LWP|process) (?P<lwp>\d+)\)?(?: \"(?P<name>[^\"]*)\")?\)?"
    )
    selected = re.compile(r"^\s*\* +\d+ +(?:Thread 0x[0-9a-f]+ \()?LWP (?P<lwp>\d+)\)? (?:\"(?P<name>[^\"]*)\")?")
    listed = re.compile(r"^\s+\d+ +(?:Thread 0x[0-9a-f]+ \()?LWP (?P<lwp>\d+)\)?")
    frame = re.compile(r"^\s*#(?P<number>\d+) +(?:0x[0-9a-f]+ in )?(?P<rest>\S.*)$")
    attach = re.compile(r"[Aa]ttaching to process (?P<lwp>\d+)")
    python = re.compile(r"^  File \"(?P<file>[^\"]+)\", line (?P<line>\d+), in (?P<func>\S.*?)(?: \(.*)?$")
    builtin = re.compile(r"^  <built-in method (?P<func>\w+)")

    def start(self, row: Row) -> State | None:
        first = self.frame.match(row.text)
        if not (
            self.thread.match(row.text)
            or self.selected.match(row.text)
            or self.attach.search(row.text)
            or (first and first["number"] == "0" and _looks_native(first["rest"]))
        ):
            return None
        state = _GdbDump()
        state.take(row)
        return state


def _looks_native(rest: str) -> bool:
    return bool(re.search(r" \(.*\)|\?\? ", rest)) and not re.search(r"from \S+\.py:\d+$", rest)


class _GdbDump:
    _said = re.compile(
        r"^\s*(?:\(gdb\)|\(cuda-gdb\)|\[New LWP|\[Inferior|Id +Target|Using host|\[Thread debugging|\[Switching)"
    )
    _evaluates = re.compile(r"^_?PyEval_(?:EvalFrame|Vector)")
    _of_frame = re.compile(r"\(f=Frame 0x[0-9a-f]+, for file (?P<file>\S+), line (?P<line>\d+), in (?P<func>\S+)")
    _where = re.compile(r" (?:from|at) (?P<where>\S+?)(?::(?P<line>\d+))?\s*$")

    def __init__(self) -> None:
        self.pid: int | None = None
        self.threads: list[Frames] = []
        self.numbers: list[int] = []
        self.next: tuple[str, int] | None = None
        self.last = -1  # number of the last frame: a smaller one belongs to no thread that is known
        self.stray = 0
        self.pythons: set[int] = set()  # which of `threads` hold the frames of py-bt

    def take(self, row: Row) -> bool | None:
        text = row.text
        if match := Gdb.thread.match(text):
            self.threads.append(Frames(row, match["name"] or match["lwp"], match["lwp"]))
            self.numbers.append(int(match["number"]))
            self.last = -1
        elif match := Gdb.selected.match(text) or Gdb.attach.search(text):
            self.next = (match.groupdict().get("name") or match["lwp"], int(match["lwp"]))
        elif Gdb.listed.match(text) or self._said.match(text) or (self.threads and self._python(row)):
            pass
        elif (
            (match := Gdb.frame.match(text))
            and _looks_native(match["rest"])
            and (match["number"] == "0" or int(match["number"]) > self.last)
        ):
            self._frame(row, int(match["number"]), match["rest"])
        elif (
            self.threads
            and self.threads[-1].frames
            and (match := re.match(r"^ +(?:at|from) (?P<where>\S+?)(?::(?P<line>\d+))?\s*$", text))
        ):
            frame = self.threads[-1].frames.pop()
            self.threads[-1].frames.append(f"{frame} ({_where(match['where'], match['line'])})")
        else:
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        return True

    def _python(self, row: Row) -> bool:
        """A line of `py-bt` below the heading of its thread."""
        thread = self.threads[-1]
        if row.text == "Traceback (most recent call first):":
            if thread.frames:  # `bt` and `py-bt` below one heading
                self.threads.append(Frames(row, thread.thread, thread.ident))
                self.numbers.append(self.numbers[-1])
            self.pythons.add(len(self.threads) - 1)
        elif len(self.threads) - 1 not in self.pythons:
            return False
        elif match := Gdb.python.match(row.text):
            thread.add(f"{match['func']} ({match['file']}:{match['line']})", row)
        elif match := Gdb.builtin.match(row.text):
            thread.add(f"{match['func']} (<built-in>)", row)
        elif row.text.strip() == "Waiting for the GIL":
            thread.add("take_gil", row)
        else:
            return row.text.startswith("    ") or "frame information" in row.text or "Garbage-collecting" in row.text
        return True

    def _frame(self, row: Row, number: int, rest: str) -> None:
        if not self.threads or (number == 0 and self.threads[-1].frames):
            name, lwp = self.next or ("?", 0)
            self.threads.append(Frames(row, name, str(lwp) if lwp else None))
            self.numbers.append(1 if self.next or len(self.threads) == 1 else 2)
            self.next = None
        self.last = number
        if python := self._of_frame.search(rest):  # the interpreter's own frame, with python-gdb.py loaded
            self.threads[-1].add(f"{python['func']} ({python['file']}:{python['line']})", row)
            return
        where = self._where.search(rest)
        func = re.split(r" \((?!anonymous namespace)", rest[: where.start()] if where else rest)[0].strip()
        self.threads[-1].add(f"{func} ({_where(where['where'], where['line'])})" if where else func, row)

    def facts(self) -> Iterable[Fact]:
        first = next((thread for thread, number in zip(self.threads, self.numbers, strict=True) if number == 1), None)
        pid = int(first.ident) if first and first.ident else None
        inner = {
            thread.ident: thread
            for index, thread in enumerate(self.threads)
            if index in self.pythons and thread.frames and thread.ident
        }
        for index, (thread, number) in enumerate(zip(self.threads, self.numbers, strict=True)):
            python = inner.get(thread.ident or "")
            if index not in self.pythons and python is not None:
                thread = self._joined(thread, python)
            elif index in self.pythons and any(
                other.ident == thread.ident for at, other in enumerate(self.threads) if at not in self.pythons
            ):
                continue
            if thread.frames:
                yield thread.fact(Identity(pid=pid), "gdb", number == 1)

    def _joined(self, native: Frames, python: Frames) -> Frames:
        """What the thread does in native code, then its Python frames."""
        # Without symbols the interpreter's frames are nameless.
        cut = next((at for at, frame in enumerate(native.frames) if self._evaluates.match(frame)), None)
        if cut is None:
            cut = next((at for at, frame in enumerate(native.frames) if frame == "??"), len(native.frames))
        both = Frames(native.row, native.thread, native.ident)
        both.frames = native.frames[:cut] + python.frames
        both.rows = native.rows[:cut] + python.rows
        return both


def _where(path: str, line: str | None) -> str:
    """Libraries by their name, source files as they are."""
    return f"{path}:{line}" if line else path.rsplit("/", 1)[-1]
