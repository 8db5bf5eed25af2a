"""Schedulers' records: Slurm's tools with --json and the rest of its tables, Kubernetes objects as YAML and JSON."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import essence, facts_of, one

from whichrank.evidence import Evidence, read_piece
from whichrank.facts import Fact


def of(kind: str, text: str, name: str = "out.txt") -> list[Fact]:
    return [fact for fact in facts_of(text, name) if fact.kind == kind]


# data_parser v0.0.40 and newer; what v0.0.38 wrote
NEW = {"job_id": 7719, "name": "fit", "association": {"user": "ab"}, "nodes": "cn-[01-02]", "state": {"current": ["OUT_OF_MEMORY"], "reason": "None"}, "restart_cnt": 0,
       "time": {"start": 1775109600, "end": 1775110904}, "exit_code": {"status": ["SIGNALED"], "return_code": {"set": True, "infinite": False, "number": 0}, "signal": {"id": {"set": True, "infinite": False, "number": 125}, "name": ""}},
       "steps": [{"step": {"id": "7719.batch", "name": "batch"}, "state": ["CANCELLED"], "nodes": {"range": "cn-01", "list": ["cn-01"]}, "time": {"end": {"set": True, "number": 1775110905}},
                  "exit_code": {"return_code": {"set": True, "number": 0}, "signal": {"id": {"set": True, "number": 15}}}, "tres": {"requested": {"max": [{"type": "mem", "count": 68719476736}]}}}]}  # fmt: skip
OLD = {"job_id": 7719, "association": {"user": "ab"}, "nodes": "cn-[01-02]", "state": {"current": "NODE_FAIL", "reason": "NodeDown"}, "exit_code": {"status": "SUCCESS", "return_code": 0}, "steps": [{"step": {"id": {"job_id": 7719, "step_id": "0"}}, "state": "CANCELLED", "nodes": {"range": "cn-02"}}]}  # fmt: skip


def sacct(*jobs: dict[str, Any], **json_options: Any) -> str:
    return json.dumps({"jobs": list(jobs), "meta": {"slurm": {"release": "24.05.3"}}, "errors": []}, **json_options)


def test_sacct_json() -> None:
    job, step = of("job_state", sacct(NEW), "rank3-sacct.json")
    assert (job["job"], job["state"], job["exit"], job["hosts"], job.at) == ("7719", "OUT_OF_MEMORY", "0:125", ["cn-01", "cn-02"], 1775110904)  # fmt: skip
    assert (step["job"], step["state"], step["exit"], step.who.host, step["max_rss"]) == ("7719.batch", "CANCELLED", "0:15", "cn-01", 64 << 30)  # fmt: skip
    assert job.rank is None


def test_sacct_json_of_older_parsers() -> None:
    job, step = of("job_state", sacct(OLD, indent=2))
    assert (job["state"], job["reason"], step["job"], step.who.host) == ("NODE_FAIL", "NodeDown", "7719.0", "cn-02")


def test_squeue_scontrol_and_sinfo_json() -> None:
    text = json.dumps({"jobs": [{"account": "ml", "accrue_time": {"number": 1}, "job_id": 12, "job_state": ["RUNNING"], "nodes": "gq-3", "start_time": {"set": True, "number": 1775109600}}]})  # fmt: skip
    fact = one(text, "job_state")
    assert (fact["state"], fact.who.host, fact.at) == ("RUNNING", "gq-3", 1775109600)
    text = json.dumps({"nodes": [{"architecture": "x86_64", "name": "cn-9", "state": ["DOWN", "DRAIN", "NOT_RESPONDING"], "reason": "Not responding"}, {"name": "cn-8", "state": ["IDLE"]}]})  # fmt: skip
    fact = one(text, "node_event")
    assert (fact.who.host, fact["reason"], fact["message"]) == ("cn-9", "DOWN+DRAIN+NOT_RESPONDING", "Not responding")
    text = json.dumps({"sinfo": [{"node": {"state": ["DRAIN"]}, "nodes": {"nodes": ["a1", "a2"]}, "reason": {"description": "Kill task failed"}}]})  # fmt: skip
    assert [fact.who.host for fact in of("node_event", text)] == ["a1", "a2"]


@pytest.mark.parametrize(
    "text",
    [
        sacct(NEW)[:300],
        '{"jobs": [{"job_id": ',
        '{"jobs": 3, "x": [{"job_id": 1}]}',
        '{"jobs": [{"job_id": {}, "state": 7, "steps": 3, "association": 1}]}',
    ],
)
def test_damaged_json_is_a_gap_or_nothing(text: str) -> None:
    evidence = Evidence()
    read_piece("sacct.json", text.encode(), evidence)
    assert not [fact for fact in evidence.facts if fact.kind == "job_state"]
    assert not evidence.sources[0].trouble


LINES: list[tuple[str, str, dict[str, Any]]] = [
    ("slurmstepd: error: *** STEP 418.0 ON lf1100 CANCELLED AT 2026-04-07T09:42:10 DUE to SIGNAL Killed ***", "step_cancelled", {"reason": "SIGNAL Killed"}),
    ("slurmstepd: error: *** STEP 418.0 STEPD TERMINATED ON lf1100 AT 2026-04-07T09:42:10 DUE TO JOB NOT ENDING WITH SIGNALS ***", "node_event", {"reason": "KillTaskFailed", "host": "lf1100"}),
    ("[2026-03-14T02:53:20.006] Time limit exhausted for JobId=7719", "step_cancelled", {"step": "7719", "reason": "TIME LIMIT"}),
    ("[2026-03-14T02:53:20.006] requeue JobId=7719 due to failure of node cn-12", "node_event", {"host": "cn-12", "reason": "NodeFail"}),
    ("[2026-03-14T02:53:20.006] update_node: node cn-12 reason set to: Kill task failed", "node_event", {"host": "cn-12", "message": "Kill task failed"}),
    ("[2026-03-14T02:53:20.006] error: _slurm_rpc_epilog_complete: JobId=7719 epilog error on cn-12, draining the node", "node_event", {"host": "cn-12", "message": "Epilog error"}),
    ("7719|fit|gpu|ml|512|OUT_OF_MEMORY|0:125", "job_state", {"job": "7719", "state": "OUT_OF_MEMORY", "exit": "0:125"}),
    ("StepId=7719.0 UserId=1000 StartTime=2026-03-14T01:00:00 TimeLimit=UNLIMITED\n   State=RUNNING Partition=gpu NodeList=cn-12", "job_state", {"job": "7719.0", "state": "RUNNING", "host": "cn-12"}),
    ("Job ID: 7719\nCluster: west\nState: TIMEOUT (exit code 0)\nMemory Efficiency: 41.20% of 500.00 GB (250.00 GB/node)", "job_state", {"job": "7719", "state": "TIMEOUT", "memory_percent": 41.2}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "want"), LINES, ids=[kind for _, kind, _ in LINES])
def test_slurm(text: str, kind: str, want: dict[str, Any]) -> None:
    fact = one(text, kind)
    assert {name: fact.who.host if name == "host" else fact[name] for name in want} == want


@pytest.mark.parametrize(
    "line",
    ["StepId=7719.0 is mentioned", "Job ID: 7719 started", "a|b|OUT_OF_MEMORY|c", "[2026-03-14T02:53:20.006] Node cn-12 now responding"],
)  # fmt: skip
def test_nothing_of_slurm(line: str) -> None:
    assert not [fact for fact in facts_of(line) if fact.kind in ("job_state", "node_event", "step_cancelled")]


def test_sinfo_states() -> None:
    text = """PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up 7-00:00:00      2  down* cn-[12-13]
gpu*         up 7-00:00:00      1   drng cn-14
gpu*         up 7-00:00:00      1  idle* cn-15
gpu*         up 7-00:00:00     60  alloc cn-[16-75]"""
    assert [fact.who.host for fact in of("node_event", text)] == ["cn-12", "cn-13", "cn-14", "cn-15"]


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w-0", "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "ft"}], "uid": "0f0e6e9c-12f0-4c1e-9d0e-0a0b0c0d0e0f"},
       "spec": {"containers": [{"args": ["--nnodes=4"], "name": "trainer", "resources": {"limits": {"memory": "64Gi"}}}], "nodeName": "n-1"},
       "status": {"containerStatuses": [{"lastState": {}, "name": "trainer", "state": {"running": {"startedAt": "2026-04-02T06:01:00Z"}}}], "phase": "Running"}}  # fmt: skip


def ended(name: str, node: str, code: int, reason: str) -> dict[str, Any]:
    pod = json.loads(json.dumps(POD))
    pod["metadata"]["name"], pod["spec"]["nodeName"] = name, node
    pod["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": code, "finishedAt": "2026-04-02T06:21:44Z", "reason": reason}}  # fmt: skip
    return dict(pod)


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {"resourceVersion": ""}}


def as_yaml(value: Any, indent: int = 0) -> list[str]:
    """What kubectl's printer makes of it: sorted keys, lists level with their key, strings quoted where they must be."""
    pad, lines = " " * indent, []
    for key, inner in sorted(value.items()):
        if isinstance(inner, dict) and inner:
            lines += [f"{pad}{key}:", *as_yaml(inner, indent + 2)]
        elif isinstance(inner, list) and inner:
            lines.append(f"{pad}{key}:")
            for item in inner:
                part = as_yaml(item, indent + 2) if isinstance(item, dict) else [f"{pad}  {item}"]
                lines += [f"{pad}- {part[0].strip()}", *part[1:]]
        elif isinstance(inner, str) and len(inner) > 60:
            cut = inner.rindex(" ", 0, 60)
            lines += [f"{pad}{key}: '{inner[:cut]}", f"{pad}  {inner[cut + 1 :]}'"]
        else:
            lines.append(
                f"{pad}{key}: {json.dumps(inner) if inner in ('True', 'False') or not isinstance(inner, str) else inner}"
            )
    return lines


def both(value: dict[str, Any]) -> list[tuple[str, str]]:
    return [("out.yaml", "\n".join(as_yaml(value)) + "\n"), ("out.json", json.dumps(value, indent=4) + "\n")]


def test_pods_of_a_list_are_told_apart() -> None:
    for name, text in both(listed(POD, ended("w-1", "n-2", 137, "OOMKilled"), ended("w-2", "n-3", 1, "Error"))):
        found = facts_of(text, name)
        exits = [
            (fact.who.pod, fact.who.host, fact["code"], fact["last"]) for fact in found if fact.kind == "container_exit"
        ]
        assert exits == [("w-1", "n-2", 137, True), ("w-2", "n-3", 1, True)], name
        assert [(fact.who.pod, fact.at is not None) for fact in found if fact.kind == "pod_oom"] == [("w-1", True)]
        places = [(fact.who.pod, fact.who.host) for fact in found if fact.kind == "member"]
        assert places == [("w-0", "n-1"), ("w-1", "n-2"), ("w-2", "n-3")]
        assert {
            fact.spot.excerpt.strip().split(":")[0].strip('"') for fact in found if fact.kind == "container_exit"
        } == {"exitCode"}


def test_events_as_objects() -> None:
    message = (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. Container t was using 60Gi."
    )
    event = {"apiVersion": "v1", "involvedObject": {"kind": "Pod", "name": "w-1"}, "kind": "Event", "lastTimestamp": "2026-04-02T06:21:44Z", "message": message, "metadata": {"name": "w-1.17"}, "reason": "Evicted", "type": "Warning"}  # fmt: skip
    newer = {"apiVersion": "events.k8s.io/v1", "eventTime": "2026-04-02T06:21:44.000000Z", "kind": "Event", "note": message, "reason": "Evicted", "regarding": {"kind": "Pod", "name": "w-1"}, "type": "Warning"}  # fmt: skip
    for value in (listed(event), event, listed(newer)):
        for name, text in both(value):
            fact = one(text, "pod_evicted", name)
            assert (fact.who.pod, fact["message"], fact.at) == ("w-1", message, 1775110904), name


def test_disruption_and_jobs() -> None:
    pod = json.loads(json.dumps(POD))
    pod["status"]["conditions"] = [{"message": "x", "reason": "PreemptionByScheduler", "status": "True", "type": "DisruptionTarget"}]  # fmt: skip
    for name, text in both(pod):
        assert one(text, "pod_preempted", name).who.pod == "w-0"
    for kind, type_, reason, state in (("PyTorchJob", "Failed", "PyTorchJobFailed", "FAILED"), ("Workload", "Evicted", "Preempted", "PREEMPTED"), ("JobSet", "Failed", "FailedJobs", "FAILED"), ("Job", "Failed", "DeadlineExceeded", "DEADLINE")):  # fmt: skip
        conditions = [{"message": "made", "reason": "Created", "status": "True", "type": "Created"}, {"message": "it ended", "reason": reason, "status": "True", "type": type_}]  # fmt: skip
        for name, text in both({"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "ft"}, "status": {"conditions": conditions}}):  # fmt: skip
            assert one(text, "job_state", name)["state"] == state


def test_a_node_that_is_not_ready() -> None:
    conditions = [{"message": "Kubelet stopped posting node status.", "reason": "NodeStatusUnknown", "status": "Unknown", "type": "Ready"}, {"message": "kubelet has no disk pressure", "status": "False", "type": "DiskPressure"}]  # fmt: skip
    for name, text in both(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-1"}, "status": {"conditions": conditions}}
    ):
        fact = one(text, "node_event", name)
        assert (fact.who.host, fact["reason"]) == ("n-1", "NodeNotReady")


def test_describe_of_a_node_and_a_job() -> None:
    node = """Name:               gpu-2
Roles:              <none>
Conditions:
  Type             Status    LastHeartbeatTime                 LastTransitionTime                Reason              Message
  ----             ------    -----------------                 ------------------                ------              -------
  MemoryPressure   False     Sat, 14 Mar 2026 02:50:00 +0000   Sat, 14 Mar 2026 02:52:40 +0000   KubeletHasSufficientMemory   kubelet has sufficient memory
  Ready            Unknown   Sat, 14 Mar 2026 02:50:00 +0000   Sat, 14 Mar 2026 02:52:40 +0000   NodeStatusUnknown   Kubelet stopped posting node status.
"""
    fact = one(node, "node_event")
    assert (fact.who.host, fact["reason"]) == ("gpu-2", "NodeNotReady")
    job = """Name:         ft
Kind:         PyTorchJob
Status:
  Conditions:
    Message:               PyTorchJob ft is created.
    Reason:                PyTorchJobCreated
    Status:                True
    Type:                  Created
    Message:               PyTorchJob ft is failed because 1 Worker replica(s) failed.
    Reason:                PyTorchJobFailed
    Status:                True
    Type:                  Failed
"""
    fact = one(job, "job_state")
    assert (fact["state"], fact["name"]) == ("FAILED", "ft")


def test_a_manifest_that_a_person_wrote_ends_nothing() -> None:
    text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: ft\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 4\n      restartPolicy: OnFailure\n"
    assert not [fact for fact in facts_of(text, "job.yaml") if fact.kind in ("job_state", "container_exit", "restart")]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_damage_never_raises_and_invents_no_pod(seed: int) -> None:
    rng = random.Random(seed)
    whole = listed(POD, ended("w-1", "n-2", 137, "OOMKilled"))
    text = rng.choice([*(part for _, part in both(whole)), sacct(NEW, OLD, indent=1)])
    lines = text.split("\n")[: rng.randrange(1, 60)]
    for _ in range(rng.randrange(3)):
        lines.insert(
            rng.randrange(len(lines) + 1),
            rng.choice(("- ", "}", "  ]", "[rank3]: step 4 loss 2.1", "\x00\ufffd", "      deep: {", "kind: List")),
        )
    evidence = Evidence()
    read_piece("out.txt", "\n".join(lines).encode(), evidence)
    assert not evidence.sources[0].trouble
    assert {fact.who.pod for fact in evidence.facts} <= {"w-0", "w-1", None}
    assert len({essence(fact) for fact in evidence.facts if fact.kind == "pod_oom"}) <= 1
