"""Kubernetes: events, describe, get pods, manifests, kubelet."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

LOW = "The node was low on resource: ephemeral-storage. Threshold quantity: 85899345920, available: 80120044Ki."
EVENTS = f"""LAST SEEN   TYPE      REASON                OBJECT                    MESSAGE
52m         Normal    Scheduled             pod/ft-job-worker-1       Successfully assigned ml/ft-job-worker-1 to gpu-pool-7f-x2
31m         Warning   EvictionThresholdMet  node/gpu-pool-7f-x2       Attempting to reclaim ephemeral-storage
31m         Warning   Evicted               pod/ft-job-worker-1       {LOW}
31m         Normal    Killing               pod/ft-job-worker-1       Stopping container trainer
30m         Normal    NodeNotReady          node/gpu-pool-7f-x2       Node gpu-pool-7f-x2 status is now: NodeNotReady
29m         Warning   SystemOOM             node/gpu-pool-7f-x2       System OOM encountered, victim process: python, pid: 77391
28m         Normal    Preempted             pod/ft-job-worker-0       Preempted by ml/other on node gpu-pool-7f-x3
12m         Warning   SpotInterruption      node/ip-10-72-31-88.eu-west-1.compute.internal   Spot ITN received.
12m         Normal    Pulled                pod/x                     Container image already present""".splitlines()
DESCRIBE = f"""Name:             ft-job-worker-1
Namespace:        ml
Node:             gpu-pool-7f-x2/10.4.7.22
Status:           Failed
Reason:           Evicted
Message:          {LOW}
Containers:
  trainer:
    Image:          reg/train:1
    State:          Terminated
      Reason:       Error
      Exit Code:    137
      Started:      Thu, 02 Apr 2026 05:58:30 +0000
      Finished:     Thu, 02 Apr 2026 06:21:44 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Finished:     Thu, 02 Apr 2026 05:58:00 +0000
    Ready:          False
    Limits:
      memory:          900Gi
      nvidia.com/gpu:  2
Events:
  Type     Reason     Age                From     Message
  ----     ------     ----               ----     -------
  Warning  BackOff    2m (x5 over 10m)   kubelet  Back-off restarting failed container""".splitlines()


def brief(text: str) -> list[tuple[Any, ...]]:
    return [(fact.kind, fact.who.pod, fact.who.host) for fact in facts_of(text, "k8s.txt")]


def test_events() -> None:
    assert brief("\n".join(EVENTS)) == [
        ("member", "ft-job-worker-1", "gpu-pool-7f-x2"),
        ("node_event", None, "gpu-pool-7f-x2"),
        ("pod_evicted", "ft-job-worker-1", None),
        ("launcher_stop", "ft-job-worker-1", None),
        ("node_event", None, "gpu-pool-7f-x2"),
        ("oom_kill", None, "gpu-pool-7f-x2"),
        ("pod_preempted", "ft-job-worker-0", None),
        ("node_event", None, "ip-10-72-31-88.eu-west-1.compute.internal"),
    ]
    evicted = one("\n".join(EVENTS), "pod_evicted")
    assert (evicted["message"], evicted["age"], evicted.spot.line) == (LOW, "31m", 4)


def test_describe() -> None:
    facts = facts_of("\n".join(DESCRIBE), "k8s.txt")
    assert {(fact.who.pod, fact.who.host) for fact in facts if fact.kind != "node_event"} == {
        ("ft-job-worker-1", "gpu-pool-7f-x2")
    }
    kinds = [fact.kind for fact in facts]
    assert sorted(kinds) == [
        "config",
        "container_exit",
        "container_exit",
        "member",
        "node_event",
        "pod_evicted",
        "pod_oom",
    ]
    now, before = (fact for fact in facts if fact.kind == "container_exit")
    assert (now["code"], now["reason"], now["last"], now["container"]) == (137, "Error", False, "trainer")
    assert (before["reason"], before["last"]) == ("OOMKilled", True)
    assert now.at is not None and before.at is not None
    assert now.at - before.at == 1424
    assert next(fact for fact in facts if fact.kind == "config")["value"] == "900Gi"


def test_pods() -> None:
    text = """NAME                READY   STATUS    RESTARTS      AGE   IP           NODE
ft-job-master-0     1/1     Running   1 (13m ago)   33m   10.42.1.31   nimbus-01
ft-job-worker-1     0/1     Evicted   0             33m   <none>       nimbus-02
ft-job-worker-2     0/1     Pending   0             33m   <none>       <none>"""
    assert brief(text) == [
        ("member", "ft-job-master-0", "nimbus-01"),
        ("member", "ft-job-worker-1", "nimbus-02"),
        ("pod_evicted", "ft-job-worker-1", "nimbus-02"),
    ]


YAML = """kind: Pod
metadata:
  labels:
    name: not-the-name
  name: ft-job-worker-1
spec:
  nodeName: gpu-2
status:
  containerStatuses:
  - lastState:
      terminated:
        exitCode: 137
        finishedAt: "2026-04-02T06:21:44Z"
        reason: OOMKilled
    name: trainer"""


def test_manifest() -> None:
    exit_ = one(YAML, "container_exit")
    assert exit_.who.pod == "ft-job-worker-1"
    assert (exit_.who.host, exit_["code"], exit_["reason"], exit_["last"]) == ("gpu-2", 137, "OOMKilled", True)
    assert one(YAML, "pod_oom").who.host == "gpu-2"
    assert exit_.clock == "wall"


@pytest.mark.parametrize(
    "text",
    [
        "lastState:\n  terminated:\n    exitCode: 137\n    reason: OOMKilled",
        'lastState.terminated {exitCode: 137, reason: OOMKilled}\n"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}',
        '    "lastState": {\n      "terminated": {\n        "exitCode": 137,\n        "reason": "OOMKilled"\n      }\n    }',
    ],
)
def test_fragment(text: str) -> None:
    fact = one(text, "container_exit")
    assert (fact["code"], fact["reason"], fact["last"]) == (137, "OOMKilled", True)


@pytest.mark.parametrize(
    ("line", "kind", "pod", "host"),
    [
        (
            'I0402 06:21:14.1 1 eviction_manager.go:621] "Eviction manager: pod is evicted successfully" pod="ml/ft-job-worker-1"',
            "pod_evicted",
            "ft-job-worker-1",
            None,
        ),
        ("2026/06/18 04:12:38 INF evicting pod train/vit-h-worker-1", "pod_evicted", "vit-h-worker-1", None),
        (f"pod ml/ft-job-worker-1 failed: {LOW}", "pod_evicted", "ft-job-worker-1", None),
        ("Preempted by ml/other on node gpu-3", "pod_preempted", None, "gpu-3"),
        ("Pod: ml.ft-job-worker-1 exited with code 137", "container_exit", "ft-job-worker-1", None),
        ("Shutdown manager detected new shutdown event, isNodeShuttingDownNow", "node_event", None, None),
        (
            "2026-01-01 00:00:00 Spot interruption notice received, instance will be terminated",
            "node_event",
            None,
            None,
        ),
        ('"OOMKilled": true,', "pod_oom", None, None),
    ],
)
def test_line(line: str, kind: str, pod: str | None, host: str | None) -> None:
    fact = one(line, kind)
    assert (fact.who.pod, fact.who.host) == (pod, host)


@given(st.integers(0, 10_000))
def test_facts_survive_what_happens_to_other_lines(seed: int) -> None:
    for lines in (EVENTS, DESCRIBE):
        plain = {essence(fact) for fact in facts_of("\n".join(lines))}
        assert plain <= {essence(fact) for fact in facts_of(disturbed(lines, seed))}
    both = [line[: len(line) // 2] for line in EVENTS] + EVENTS
    assert {essence(fact) for fact in facts_of("\n".join(EVENTS))} <= {
        essence(fact) for fact in facts_of(disturbed(both, seed))
    }
