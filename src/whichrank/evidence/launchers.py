"""What launchers other than torchrun print: DeepSpeed, accelerate, Ray, SageMaker, Lightning, submitit, mpirun.

Formats: DeepSpeed 0.6 to 0.18 (launcher/launch.py, runner.py), accelerate 0.20 to 1.12, Ray 2.x, Open MPI 4 and 5
(also PRRTE), MPICH and Intel MPI, submitit 1.x, the SageMaker training toolkit.

>>> from whichrank.evidence.sample import facts
>>> exit, = facts(READER, "mpirun noticed that process rank 0 with PID 271330 on node hx-03 exited on signal 2 (Interrupt).")
>>> exit.rank, exit.who.pid, exit.who.host, exit["signal"], exit["launcher"]
(0, 271330, 'hx-03', 2, 'mpirun')
>>> exit, = facts(READER, "[launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_rank=3'] exits with return code = -6")
>>> exit.who.local_rank, exit["exitcode"], exit["signal"]
(3, -6, 6)
>>> [(fact["name"], fact["value"]) for fact in facts(READER, "[launch.py:152:main] nnodes=1, num_local_procs=4, node_rank=0")]
[('nnodes', 1), ('num_local_procs', 4), ('node_rank', 0)]
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from whichrank.evidence import members, milestones
from whichrank.evidence.scan import Line, Reader, Row, State
from whichrank.evidence.torch_elastic import number_of
from whichrank.facts import NOBODY, Fact, Identity

PATIENCE = 15


def _tidy(values: dict[str, Any]) -> None:
    """A signal as its number; an exit code below zero is a signal."""
    if "signal" in values:
        values["signal"] = number_of(values["signal"])
    if isinstance(code := values.get("exitcode"), int) and code < 0:
        values["signal"] = -code


_SIGNAL = r"(?P<signal>SIG[A-Z]+\d?|\d{1,2})"
NODES = (
    Line(
        "node_event",
        "will be terminated soon",
        r"(?P<message>[Ii]nstance \S+ \(node IP: (?P<host>[\w.:-]+)\) will be terminated soon.*)",
        {"reason": "Terminated"},
    ),
    Line(
        "node_event",
        ("has been marked dead", "marked as dead"),
        r"(?P<message>[Nn]ode with node id: \w+ and address: (?P<host>[\w.:-]+).*?marked (?:as )?dead.*)",
        {"reason": "NodeDead"},
    ),
    Line(
        "node_event",
        "node was preempted",
        r"(?P<message>the actor's node was preempted(?:: .*)?)",
        {"reason": "Preempted"},
    ),
    Line("node_event", "Raylet received SIGTERM", r"(?P<message>Raylet received SIGTERM.*)", {"reason": "Terminated"}),
)
EXITS = (
    Line(
        "exit",
        "exits with return code",
        r"(?:--local[_-]rank=(?P<local_rank>\d+).*)?\bexits with return code = (?P<exitcode>-?\d+)",
        {"launcher": "deepspeed"},
        _tidy,
    ),
    Line("launcher_stop", "Killing subprocess", r"Killing subprocess (?P<pid>\d+)", {"launcher": "deepspeed"}),
    Line(
        "exit",
        "noticed that process rank",
        r"\b(?P<launcher>mpirun|mpiexec|orterun|prterun|prun) noticed that process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<host>\S+) exited on signal (?P<signal>\d+)",
    ),
    Line(
        "exit",
        "MPI_ABORT was invoked",
        r"MPI_ABORT was invoked on rank (?P<rank>\d+)(?: in communicator \S+)?.*?(?: with errorcode (?P<exitcode>-?\d+))?\.?$",
        {"launcher": "mpirun"},
    ),
    # torch.multiprocessing.spawn: `process` is the local rank.
    Line(
        "exit",
        ("terminated with", "exited with"),
        r"\b[Pp]rocess (?P<local_rank>\d{1,3}) (?:exited|terminated) with (?:signal (?P<signal>SIG\w+|\d+)|(?:error code|exit code|code|status) (?P<exitcode>-?\d+))",
        {"launcher": "spawn"},
        _tidy,
    ),
    Line(
        "exit",
        ("exited with", "terminated with", "died with", "killed by signal"),
        r"\b[Pp]rocess (?:with )?(?:pid )?(?P<pid>\d{4,8}) (?:has )?(?:exited|terminated|died|was killed|killed) (?:with|by) (?:signal:? (?P<signal>SIG\w+|\d+)|(?:error code|exit code|code|status|return code) (?P<exitcode>-?\d+))",
        {},
        _tidy,
    ),
    Line(
        "exit",
        "ExecuteUserScriptError",
        r"ExecuteUserScriptError:.*?(?:ExitCode (?P<exitcode>\d+))?\s*$",
        {"launcher": "sagemaker"},
    ),
    Line("exit", "ExitCode ", r"^\s{0,20}\|?\s{0,20}ExitCode (?P<exitcode>\d+)\s*$", {"launcher": "sagemaker"}),
    Line(
        "exit",
        "A worker died or was killed",
        r"(?P<text>A worker died or was killed while executing a task by an unexpected system error)(?:.*?Worker IP(?: address)?: (?P<host>(?:\d{1,3}\.){3}\d{1,3}|[\w:-]+))?(?:.*?Worker PID: (?P<pid>\d+))?(?:.*?Worker exit type: (?P<word>\w+))?",
        {"launcher": "ray"},
    ),
    Line(
        "oom_event",
        "killed due to memory pressure",
        r"(?P<count>[1-9]\d*) Workers \(tasks / actors\) killed due to memory pressure \(OOM\).*?IP: (?P<host>[\w.:-]+?)\)",
        {"launcher": "ray"},
    ),
    Line(
        "oom_event",
        "exceeds the memory usage threshold",
        r"Memory on the node \(IP: (?P<host>[\w.:-]+), .*?\bpid=(?P<pid>\d+).*?exceeds the memory usage threshold",
        {"launcher": "ray"},
    ),
    Line(
        "oom_event",
        "due to the node running low on memory",
        r"(?:IP: (?P<host>[\w.:-]+?),.*?pid=(?P<pid>\d+).*?)?due to the node running low on memory(?:.*?IP: (?P<host_>[\w.:-]+?),)?",
        {"launcher": "ray"},
    ),
    Line(
        "signal_received",
        ("ypassing signal", "aught signal", "eceived signal", "eceived SIG", "got signal", "aught SIG", "got SIG"),
        rf"^(?!.*(?:SignalException|death signal|Caught signal {{0,1}}handler)).*?\b(?i:bypassing signal|caught(?: signal)?|received(?: signal)?|got(?: signal)?):? {_SIGNAL}\b",
        {},
        _tidy,
    ),
    Line("folded", "across cluster", r"\[repeated (?P<times>\d+)x across cluster\]"),
    Line("config", "dist_world_size=", r"\bdist_(?P<name>world_size)=(?P<value>\d+)", {"launcher": "deepspeed"}),
    Line(
        "config",
        "etting CUDA_VISIBLE_DEVICES",
        r"etting (?P<name>CUDA_VISIBLE_DEVICES)=(?P<value>[\w,:-]+)",
        {"launcher": "deepspeed"},
    ),
)

_FLAG = re.compile(
    r"--(?P<name>nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_]addr|master[-_]port|rdzv[-_](?:id|backend|endpoint|conf)|max[-_]restarts|monitor[-_]interval"
    r"|num[-_]processes|num[-_]machines|machine[-_]rank|main[-_]process[-_]ip|main[-_]process[-_]port|num[-_]gpus|num[-_]nodes|ntasks[-_]per[-_]node|distributed[-_]world[-_]size|world[-_]size|num[-_]workers|nodes|ntasks)(?:=|\s+)['\"]?(?P<value>[^\s'\",\]]+)"
)
_PAIR = re.compile(r"\b(?P<name>nnodes|num_local_procs|node_rank)=(?P<value>\d+)")


class Flags:
    """The options of a launch line, one fact each."""

    anchors = (
        "torchrun ",
        "torch.distributed.",
        "accelerate launch",
        "deepspeed ",
        "srun ",
        "mpirun ",
        "num_local_procs=",
        "--world",
        "--distributed",
    )

    def start(self, row: Row) -> State | None:
        if 'File "' in row.text:
            return None
        found = list(_FLAG.finditer(row.text)) or (
            list(_PAIR.finditer(row.text)) if "num_local_procs=" in row.text else []
        )
        return Settings(row, found) if found else None


class Settings:
    def __init__(self, row: Row, found: list[re.Match[str]]) -> None:
        self.row, self.found = row, found

    def take(self, row: Row) -> bool | None:
        return False

    def facts(self) -> Iterable[Fact]:
        for match in self.found:
            value = match["value"]
            yield self.row.fact(
                "config", name=match["name"].replace("-", "_"), value=int(value) if value.isdecimal() else value
            )


class Table:
    """`Name: value` lines under a title, that together tell of one process."""

    def __init__(self, title: str, fields: dict[str, str], kind: str, known: dict[str, Any], pattern: str) -> None:
        self.anchors = (title,)
        self.title, self.fields, self.kind, self.known, self.pattern = title, fields, kind, known, re.compile(pattern)

    def start(self, row: Row) -> State | None:
        return Fields(row, self) if self.title in row.text else None


class Fields:
    def __init__(self, row: Row, table: Table) -> None:
        self.row, self.proof, self.table = row, row, table
        self.found: dict[str, str] = {}
        self.patience = PATIENCE

    def take(self, row: Row) -> bool | None:
        if self.table.title in row.text or len(self.found) == len(self.table.fields):
            return False
        took = False
        for match in self.table.pattern.finditer(row.text):
            name = self.table.fields.get(" ".join(match["name"].split()).lower())
            if name and name not in self.found:
                self.found[name] = match["value"].strip()
                self.proof = row if not took and name in ("rank", "pid", "exitcode", "signal") else self.proof
                took = True
        self.patience = PATIENCE if took else self.patience - 1
        return True if took else (None if self.patience > 0 else False)

    def facts(self) -> Iterable[Fact]:
        found = self.found
        if not {"rank", "pid"} & found.keys():
            return
        number = {name: int(found[name]) for name in ("rank", "local_rank", "pid") if found.get(name, "").isdecimal()}
        who = Identity(
            rank=number.get("rank"),
            local_rank=number.get("local_rank"),
            pid=number.get("pid"),
            host=found.get("host"),
            gpu=found.get("gpu"),
        )
        values: dict[str, Any] = {
            name: int(value) if value.lstrip("-").isdecimal() else value
            for name, value in found.items()
            if name not in ("rank", "local_rank", "pid", "host", "gpu")
        }
        _tidy(values)
        yield self.row.fact(
            self.table.kind,
            who=who if who != NOBODY else NOBODY,
            spot=self.proof.spot(),
            **{**self.table.known, **values},
        )


TABLES = (
    Table(
        "Distributed environment: ",
        {"num processes": "world_size", "process index": "rank", "local process index": "local_rank", "device": "gpu"},
        "member",
        {"launcher": "accelerate"},
        r"^\s*(?P<name>Num processes|Process index|Local process index|Device): (?P<value>\S+)",
    ),
    Table(
        "one or more processes exited with non-zero status",
        {"process name": "rank", "exit code": "exitcode"},
        "exit",
        {"launcher": "mpirun"},
        r"^\s*(?P<name>Process name|Exit code): +(?:\[[^\]]*(?:\],|@\d*,))?(?P<value>\d+)\]?",
    ),
    Table(
        "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        {"rank": "rank", "pid": "pid", "running at": "host", "exit code": "exitcode", "killed by signal": "signal"},
        "exit",
        {"launcher": "mpiexec"},
        r"(?P<name>RANK|PID|RUNNING AT|EXIT CODE|KILLED BY SIGNAL):? (?P<value>[\w.-]+)",
    ),
)

READER = Reader(
    "launchers",
    NODES + EXITS + members.LINES + milestones.LINES,
    (*TABLES, Flags()),
    title="other launchers: exits, settings, who is which rank",
    versions="DeepSpeed 0.6 to 0.18, accelerate 0.20 to 1.12, Ray 2, Lightning, submitit 1, Open MPI 4 and 5, MPICH, Intel MPI, SageMaker",
    collect=(
        "ray job logs JOB",
        "mpirun --output-filename LOGS …   # Open MPI 5: --output file=LOGS/out",
        "deepspeed --enable_each_rank_log LOGS …",
    ),
)
