"""Stacks that a program printed itself, and headings that say whose the stacks below are.

Programs print `sys._current_frames()` below a heading of their own for each thread, the frames as CPython's `traceback`
prints them: the outermost first. Scripts that take the stacks of several ranks put a heading with the rank above each.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> fact, = facts(Reader("x", (), (Printed(),)), '''# ThreadID: 140449495001984
...   File "/w/train.py", line 45, in <module>
...     main()
...   File "/usr/lib/python3.11/queue.py", line 171, in get
...     self.not_empty.wait()''')
>>> fact["frames"], fact["main"], fact["ident"]
(['get (/usr/lib/python3.11/queue.py:171)', '<module> (/w/train.py:45)'], True, '140449495001984')
>>> [rank_of(text) for text in ("=== rank 3 (pid 4401) ===", "### node-07 rank=12 pid=88", "==> out/rank5.txt <==", "== step 3 ==")]
[(3, 4401, None), (12, 88, 'node-07'), (5, None, None), None]
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from whichrank.evidence.frame import from_path
from whichrank.evidence.scan import Block, Row, State
from whichrank.evidence.section import is_host
from whichrank.evidence.stack_dumps import STRAY, Frames, outermost_is_main
from whichrank.facts import Fact, Identity


class Printed:
    """`# ThreadID: 140449495001984` or its like, then `  File "x.py", line 3, in f` with its source below."""

    anchors = (
        "# ThreadID", "ThreadID: ", "Thread ID: ", "thread MainThread", "Thread MainThread", "tack for thread",
        "tack of thread", "race of thread", "race for thread", "- Thread ",
    )  # fmt: skip
    heading = re.compile(
        r"^[^\w\"]{0,60}(?:[Ss]tack(?:[ _]?trace)?|[Tt]race(?:back)?)?\s*(?:for |of )?[Tt]hread(?:[ _]?(?:ID|Id|id|name))?\W{1,4}(?P<id>0x[0-9a-f]+|\d{4,20}|[A-Za-z][\w-]{2,40})(?P<rest>(?!.*most recent call|.*LWP|.*\((?:idle|active)).{0,80})$"
    )
    frame = re.compile(r"^\s{1,12}File \"(?P<file>[^\"]+)\", line (?P<line>\d+), in (?P<func>\S.*?)\s*$")

    def start(self, row: Row) -> State | None:
        match = self.heading.match(row.text)
        return _PrintedFrames(row, match["id"], match["rest"]) if match else None


class _PrintedFrames:
    def __init__(self, row: Row, ident: str, rest: str) -> None:
        name = re.search(r"[A-Za-z][\w-]*Thread\b|Thread-\d+", f"{ident} {rest}")
        self.frames = Frames(row, name[0] if name else ident, ident)
        self.between = 0  # lines between the heading and the first frame, or a frame and the next

    def take(self, row: Row) -> bool | None:
        if match := Printed.frame.match(row.text):
            self.frames.add(f"{match['func']} ({match['file']}:{match['line']})", row)
            self.between = 0
            return True
        self.between += 1
        if self.frames.frames and self.between == 1 and re.match(r"\s{2,}\S", row.text):
            return True  # the frame's source
        return None if self.between <= 2 and not self.frames.frames else False

    def facts(self) -> Iterable[Fact]:
        if not self.frames.frames:
            return
        stack = self.frames.turned()
        named = stack.thread.startswith("MainThread") or stack.frames[-1].startswith("<module> (")
        yield stack.fact(Identity(), "traceback", named and outermost_is_main(stack.frames), ident=stack.ident)


_HEADING = re.compile(
    r"^\s*(?:[=#*~>]+|-{2,})\s*(?P<before>[\w .,/:@()=-]{0,80}?)(?<![\w-])(?:global[ _-]?)?(?:rank|Rank|RANK)[ =:_-]{0,2}(?P<rank>\d{1,6})\b(?!\s*(?:/|of\b).*[:|])(?P<after>[^=#*~]{0,120}(?:pid=\d+|host=\S+|[^=#*~]){0,3}?)\s*[=#*~<-]*\s*$"
)
_TAILED = re.compile(r"^==> (?P<path>\S.{0,200}?) <==$")
_PID = re.compile(r"\bpid[ =:]{1,2}(\d{1,8})\b", re.I)
_HOST = re.compile(r"(?:\b(?:host|node|on|@)[ =:]{0,2})(?P<host>[A-Za-z][\w.-]*)")


def rank_of(text: str) -> tuple[int, int | None, str | None] | None:
    """(rank, pid, host) of a heading that names a rank; None if `text` is no such heading."""
    if match := _TAILED.match(text.strip()):
        rank = from_path(match["path"]).rank
        return None if rank is None else (rank, None, None)
    if not (match := _HEADING.match(text)) or len(text) > 240:
        return None
    around = f"{match['before']} {match['after']}"
    pid, host = _PID.search(around), _HOST.search(around)
    name = host["host"] if host and is_host(host["host"]) else None
    if name is None:
        name = next((word for word in re.findall(r"[A-Za-z][\w.-]*\d[\w.-]*", around) if is_host(word)), None)
    return int(match["rank"]), int(pid[1]) if pid else None, name


class RankHeading:
    """A heading with a rank: the stacks below it, of whatever tool, are that rank's."""

    anchors = ("## ", "== ", "** ", "--- ", "==> ", "# rank", "# Rank", "# RANK", "-- rank", "-- Rank", "-- RANK")

    def __init__(self, dumps: tuple[Block, ...]) -> None:
        self.dumps = dumps

    def start(self, row: Row) -> State | None:
        found = rank_of(row.text) or rank_of(row.raw)
        return _RankSection(self.dumps, *found) if found else None


class _RankSection:
    loose = True  # the heading itself may be read as a rank's own line, what stands below it not

    def __init__(self, dumps: tuple[Block, ...], rank: int, pid: int | None, host: str | None) -> None:
        self.dumps, self.rank, self.pid, self.host = dumps, rank, pid, host
        self.inner: State | None = None
        self.found: list[Fact] = []
        self.stray = 0
        self.over = False

    def take(self, row: Row) -> bool | None:
        if self.over or rank_of(row.text):
            self._close()
            self.over = True
            return False
        if self.inner is not None:
            answer = self.inner.take(row)
            if answer is not False:
                return answer
            self._close()
        for dump in self.dumps:
            if any(anchor in row.text for anchor in dump.anchors) and (state := dump.start(row)):
                self.inner, self.stray = state, 0
                return True
        self.stray += 1
        if self.stray > STRAY:
            self.over = True
            return False
        return None

    def _close(self) -> None:
        if self.inner is not None:
            self.found.extend(self._ours(fact) for fact in self.inner.facts())
            self.inner = None

    def _ours(self, fact: Fact) -> Fact:
        who = fact.who
        if who.rank in (None, fact.spot.source.identity.rank):  # a rank in the file's name is not every heading's
            who = replace(who, rank=self.rank)
        return replace(fact, who=who.filled(Identity(pid=self.pid if fact["main"] else None, host=self.host)))

    def facts(self) -> Iterable[Fact]:
        self._close()
        return self.found
