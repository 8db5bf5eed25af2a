"""Whose lines they are: names of labels, of log streams and of collected files -> identity.

>>> identity((("host", "gn-05.cluster:9100"), ("pod", "asr-0"), ("rank", "3")))
Identity(world=None, attempt=None, rank=3, local_rank=None, host='gn-05.cluster', pod='asr-0', pid=None, pid_namespace=None, gpu=None, task=None)
>>> place("asr-2026/algo-2-1785403815"), place("/var/log/pods/ml_asr-0_6f1c/trainer/0.log"), place("/nfs/run/rank3.log")
(Place(host='algo-2', pod=None), Place(host=None, pod='asr-0'), Place(host=None, pod=None))
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from whichrank.evidence.frame import from_path
from whichrank.facts import NOBODY, Identity

# Part of the identity -> labels that say it, the most telling first. A dotted name is a key within an object.
_NAMES = {
    "host": (
        "node_name nodename kube_node kubernetes_node kubernetes.host k8s.node.name node.name pod_node_name "
        "compute.googleapis.com/resource_name _hostname hostname host.name host.hostname host_name host node "
        "computer instance_id instance"
    ),
    "pod": (
        "pod pod_name podname k8s.pod.name kubernetes.pod_name pod.name kubernetes_pod_name task_name container_name "
        "com.docker.compose.service"
    ),
    "stream": "logstreamname @logstream logstream log_stream awslogs.stream",
    "path": "filename filepath log.file.path file.path file_path",
    "rank": "rank global_rank world_rank process_rank",
    "local_rank": "local_rank",
    "world_size": "world_size",
    "pid": "pid process_id process.pid process.id",
}
_PART = {name: (part, order) for part, names in _NAMES.items() for order, name in enumerate(names.split())}
_POD_FILE = re.compile(
    r"(?:^|/)(?:[\w-]+\.)*?(?P<pod>[a-z0-9][a-z0-9.-]*)_[a-z0-9-]+_[a-z0-9.-]+-[0-9a-f]{64}(?:\.log)?$"
)
_POD_FOLDER = re.compile(r"/pods/[a-z0-9-]+_(?P<pod>[a-z0-9][a-z0-9.-]*)_[0-9a-f-]+/")
_SAGEMAKER = re.compile(r"(?:^|/)(?P<host>algo-\d+)(?:-\d{10,})?$")
_MACHINE = re.compile(r"(?:^|/)(?P<host>i-[0-9a-f]{8,17}|ip-\d+(?:-\d+){3})(?=[./]|$)")
Path = tuple[str, ...]


class Place(NamedTuple):
    host: str | None
    pod: str | None


@lru_cache(maxsize=4096)
def place(name: str) -> Place:
    """Host or pod in the name of a log stream or of a collected file, where its form tells."""
    for pattern in (_SAGEMAKER, _POD_FILE, _POD_FOLDER, _MACHINE):
        if match := pattern.search(name):
            found = match.groupdict()
            return Place(found.get("host"), found.get("pod"))
    return Place(None, None)


def walk(record: Mapping[str, Any], depth: int = 4) -> Iterator[tuple[Path, object]]:
    """All values of a record with their paths, outer ones first."""
    inner: list[tuple[Path, Mapping[str, Any]]] = [((), record)]
    for _ in range(depth):
        found, inner = inner, []
        for path, part in found:
            for key, value in part.items():
                if isinstance(value, dict):
                    if len(inner) < 64:
                        inner.append(((*path, key), value))
                else:
                    yield (*path, key), value


def telling(record: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """Which values of a record say whose line it is: (part, path), the best for each part."""
    best: dict[str, tuple[int, int, Path]] = {}
    for path, value in walk(record):
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            continue
        name = path[-1].lower().replace("-", "_") if "/" not in path[-1] else path[-1].lower()
        for spelled in (".".join((path[-2].lower(), name)) if len(path) > 1 else name, name):
            if spelled in _PART:
                part, order = _PART[spelled]
                if part not in best or (order, len(path)) < best[part][:2]:
                    best[part] = (order, len(path), path)
                break
    return [(part, path) for part, (_, _, path) in sorted(best.items())]


def tagged(tags: object) -> Iterator[tuple[str, str]]:
    """The same of tags: ["pod_name:asr-0", "kube_node:gn-05"] or "pod_name:asr-0,kube_node:gn-05"."""
    listed = tags.split(",") if isinstance(tags, str) else tags
    if not isinstance(listed, (list, tuple)):
        return
    found: dict[str, tuple[str, int]] = {}
    for tag in listed:
        name, colon, value = str(tag).partition(":")
        part, order = _PART.get(name.strip().lower(), ("", 99))
        if colon and part and order < found.get(part, ("", 99))[1]:
            found[part] = (value.strip(), order)
    yield from ((part, value) for part, (value, _) in found.items())


@lru_cache(maxsize=8192)
def identity(parts: tuple[tuple[str, object], ...]) -> Identity:
    """Who it is by (part, value) pairs; the first value of a part counts."""
    found: dict[str, Any] = {}
    for part, value in parts:
        if value not in (None, ""):
            found.setdefault(part, value)
    names = [str(found[part]) for part in ("path", "stream", "pod") if part in found]
    places = [place(name) for name in names]
    host = _host(found.get("host")) or next((each.host for each in places if each.host), None)
    pod = next((each.pod for each in places if each.pod), None) or found.get("pod")
    if pod is None and host is None:
        pod = found.get("stream")
    who = Identity(
        rank=_number(found.get("rank")),
        local_rank=_number(found.get("local_rank")),
        host=host,
        pod=str(pod).lstrip("/") if pod else None,
        pid=_number(found.get("pid")),
    )
    for name in names:  # train-rank-3, rank03.log: as in the names of files
        each = from_path(name)
        if name == found.get("path"):
            who = who.filled(Identity(each.world, each.attempt, each.rank, each.local_rank))
        elif each.rank is not None:
            who = who.filled(Identity(rank=each.rank))
    return who if who != NOBODY else NOBODY


def _host(value: object) -> str | None:
    name = str(value) if isinstance(value, str) else ""
    name = re.sub(r":\d{1,5}$", "", name)  # a scraped port
    return name if name and not name.isdecimal() else None


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else None


def introduction(parts: Iterable[tuple[str, object]]) -> str | None:
    """A line that says what an identity has no room for: the size of the world, beside whose line tells it."""
    found = {part: value for part, value in parts if value not in (None, "")}
    if _number(found.get("world_size")) is None or _number(found.get("rank")) is None:
        return None
    names = ("rank", "local_rank", "world_size", "host", "pid")
    return " ".join(f"{name}={found[name]}" for name in names if name in found)
