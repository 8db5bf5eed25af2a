"""Stacks as faulthandler and pystack print them.

Formats: CPython 3.8 to 3.14 (Python/traceback.c), pystack 1.0 to 1.7 (`remote` and `core`, --locals, --native,
interpreters of their own).

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> fact, = facts(Reader("x", (), (FaultHandler(),)), '''Current thread 0x00007f1e (most recent call first):
...   File "/w/train.py", line 12 in step
...   File "/w/train.py", line 40 in <module>''')
>>> fact["frames"], fact["main"]
(['step (/w/train.py:12)', '<module> (/w/train.py:40)'], True)
>>> fact, = facts(Reader("x", (), (PyStack(),)), '''Traceback for thread 4419 (python) [] (most recent call last):
...     (Python) File "/w/train.py", line 45, in <module>
...         main()
...     (Python) File "/w/train.py", line 17, in main
...         with os.fdopen(r) as f: f.read()
...     (C) File "../sysdeps/unix/sysv/linux/read.c", line 26, in __GI___libc_read (inlined) (/usr/lib/libc.so.6)''')
>>> fact.who.pid, fact["frames"][:2]
(4419, ['__GI___libc_read (../sysdeps/unix/sysv/linux/read.c:26)', 'main (/w/train.py:17)'])
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

    def turned(self) -> Frames:
        """The same with the innermost frame first, where the tool prints it last."""
        other = Frames(self.row, self.thread, self.ident)
        other.frames, other.rows = self.frames[::-1], self.rows[::-1]
        return other

    def fact(self, who: Identity, tool: str, main: bool, **more: Any) -> Fact:
        proof = self.rows[judge(self.frames)[1]]
        said = {name: value for name, value in more.items() if value}
        return proof.fact(
            "stack", who=who, spot=proof.spot(), thread=self.thread, main=main, frames=self.frames, tool=tool, **said
        )


def outermost_is_main(frames: Sequence[str]) -> bool:
    """Threads of Python start in threading.py's _bootstrap, the main thread does not. Native frames may stand outside."""
    return not any(
        "_bootstrap (" in frame or "thread_run (" in frame or "start_thread (" in frame for frame in frames[-6:]
    )


class FaultHandler:
    """`Current thread 0x… (most recent call first):` and its fellows, by a signal, a fatal error or a timer."""

    anchors = ("most recent call first",)
    thread = re.compile(
        r"(?P<current>Current t|T)hread (?P<id>0x[0-9a-f]+)(?: \[(?P<name>[^\]]*)\])?(?: [^()]*)? \(most recent call first\):"
    )
    frame = re.compile(r"^\s+File \"(?P<file>[^\"]+)\", line (?P<line>\d+|\?\?\?)(?:,)? in (?P<func>\S(?:.*\S)?)\s*$")

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
        elif row.text.strip() and not re.match(
            r"^\s*(?:\.\.\.|<no Python frame>|<invalid frame>|Garbage-collecting|Binary file \"|<truncated|Current thread's C stack)",
            row.text,
        ):
            self.stray += 1
            return None if self.stray < STRAY else False
        return True

    def facts(self) -> Iterable[Fact]:
        full = [thread for thread in self.threads if thread.frames]
        for thread in full:
            # CPython lists the newest thread first: the main thread is the last one, if no more than 100 are listed.
            main = outermost_is_main(thread.frames) and thread is full[-1]
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
        r"^\s+\((?P<kind>Python|C|Other)\) File \"(?P<file>[^\"]+)\", line (?P<line>\d+), in (?P<func>\S.*?)(?: \(inlined\))?(?: \((?P<lib>[^()]*)\))?\s*$"
    )

    def start(self, row: Row) -> State | None:
        if not self.thread.match(row.text):
            return None
        state = _PyStackDump()
        state.take(row)
        return state


class _PyStackDump:
    _between = re.compile(r"^(?:The frame stack for thread \d+ is empty|  (?:In|Not currently) |\* - Unable to merge)")

    def __init__(self) -> None:
        self.threads: list[Frames] = []
        self.states: list[str] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if match := PyStack.thread.match(row.text):
            self.threads.append(Frames(row, match["name"] or match["id"], match["id"]))
            self.states.append(match["state"] or "")
        elif match := PyStack.frame.match(row.text):
            where = f"{match['file']}:{match['line']}"
            if "?" in match["file"] and match["lib"]:
                where = match["lib"].rsplit("/", 1)[-1]
            self.threads[-1].add(f"{match['func']} ({where})", row)
        elif row.text.strip() and not row.text.startswith("    ") and not self._between.match(row.text):
            self.stray += 1
            return None if self.stray < STRAY else False
        return True

    def facts(self) -> Iterable[Fact]:
        for thread, state in zip(self.threads, self.states, strict=True):
            if not thread.frames:
                continue
            dump = thread.turned()
            # The shutdown of the interpreter runs in the main thread without its module.
            main = outermost_is_main(dump.frames) and any(
                frame.startswith(("<module> (", "_shutdown (")) for frame in dump.frames
            )
            who = Identity(pid=int(thread.ident or 0) or None) if main else Identity()
            yield dump.fact(who, "pystack", main, state=state)
