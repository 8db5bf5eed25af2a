"""Slurm's records and lists of states: `scontrol show job|step|node`, `sinfo`, `seff`.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> node, = facts(Reader("x", (), (SinfoStates(),)), '''PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
... gpu*         up 7-00:00:00      1  down* cn-12
... gpu*         up 7-00:00:00     62  alloc cn-[01-11,13-63]''')
>>> node.who.host, node["reason"]
('cn-12', 'DOWN*')
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.evidence.scan import Row, State
from whichrank.evidence.slurm_tables import MANY, SICK, STRAY, full_state, hosts_of, placed
from whichrank.facts import Fact, Identity


class SinfoStates:
    """`sinfo` and `sinfo -N -l`: a table with STATE and NODELIST. Only nodes that are not well make facts."""

    anchors = ("NODELIST",)

    def start(self, row: Row) -> State | None:
        names = row.text.split()
        wanted = {"STATE", "NODELIST"} <= set(names) and "JOBID" not in names and names[0] in ("PARTITION", "NODELIST")
        return _SinfoStateRows(names) if wanted else None


class _SinfoStateRows:
    _states = re.compile(
        r"(?:down|drain(?:ed|ing)?|drng|fail(?:ing|g)?|no_respond|unk(?:nown)?|err(?:or)?)[*~#!%$@^+-]*$|\w+\*$"
    )

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.found: list[Fact] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        cells = row.text.split(None, len(self.names) - 1)
        record = dict(zip(self.names, cells, strict=False))
        if len(cells) < len(self.names) - 1 or not re.match(r"[a-z_]+[*~#!%$@^+-]*$", record.get("STATE", "")):
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        if self._states.match(record["STATE"]):
            for host in hosts_of(record.get("NODELIST", ""))[:MANY]:
                message = record.get("REASON", "")
                self.found.append(
                    row.fact(
                        "node_event",
                        who=Identity(host=host),
                        reason=record["STATE"].upper(),
                        message="" if message == "none" else message,
                    )
                )
        return True

    def facts(self) -> Iterable[Fact]:
        return self.found


class Seff:
    """`seff JOBID`: `Job ID: 7719` and below it state, and how much of its memory the job used.

    >>> from whichrank.evidence.sample import facts
    >>> from whichrank.evidence.scan import Reader
    >>> fact, = facts(Reader("x", (), (Seff(),)), '''Job ID: 7719
    ... Cluster: west
    ... User/Group: ab/ml
    ... State: OUT_OF_MEMORY (exit code 0)
    ... Nodes: 2
    ... Memory Utilized: 499.10 GB
    ... Memory Efficiency: 99.82% of 500.00 GB (250.00 GB/node)''')
    >>> fact["job"], fact["state"], fact["memory_percent"]
    ('7719', 'OUT_OF_MEMORY', 99.82)
    """

    anchors = ("Job ID: ",)

    def start(self, row: Row) -> State | None:
        match = re.match(r"Job ID: (?P<job>\d+)\s*$", row.text)
        return _SeffRows(match["job"]) if match else None


class _SeffRows:
    _pair = re.compile(
        r"(?:Array Job ID|Cluster|User/Group|State|Cores|Nodes|Cores per node|CPU (?:Utilized|Efficiency)|Job Wall-clock time|Memory (?:Utilized|Efficiency)): (?P<value>.*)$"
    )

    def __init__(self, job: str) -> None:
        self.job, self.state = job, ""
        self.row: Row | None = None
        self.percent: float | None = None
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        match = self._pair.match(row.text)
        if match is None:
            self.stray += 1
            return None if self.stray < 4 else False
        if row.text.startswith("State: "):
            self.state, self.row = match["value"], row
        elif share := re.match(r"Memory Efficiency: (\d+(?:\.\d+)?)%", row.text):
            self.percent = float(share[1])
        return True

    def facts(self) -> Iterable[Fact]:
        state = full_state(self.state)
        if self.row is not None and state is not None:
            code = re.search(r"exit code (\d+)", self.state)
            yield placed(
                self.row,
                "job_state",
                None,
                job=self.job,
                state=state,
                exit=f"{code[1]}:0" if code else None,
                memory_percent=self.percent,
            )


class _Record:
    """`Name=value` pairs over several indented lines. Only the last value of a line may hold spaces."""

    _pair = re.compile(r"(?:^|\s)([A-Za-z][\w:]*)=((?:(?!\s+[A-Za-z][\w:]*=).)*)")

    def __init__(self, row: Row) -> None:
        self.values: dict[str, str] = {}
        self.rows: dict[str, Row] = {}
        self.row = row
        self.stray = 0
        self._add(row)

    def _add(self, row: Row) -> bool:
        pairs = self._pair.findall(row.text)
        for name, value in pairs:
            if name not in self.values:
                self.values[name] = value.strip()
                self.rows[name] = row
        return bool(pairs)

    def take(self, row: Row) -> bool | None:
        if re.match(r"\s*(?:JobId|NodeName|StepId)=", row.text):
            return False
        if row.text[:1] in " \t" and self._add(row):
            self.stray = 0
            return True
        self.stray += 1
        return None if self.stray < STRAY else False

    def get(self, name: str) -> str | None:
        value = self.values.get(name)
        return value if value not in (None, "", "(null)", "None", "Unknown", "N/A") else None


class ScontrolJob:
    """`scontrol show job`."""

    anchors = ("JobId=",)

    def start(self, row: Row) -> State | None:
        return _JobRecord(row) if re.match(r"\s*JobId=\d+ (?:Array\w+=\S+ )*(?:JobName|Name)=", row.text) else None


class _JobRecord(_Record):
    def facts(self) -> Iterable[Fact]:
        state = full_state(self.values.get("JobState", ""))
        if state:
            yield placed(
                self.rows["JobState"], "job_state", self.get("NodeList"), job=self.values["JobId"], state=state, exit=self.get("ExitCode"),
                reason=self.get("Reason"), restarts=self.get("Restarts"), start=self.get("StartTime"), end=self.get("EndTime"), failed_node=self.get("FailedNode"),
                job_name=self.get("JobName"), user=(self.get("UserId") or "").partition("(")[0], account=self.get("Account"), partition=self.get("Partition"),
            )  # fmt: skip


class ScontrolStep:
    """`scontrol show step`."""

    anchors = ("StepId=",)

    def start(self, row: Row) -> State | None:
        return _StepRecord(row) if re.match(r"\s*StepId=\d+\S* (?:UserId|StartTime)=", row.text) else None


class _StepRecord(_Record):
    def facts(self) -> Iterable[Fact]:
        state = full_state(self.values.get("State", ""))
        if state:
            row = self.rows["State"]
            yield placed(row, "job_state", self.get("NodeList"), job=self.values["StepId"], state=state)


class ScontrolNode:
    """`scontrol show node`: only a node that is not well makes a fact."""

    anchors = ("NodeName=",)

    def start(self, row: Row) -> State | None:
        return _NodeRecord(row) if re.match(r"\s*NodeName=\S+ \w+=", row.text) else None


class _NodeRecord(_Record):
    def facts(self) -> Iterable[Fact]:
        state = self.values.get("State", "")
        if SICK.search(state):
            row = self.rows.get("Reason") or self.rows["State"]
            yield row.fact(
                "node_event", who=Identity(host=self.values["NodeName"]), reason=state, message=self.get("Reason") or ""
            )
