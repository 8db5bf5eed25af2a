"""Stacks as gdb, faulthandler and pystack print them.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> fact, = facts(Reader("x", (), (Gdb(),)), '''Thread 1 (Thread 0x7f41a8b22740 (LWP 28811) "python3.11"):
... #0  0x00007f41a89d7b17 in sched_yield () from /lib/x86_64-linux-gnu/libc.so.6
... #1  0x00007f4160c8d3c8 in cudaLaunchKernel () from /srv/lib/libcudart.so.12''')
>>> fact.who.pid, fact["thread"], fact["main"], fact["frames"]
(28811, 'python3.11', True, ['sched_yield (libc.so.6)', 'cudaLaunchKernel (libcudart.so.12)'])
>>> fact, = facts(Reader("x", (), (FaultHandler(),)), '''Current thread 0x00007f1e (most recent call first):
...   File "/w/train.py", line 12 in step
...   File "/w/train.py", line 40 in <module>''')
>>> fact["frames"], fact["main"]
(['step (/w/train.py:12)', '<module> (/w/train.py:40)'], True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from whichrank.evidence.scan import Row, State
from whichrank.evidence.stack_class import judge
from whichrank.facts import Fact, Identity

STRAY = 12


class Frames:
    """One thread under way."""

    def __init__(self, row: Row, thread: str, ident: str | None = None) -> None:
        self.row, self.thread, self.ident = row, thread, ident
        self.frames: list[str] = []
        self.rows: list[Row] = []

    def add(self, frame: str, row: Row) -> None:
        self.frames.append(frame)
        self.rows.append(row)

    def fact(self, who: Identity, tool: str, main: bool, state: str | None = None) -> Fact:
        proof = self.rows[judge(self.frames)[1]]
        more: dict[str, Any] = {"state": state} if state else {}
        return proof.fact(
            "stack", who=who, spot=proof.spot(), thread=self.thread, main=main, frames=self.frames, tool=tool, **more
        )


def outermost_is_main(frames: Sequence[str]) -> bool:
    """Threads of Python start in threading.py's _bootstrap, the main thread does not."""
    return not any("_bootstrap" in frame or "thread_run" in frame for frame in frames[-3:])


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
    _where = re.compile(r" (?:from|at) (?P<where>\S+?)(?::(?P<line>\d+))?\s*$")

    def __init__(self) -> None:
        self.pid: int | None = None
        self.threads: list[Frames] = []
        self.numbers: list[int] = []
        self.next: tuple[str, int] | None = None
        self.last = -1  # number of the last frame: a smaller one belongs to no thread that is known
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        text = row.text
        if match := Gdb.thread.match(text):
            self.threads.append(Frames(row, match["name"] or match["lwp"], match["lwp"]))
            self.numbers.append(int(match["number"]))
            self.last = -1
        elif match := Gdb.selected.match(text) or Gdb.attach.search(text):
            self.next = (match.groupdict().get("name") or match["lwp"], int(match["lwp"]))
        elif Gdb.listed.match(text) or re.match(
            r"^\s*(?:\(gdb\)|\[New LWP|\[Inferior|Id +Target|Using host|\[Thread debugging|\[Switching)", text
        ):
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

    def _frame(self, row: Row, number: int, rest: str) -> None:
        if not self.threads or (number == 0 and self.threads[-1].frames):
            name, lwp = self.next or ("?", 0)
            self.threads.append(Frames(row, name, str(lwp) if lwp else None))
            self.numbers.append(1 if self.next or len(self.threads) == 1 else 2)
            self.next = None
        self.last = number
        where = self._where.search(rest)
        func = re.split(r" \((?!anonymous namespace)", rest[: where.start()] if where else rest)[0].strip()
        self.threads[-1].add(f"{func} ({_where(where['where'], where['line'])})" if where else func, row)

    def facts(self) -> Iterable[Fact]:
        first = next((thread for thread, number in zip(self.threads, self.numbers, strict=True) if number == 1), None)
        pid = int(first.ident) if first and first.ident else None
        for thread, number in zip(self.threads, self.numbers, strict=True):
            if thread.frames:
                yield thread.fact(Identity(pid=pid), "gdb", number == 1)


def _where(path: str, line: str | None) -> str:
    """Libraries by their name, source files as they are."""
    return f"{path}:{line}" if line else path.rsplit("/", 1)[-1]


class FaultHandler:
    """`Current thread 0x… (most recent call first):` and its fellows, by a signal, a fatal error or a timer."""

    anchors = ("most recent call first",)
    thread = re.compile(
        r"(?P<current>Current t|T)hread (?P<id>0x[0-9a-f]+)(?: \[(?P<name>[^\]]*)\])?(?: [^()]*)? \(most recent call first\):"
    )
    frame = re.compile(r"^\s+File \"(?P<file>[^\"]+)\", line (?P<line>\d+|\?\?\?)(?:,)? in (?P<func>\S.*?)\s*$")

    def start(self, row: Row) -> State | None:
        if not self.thread.search(row.text):
            return None
        state = _FaultDump()
        state.take(row)
        return state


class _FaultDump:
    def __init__(self) -> None:
        self.threads: list[Frames] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if match := FaultHandler.thread.search(row.text):
            self.threads.append(Frames(row, match["name"] or match["id"], match["current"][:7]))
        elif (match := FaultHandler.frame.match(row.text)) and self.threads:
            self.threads[-1].add(f"{match['func']} ({match['file']}:{match['line']})", row)
        elif row.text.startswith("Extension modules:"):
            return False
        elif row.text.strip() and not re.match(r"^\s+(?:\.\.\.|<no Python frame>|Garbage-collecting)", row.text):
            self.stray += 1
            return None if self.stray < STRAY else False
        return True

    def facts(self) -> Iterable[Fact]:
        full = [thread for thread in self.threads if thread.frames]
        for thread in full:
            # CPython lists the newest thread first: the main thread is the last one.
            main = outermost_is_main(thread.frames) if len(full) == 1 else thread is full[-1]
            yield thread.fact(Identity(), "faulthandler", main)


class AfterAbort:
    """The dump of a rank that the watchdog's thread aborted: directly below the line with the rank's label."""

    anchors = ("Terminating the pr", "entire process down", "terminate called")

    def start(self, row: Row) -> State | None:
        return _AbortDump(row) if row.who.rank is not None else None


class _AbortDump:
    loose = True

    def __init__(self, row: Row) -> None:
        self.row, self.dump = row, _FaultDump()
        self.begun = self.over = False

    def take(self, row: Row) -> bool | None:
        if self.over:
            return False
        if self.begun:
            belongs = self.dump.take(row)
            self.over = belongs is False
            return belongs
        self.begun = row.text.startswith("Fatal Python error: Aborted")
        self.over = not self.begun and row.no - self.row.no > 1
        return True if self.begun else None if not self.over else False

    def facts(self) -> Iterable[Fact]:
        for fact in self.dump.facts():
            yield replace(fact, who=fact.who.filled(self.row.who))


class PyStack:
    """`Traceback for thread N (python) [] (most recent call last):` with frames outermost first."""

    anchors = ("Traceback for thread",)
    thread = re.compile(
        r"^\s*Traceback for thread (?P<id>\d+)(?: \((?P<name>[^)]*)\))?(?: \[(?P<state>[^\]]*)\])?(?: \([^)]*\))?:?"
    )
    frame = re.compile(
        r"^\s+\((?:Python|C|Other)\) File \"(?P<file>[^\"]+)\", line (?P<line>\d+), in (?P<func>\S+)(?: \((?P<lib>[^)]*)\))?"
    )

    def start(self, row: Row) -> State | None:
        if not self.thread.match(row.text):
            return None
        state = _PyStackDump()
        state.take(row)
        return state


class _PyStackDump:
    def __init__(self) -> None:
        self.threads: list[Frames] = []
        self.states: list[str] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if match := PyStack.thread.match(row.text):
            self.threads.append(Frames(row, match["name"] or match["id"], match["id"]))
            self.states.append(match["state"] or "")
        elif match := PyStack.frame.match(row.text):
            self.threads[-1].add(f"{match['func']} ({match['file']}:{match['line']})", row)
        elif row.text.strip() and not row.text.startswith("    "):
            self.stray += 1
            return None if self.stray < STRAY else False
        return True

    def facts(self) -> Iterable[Fact]:
        for thread, state in zip(self.threads, self.states, strict=True):
            if not thread.frames:
                continue
            thread.frames.reverse()
            thread.rows.reverse()
            main = any(frame.startswith("<module> ") for frame in thread.frames) and outermost_is_main(thread.frames)
            who = Identity(pid=int(thread.ident or 0) or None) if main else Identity()
            yield thread.fact(who, "pystack", main, state or None)
