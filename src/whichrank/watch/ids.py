"""What the nodes of one run know alike before their ranks start, and what the node itself is called.

Words of torchrun's command line (PyTorch 2.13, torch/distributed/run.py: dashes and underscores are the same, each may be
set by PET_…), of MASTER_ADDR and MASTER_PORT, and of the schedulers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

SCHEDULERS = (("slurm", "SLURM_JOB_ID"), ("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID"), ("sge", "JOB_ID"))
NODES = ("NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME", "KUBERNETES_NODE_NAME")  # set by hand, from spec.nodeName
LOCAL = ("", "localhost", "127.0.0.1", "0.0.0.0", "::1")
PORT = "29500"


def told(command: Sequence[str], env: Mapping[str, str]) -> dict[str, str | None]:
    """rdzv: the rendezvous' id; endpoint: of the rendezvous or the master; job, step, restart: the scheduler's.

    >>> told(["bash", "-c", "torchrun --nnodes 2 --rdzv_id=j7 --rdzv-endpoint n1:29400 t.py"], {"SLURM_JOB_ID": "12"})
    {'rdzv': 'j7', 'endpoint': 'n1:29400', 'job': 'slurm 12', 'step': None, 'restart': None}
    >>> told(["torchrun", "--rdzv-id", "$ID", "--master-addr=localhost", "t.py"], {})["endpoint"] is None
    True
    """
    words = list(_words(command))
    rdzv = _option(words, "rdzv-id") or env.get("PET_RDZV_ID") or env.get("TORCHELASTIC_RUN_ID")
    endpoint = _option(words, "rdzv-endpoint") or env.get("PET_RDZV_ENDPOINT")
    master = _option(words, "master-addr") or env.get("PET_MASTER_ADDR") or env.get("MASTER_ADDR")
    port = _option(words, "master-port") or env.get("PET_MASTER_PORT") or env.get("MASTER_PORT") or PORT
    job = next(((f"{name} {env[key]}") for name, key in SCHEDULERS if env.get(key)), None)
    if job and (cluster := env.get("SLURM_CLUSTER_NAME")) and job.startswith("slurm "):
        job = f"slurm {cluster} {env['SLURM_JOB_ID']}"
    return {
        "rdzv": rdzv if rdzv not in ("none", "") else None,
        "endpoint": _elsewhere(endpoint) or (_elsewhere(f"{master}:{port}") if master else None),
        "job": job,
        "step": env.get("SLURM_STEP_ID"),
        "restart": env.get("SLURM_RESTART_COUNT"),
    }


def node(env: Mapping[str, str]) -> str | None:
    """The node's own name where the host's is a pod's."""
    return next((env[name] for name in NODES if env.get(name)), None)


def _words(command: Sequence[str]) -> Iterator[str]:
    """Those of a shell's -c too."""
    for word in command:
        if " " in word and "--" in word:
            try:
                yield from shlex.split(word, comments=True)
            except ValueError:
                yield from word.split()
        else:
            yield word


def _option(words: Sequence[str], name: str) -> str | None:
    """The value, unless it is the shell's to find out."""
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        key, equals, value = word[2:].partition("=")
        if key.replace("_", "-") == name:
            value = value if equals else words[place + 1] if place + 1 < len(words) else ""
            return value if value and "$" not in value and "`" not in value else None
    return None


def _elsewhere(endpoint: str | None) -> str | None:
    """None for an address that each node has of its own."""
    return None if endpoint is None or endpoint.rpartition(":")[0] in LOCAL or endpoint in LOCAL else endpoint
