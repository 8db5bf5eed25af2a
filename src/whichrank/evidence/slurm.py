"""Slurm: what srun, slurmstepd, slurmd and slurmctld print, and sacct, squeue, sinfo, scontrol, seff.

Formats: Slurm 17.11 to 25.05. A node is often drained because of what happened on it ("Kill task failed": a process that
did not die; "Epilog error"): that is a consequence, and its reason says so. `task N` of srun is the rank only where srun starts the ranks itself; under torchrun it
is the node. sacct's memory sampling (30 s) misses spikes: a small MaxRSS does not speak against an OOM kill.

>>> from whichrank.evidence.sample import facts
>>> oom, = facts(READER, "slurmstepd: error: Detected 1 oom_kill event in StepId=640423.0. Some of the step tasks "
...     "have been OOM Killed.")
>>> oom.kind, oom["step"], oom["count"]
('oom_event', '640423.0', 1)
>>> end, = facts(READER, "srun: error: c3g0129: tasks 4,6-7: Aborted (core dumped)")
>>> end["tasks"], end.who.host, end["signal"]
([4, 6, 7], 'c3g0129', 6)
>>> cancel, = facts(READER, "slurmstepd: error: *** JOB 418 ON lf1100 CANCELLED AT 2021-04-07T09:42:10 DUE TO PREEMPTION ***")
>>> cancel["step"], cancel.who.host, cancel["reason"]
('418', 'lf1100', 'PREEMPTION')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from whichrank.evidence import slurm_json
from whichrank.evidence.scan import Line, Reader, Row, Whole
from whichrank.evidence.slurm_records import ScontrolJob, ScontrolNode, ScontrolStep, Seff, SinfoStates
from whichrank.evidence.slurm_tables import Sacct, SacctBare, Sinfo, Squeue, hosts_of, numbers
from whichrank.facts import Fact, Identity

_STEP = r"(?P<step>\d+(?:_\d+)?(?:\.[\w+]+)?)"
_HOSTS = r"(?P<hosts>[A-Za-z][\w.-]*(?:\[[\d,-]+\][\w.-]*)?(?:,[A-Za-z][\w.-]*(?:\[[\d,-]+\][\w.-]*)?)*)"
_SIGNALS = (
    ("Killed", 9),
    ("Terminated", 15),
    ("Aborted", 6),
    ("Segmentation fault", 11),
    ("Bus error", 7),
    ("Floating point exception", 8),
    ("Illegal instruction", 4),
    ("Interrupt", 2),
    ("Hangup", 1),
    ("User defined signal 1", 10),
    ("User defined signal 2", 12),
)


def tidy_step(values: dict[str, Any]) -> None:
    """A step's name is text, also where it is only a job's number; a reason has no full stop."""
    if "step" in values:
        values["step"] = str(values["step"])
    if isinstance(reason := values.get("reason"), str):
        values["reason"] = reason.strip()


def read_tasks(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """`srun: error: node: tasks 4,6-7: Killed`: one fact a line, and one `task_oom` a task that ran out of memory."""
    tasks, word, host = numbers(match["tasks"]), match["word"].strip(), match["host"]
    who = Identity(host=host)
    if word.startswith("Out Of Memory"):
        for task in tasks:
            yield row.fact("task_oom", who=who, task=task, host=host)
        return
    values: dict[str, Any] = {"tasks": tasks, "host": host, "word": word}
    if code := re.match(r"Exited with exit code (\d+)", word):
        values["code"] = int(code[1])
    for name, number in _SIGNALS:
        if word.startswith(name):
            values["signal"] = number
    yield row.fact("task_exit", who=who, **values)


def read_nodes(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """One `node_event` for each node of a list such as cn-[12-13]."""
    for host in hosts_of(match["hosts"]):
        yield row.fact(
            "node_event",
            who=Identity(host=host),
            reason="NotResponding" if "not responding" in match[0].lower() else "NodeFail",
            message=match[0],
        )


def read_requeue(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    return (row.fact("restart", launcher="slurm", job=match["job"] or match["job2"]),)


# fmt: off
_OOM = (
    Line("oom_event", ("oom_kill event", "oom-kill event"), rf"Detected (?P<count>\d+) oom[-_]kill event(?:\(s\)|s)? in (?:StepId=|[Ss]tep ){_STEP}", tidy=tidy_step),
    Line("oom_event", ("exceeded memory limit", "exceeded virtual memory limit"), rf"(?:Step|StepId=|[Jj]ob|JobId=) ?{_STEP} exceeded (?:virtual )?memory limit", tidy=tidy_step),
    Line("oom_event", ("step memory limit at some point", "job memory limit at some point"), r"Exceeded (?:step|job) memory limit at some point"),
    Line("task_exit", ": task", r"srun: error: (?P<host>[\w.-]+): tasks? (?P<tasks>\d[\d,-]*): (?P<word>[A-Z].*)", read=read_tasks),
    Line("task_exit", "launch failed", r"srun: error: [Tt]ask (?:launch for \S+ failed on node (?P<host>[\w.-]+)|\d+ launch failed): (?P<word>.*)"),
)
_ENDS = (
    Line(
        "step_cancelled",
        "CANCELLED AT",
        rf"\*\*\* (?P<what>STEP|JOB) {_STEP} ON (?P<host>\S+) CANCELLED AT \S+(?: DUE (?:TO|to) (?P<reason>[A-Za-z ]+?)(?=[,.]? \*\*\*|[,.] ))?",
        tidy=tidy_step,
    ),
    # The stepd gave up on processes that no signal ended: they hang in the kernel.
    Line("node_event", "STEPD TERMINATED ON", r"\*\*\* (?:STEP|JOB) \S+ STEPD TERMINATED ON (?P<host>\S+) AT \S+ (?P<message>DUE TO JOB NOT ENDING WITH SIGNALS)", {"reason": "KillTaskFailed"}),
    Line("step_cancelled", "Time limit exhausted for", rf"Time limit exhausted for JobId={_STEP}", {"reason": "TIME LIMIT"}, tidy_step),
    Line("step_cancelled", "cancelled by node failure", rf"JobId={_STEP} cancelled by node failure", {"reason": "NODE FAILURE"}, tidy_step),
    Line("step_cancelled", "due to", rf"(?:Cancelling|Terminating|Killing) (?:[Jj]ob ?(?:Id=)?|StepId=){_STEP}.* due to (?P<reason>time limit|node failure|preemption)", tidy=lambda values: values.update(step=str(values["step"]), reason=str(values["reason"]).upper())),
    Line("step_cancelled", "TIME LIMIT", rf"slurm\w+: (?:error: )?(?!.*CANCELLED AT).*(?:[Jj]ob ?(?:Id=)?)?{_STEP}.* (?P<reason>TIME LIMIT)", tidy=tidy_step),
    Line("launcher_stop", "Job step aborted", r"srun: Job step aborted: Waiting up to (?P<seconds>\d+) seconds", {"launcher": "srun"}),
    Line("launcher_stop", ("Terminating", "orcing job termination"), r"srun: (?:Terminating (?:StepId=|job step )\S+|forcing job termination)", {"launcher": "srun"}),
    Line("launcher_kill", "Force Terminated", r"srun: Force Terminated (?:StepId=|job |job step )\S+", {"launcher": "srun"}),
)
_NODES = (
    Line("node_event", ("ot responding", "NOT RESPONDING"), rf"(?:slurm\w*|srun|error): .*\b[Nn]odes? {_HOSTS} (?:is |are )?not responding.*", read=read_nodes),
    # slurmctld
    Line("node_event", "due to failure of node", r"[Rr]equeue JobId=\S+ due to failure of node (?P<host>[\w.-]+)", {"reason": "NodeFail", "message": "requeued"}),
    Line("node_event", "reason set to: ", r"update_node: node (?P<host>[\w.-]+) reason set to: (?P<message>.+)", {"reason": "Drained"}),
    Line("node_event", "epilog error on", r"epilog error on (?P<host>[\w.-]+), draining the node", {"reason": "Drained", "message": "Epilog error"}),
    Line("node_event", "not resumed by ResumeTimeout", r"node (?P<host>[\w.-]+) (?P<message>not resumed by ResumeTimeout\(\d+\).*)", {"reason": "NodeFail"}),
    # slurmd and slurmstepd
    Line("node_event", ("prolog failed status=", "prolog failed: rc:"), r"(?P<message>(?:task-)?prolog failed(?: status=|: rc:)\d+.*)", {"reason": "PrologFailed"}),
    Line("node_event", "ailure on", rf"srun: error: Node failure on {_HOSTS}", read=read_nodes),
    Line("node_event", "on failed node", rf"[Jj]ob ?(?:Id=)?\d+ on failed node {_HOSTS}", read=read_nodes),
    Line("node_event", "unexpectedly rebooted", r"(?P<message>Node (?P<host>[\w.-]+) unexpectedly rebooted.*)", {"reason": "Rebooted"}),
    Line("job_state", "preempted", r"(?i:preempted JobId=|preempted job )(?P<job>\d+)", {"state": "PREEMPTED"}),
    Line("restart", ("equeu", "EQUEU"), r"(?i)requeue?(?:ing|d)? (?:job ?(?:id)?[ =]?|\w+=)(?P<job>\d+)|\bjob ?(?:id)?[ =]?(?P<job2>\d+) (?:has been |was |is being )?(?:re|RE)queued", read=read_requeue),
)
# fmt: on

READER = Reader(
    "slurm",
    (*_OOM, *_ENDS, *_NODES),
    (Sacct(), SacctBare(), Squeue(), Sinfo(), SinfoStates(), ScontrolJob(), ScontrolNode(), ScontrolStep(), Seff()),
    Whole(slurm_json.sniff, slurm_json.read),
    machine=True,
    title="Slurm: srun, slurmstepd, `sacct`, `squeue`, `sinfo`, `scontrol show`, seff, daemons' logs; tables and `--json`",
    versions="Slurm 17.11 to 25.05",
    collect=(
        "sacct -j JOBID -o JobID,State,ExitCode,MaxRSS,NodeList,Start,End",
        "scontrol show job JOBID",
        "squeue -j JOBID",
        "sinfo -R",
    ),
)
