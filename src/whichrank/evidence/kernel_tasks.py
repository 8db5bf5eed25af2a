"""The table of tasks in the kernel's report of a kill for memory: who was in the control group, or on the host.

Linux 3.10 to 6.18, mm/oom_kill.c (dump_tasks). Of a kill in a control group the table lists that group's tasks alone, so
that a rank in it shows whose limit was hit, whichever of the processes was killed. Numbers are the host's own (tgid).

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> table, = facts(Reader("x", (), (OomTasks(),)), '''[39002.486591] [  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
... [39002.486599] [   1921]  1000  1921   260926    79877    54772    25105         0  1024000        0             0 python
... [39002.486663] [   1989]  1000  1989   578120   387007   382000     5007         0  3391488        0             0 pt_data_worker
... [39002.486665] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/j,task_memcg=/j,task=pt_data_worker,pid=1989,uid=1000''')
>>> table.kind, table["pid"], table["pids"]
('oom_tasks', 1989, [1921, 1989])
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.evidence.scan import Row, State
from whichrank.facts import Fact

_HEAD = re.compile(r"\[ *pid *\] +uid +tgid +total_vm +rss ")
_TASK = re.compile(r"\[ *\d+\] +\d+ +(?P<tgid>\d+)(?: +-?\d+){4,9} +\S")
_KILLED = re.compile(r"oom-kill:constraint=.*\bpid=(?P<pid>\d+)|\b[Kk]ill(?:ed)? process (?P<killed>\d+)")
MOST = 4096  # tasks that are kept
STRAY = 12  # unrelated lines in a row after which the report is taken to be cut


class OomTasks:
    """`[  pid  ]   uid  tgid total_vm …`, a row for each task, and whom the kernel chose of them."""

    anchors = ("uid  tgid total_vm",)

    def start(self, row: Row) -> State | None:
        return _Table(row) if _HEAD.search(row.raw) else None


class _Table:
    def __init__(self, row: Row) -> None:
        self.row = row
        self.pids: dict[int, None] = {}
        self.killed: int | None = None
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if (match := _TASK.search(row.raw)) is not None:
            if len(self.pids) < MOST:
                self.pids[int(match["tgid"])] = None
            self.stray = 0
            return True
        if (match := _KILLED.search(row.raw)) is not None:
            self.killed = int(match["pid"] or match["killed"])
            return False
        self.stray += 1
        return None if self.stray < STRAY else False

    def facts(self) -> Iterable[Fact]:
        if self.killed in self.pids:  # a table of another kill, or a torn one, tells nothing
            yield self.row.fact("oom_tasks", pid=self.killed, pids=list(self.pids))
