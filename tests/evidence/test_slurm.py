"""Slurm: srun's and slurmstepd's lines, and the tables of its tools."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

from whichrank.evidence.slurm_tables import full_state, hosts_of, numbers

SAMPLES: list[tuple[str, str, dict[str, Any]]] = [
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=640423.0. Some of the step tasks have been OOM Killed.", "oom_event", {"step": "640423.0", "count": 1}),
    ("slurmstepd: error: Detected 3 oom_kill events in StepId=640423.batch. Some of the step tasks have been OOM Killed.", "oom_event", {"step": "640423.batch", "count": 3}),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1204.batch cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.", "oom_event", {"step": "1204.batch"}),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in step 1204.0 cgroup.", "oom_event", {"step": "1204.0"}),
    ("slurmstepd: error: Step 12.0 exceeded memory limit (1000 > 900), being killed", "oom_event", {"step": "12.0"}),
    ("slurmstepd: error: Exceeded job memory limit at some point.", "oom_event", {}),
    ("srun: error: cn-0417: task 3: Out Of Memory", "task_oom", {"task": 3, "host": "cn-0417"}),
    ("srun: error: cn-0417: task 3: Killed", "task_exit", {"tasks": [3], "host": "cn-0417", "signal": 9, "word": "Killed"}),
    ("srun: error: c3g0129: tasks 4,6-7: Aborted (core dumped)", "task_exit", {"tasks": [4, 6, 7], "host": "c3g0129", "signal": 6}),
    ("srun: error: c3g0129: task 5: Exited with exit code 1", "task_exit", {"tasks": [5], "code": 1, "signal": None}),
    ("srun: error: c3g0129: task 5: Segmentation fault (core dumped)", "task_exit", {"signal": 11}),
    ("slurmstepd: error: *** JOB 418 ON lf1100 CANCELLED AT 2021-04-07T09:42:10 DUE TO PREEMPTION ***", "step_cancelled", {"step": "418", "host": "lf1100", "reason": "PREEMPTION"}),
    ("slurmstepd: error: *** STEP 418.0 ON lf1100 CANCELLED AT 2021-04-07T09:42:10 DUE TO TIME LIMIT ***", "step_cancelled", {"step": "418.0", "reason": "TIME LIMIT"}),
    ("slurmstepd: error: *** STEP 418.0 ON lf1100 CANCELLED AT 2021-04-07T09:42:10 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "step_cancelled", {"reason": "NODE FAILURE"}),
    ("slurmstepd: error: *** STEP 418.0 ON lf1100 CANCELLED AT 2021-04-07T09:31:47 ***", "step_cancelled", {"step": "418.0", "reason": None}),
    ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "launcher_stop", {"launcher": "srun"}),
    ("srun: error: Node failure on cn-12", "node_event", {"host": "cn-12", "reason": "NodeFail"}),
    ("[2026-03-14T02:53:20.006] error: Nodes cn-12 not responding, setting DOWN", "node_event", {"host": "cn-12", "reason": "NotResponding"}),
    ("[2026-03-14T02:55:14.010] Killing JobId=7719 on failed node gpu-b14", "node_event", {"host": "gpu-b14"}),
    ("2025-08-22 09:31:36 job 20217 requeued: nb-02 kept, nb-05 -> nb-07", "restart", {"launcher": "slurm", "job": "20217"}),
    ("slurmctld: preempted JobId=77 has been killed to reclaim resources for JobId=78", "job_state", {"state": "PREEMPTED", "job": 77}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "kind", "want"), SAMPLES, ids=[f"{index}-{kind}" for index, (_, kind, _) in enumerate(SAMPLES)]
)
def test_line(line: str, kind: str, want: dict[str, Any]) -> None:
    fact = one(line, kind, "slurm-1.out")
    assert {name: fact.who.host if name == "host" else fact[name] for name in want} == want


def test_a_list_of_nodes_makes_one_event_each() -> None:
    found = [
        fact.who.host
        for fact in facts_of("slurmctld: error: Nodes cn-[09-10],gpu3 not responding")
        if fact.kind == "node_event"
    ]
    assert found == ["cn-09", "cn-10", "gpu3"]


SACCT = """JobID           JobName  Partition      State ExitCode        NodeList
------------ ---------- ---------- ---------- -------- ---------------
7719         graphcast+        gpu OUT_OF_ME+    0:125    gpu-b[11-12]
7719.batch        batch             CANCELLED     0:15         gpu-b11
7719.0              fit            CANCELLED+      0:6    gpu-b[11-12]
7720              other        gpu CANCELLED by 1000      0:0         gpu-b13""".splitlines()


def test_sacct_padded() -> None:
    found = [fact for fact in facts_of("\n".join(SACCT), "sacct.txt") if fact.kind == "job_state"]
    assert [(fact["job"], fact["state"]) for fact in found] == [
        ("7719", "OUT_OF_MEMORY"),
        ("7719.batch", "CANCELLED"),
        ("7719.0", "CANCELLED"),
        ("7720", "CANCELLED"),
    ]
    assert (found[0]["exit"], found[0]["hosts"], found[1].who.host) == ("0:125", ["gpu-b11", "gpu-b12"], "gpu-b11")


@pytest.mark.parametrize(
    "state", ["OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "TIMEOUT", "CANCELLED", "BOOT_FAIL", "DEADLINE", "FAILED"]
)
def test_sacct_parsable(state: str) -> None:
    fact = one(f"JobID|JobName|State|ExitCode|\n640423|train|{state}|0:9|", "job_state")
    assert (fact["job"], fact["state"], fact["exit"]) == ("640423", state, "0:9")


def test_squeue() -> None:
    text = """             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
             70021       gpu   lm-2b7    jkent  R      16:42      1 gq-3
             70022       gpu   lm-2b7    jkent PD       0:00      2 (Resources)"""
    running, pending = (fact for fact in facts_of(text) if fact.kind == "job_state")
    assert (running["state"], running.who.host) == ("RUNNING", "gq-3")
    assert (pending["state"], pending["reason"], pending.who.host) == ("PENDING", "Resources", None)


def test_scontrol() -> None:
    text = """JobId=640423 JobName=decomp
   UserId=ab(1000) GroupId=ab(1000)
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=1:0
   NodeList=cn-[0402-0403]

NodeName=cn-0417 Arch=x86_64 CoresPerSocket=32
   State=DOWN*+DRAIN ThreadsPerCore=2 TmpDisk=0
   Reason=Not responding [slurm@2026-03-14T02:55:14]
NodeName=cn-0418 Arch=x86_64 CoresPerSocket=32
   State=ALLOCATED ThreadsPerCore=2 TmpDisk=0"""
    job, node = one(text, "job_state"), one(text, "node_event")
    assert (job["state"], job["exit"], job["reason"], job["restarts"], job["hosts"]) == (
        "FAILED",
        "1:0",
        "NonZeroExitCode",
        "2",
        ["cn-0402", "cn-0403"],
    )
    assert (node.who.host, node["reason"]) == ("cn-0417", "DOWN*+DRAIN")
    assert node["message"].startswith("Not responding")


def test_sinfo() -> None:
    text = "REASON               USER      TIMESTAMP           NODELIST\nNot responding       slurm     2026-03-14T02:55:14 cn-[12-13]"
    assert [fact.who.host for fact in facts_of(text) if fact.kind == "node_event"] == ["cn-12", "cn-13"]


def test_lists() -> None:
    assert numbers("4,6-7,x,9-") == [4, 6, 7, 9]
    assert numbers("0-99999999999") == []
    assert hosts_of("n[1-2,08]-ib,(null)") == ["n1-ib", "n2-ib", "n08-ib"]
    assert [full_state(text) for text in ("OUT_OF_ME+", "CANCELLED by 5", "PR", "nonsense", "")] == [
        "OUT_OF_MEMORY",
        "CANCELLED",
        "PREEMPTED",
        None,
        None,
    ]


@given(st.integers(0, 10_000), st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=8))
def test_facts_survive_what_happens_to_other_lines(seed: int, samples: list[tuple[str, str, dict[str, Any]]]) -> None:
    lines = [*(line for line, _, _ in samples), *SACCT]
    plain = {essence(fact) for fact in facts_of("\n".join(lines))}
    broken = [line[: len(line) // 3] for line in lines]
    assert plain <= {essence(fact) for fact in facts_of(disturbed(lines, seed))}
    assert plain <= {essence(fact) for fact in facts_of(disturbed([*broken, *lines, *broken], seed))}
