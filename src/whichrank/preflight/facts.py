"""What one rank knows of itself: node, versions, settings, interfaces, limits, code. Plain values, ready for JSON."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from whichrank import __version__
from whichrank.preflight import interfaces, limits, variables
from whichrank.preflight.place import Place

SECONDS = 4.0  # for each fact that asks a file system, a name server or another program


def node() -> dict[str, Any]:
    """What tells one node, or container, from another. Asks nobody."""
    boot = _read("/proc/sys/kernel/random/boot_id")
    network = ""
    with suppress(OSError):
        network = os.readlink("/proc/self/ns/net")  # noqa: PTH115 - not a path of a file
    return {"host": socket.gethostname(), "key": f"{boot}/{network}/{socket.gethostname()}", "pid": os.getpid()}


def facts(place: Place, script: str | None, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """script: the training program, to be compared by its bytes. What could not be told in time is under `late`."""
    env = os.environ if env is None else env
    late: list[str] = []

    def told(name: str, work: Callable[[], Any]) -> Any:
        got = limits.within(SECONDS, work)
        if "late" in got:
            late.append(name)
        return got.get("value")

    there = interfaces.interfaces()
    own = told("the own name", lambda: _addresses(socket.gethostname())) or []
    return {
        **node(),
        "world": place.world,
        "local_rank": place.local_rank,
        "master": told("MASTER_ADDR", lambda: _addresses(place.master)) or [],
        "towards_master": told("MASTER_ADDR", lambda: interfaces.towards(place.master, place.port)),
        "interfaces": [interfaces.plain(one) for one in there if one.addresses],
        "nccl": interfaces.plain(interfaces.nccl(there, env)),
        "gloo": interfaces.plain(interfaces.gloo(there, env, own)),
        "versions": versions(),
        "env": variables.kept(env),
        "limits": {name: _limit(kind) for name, kind in (("memlock", resource.RLIMIT_MEMLOCK), ("nofile", resource.RLIMIT_NOFILE))},
        "rdma": rdma_ports(),
        "gpus": len(list(Path("/proc/driver/nvidia/gpus").glob("*"))),
        "shm": told("/dev/shm", lambda: _space("/dev/shm")),
        "memory": available_memory(),
        "ports": _read("/proc/sys/net/ipv4/ip_local_port_range").split(),
        "commit": told("git", _commit),
        "script": told(str(script), lambda: _hash(script)) if script else None,
        "late": late,
    }  # fmt: skip


def rdma_ports() -> dict[str, str]:
    """ "mlx5_0/1" -> "ACTIVE, 400 Gb/sec (4X NDR)": what the kernel says of each port of InfiniBand or RoCE."""
    found = {}
    for port in sorted(Path("/sys/class/infiniband").glob("*/ports/*")):
        state = _read(str(port / "state")).partition(": ")[2]
        found[f"{port.parts[-3]}/{port.name}"] = f"{state or '?'}, {_read(str(port / 'rate')) or '?'}"
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def versions() -> dict[str, str | None]:
    """Of what has to be the same everywhere; None: not installed. Nothing is imported for it."""
    found: dict[str, str | None] = {"python": platform.python_version(), "whichrank": __version__}
    for name in ("torch", "numpy"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    if "torch" in found:
        found["cuda"] = _cuda()
    for one in ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"):
        with suppress(metadata.PackageNotFoundError):
            found["nccl"] = metadata.version(one)
            break
    if match := re.search(r"(?:Module|for \S+)\s+([\d.]+)\s", _read("/proc/driver/nvidia/version")):
        found["driver"] = match[1]
    found["kernel"] = platform.release()
    return found


def _cuda() -> str | None:
    """That torch was built for, from its version.py."""
    with suppress(metadata.PackageNotFoundError, OSError):
        for file in metadata.distribution("torch").files or ():
            if file.as_posix() == "torch/version.py":
                text = Path(str(file.locate())).read_text(errors="replace")
                match = re.search(r"^cuda\b[^=]*= '([\d.]+)'", text, re.M)
                return match[1] if match else None
    return None


def _limit(kind: int) -> int | None:
    """The soft limit; None: there is none."""
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _space(path: str) -> dict[str, int] | None:
    with suppress(OSError):
        usage = shutil.disk_usage(path)
        return {"total": usage.total, "free": usage.free}
    return None


def available_memory() -> int | None:
    """Bytes that this process may still use: of the machine, or less where its control group allows less."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"), re.M)
    left = [int(match[1]) * 1024] if match else []
    for most, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        if (limit := _read(most)).isdecimal() and (now := _read(used)).isdecimal():
            left.append(max(0, int(limit) - int(now)))
    return min(left, default=None)


def _commit() -> str | None:
    """Of the working folder, "+" behind it where files that git knows are changed."""
    head = limits.command(["git", "rev-parse", "HEAD"], SECONDS / 2)
    if not head:
        return None
    changed = limits.command(["git", "status", "--porcelain", "--untracked-files=no"], SECONDS / 2)
    return head.strip()[:12] + ("+" if changed else "")


def _hash(script: str | None) -> str:
    try:
        return hashlib.sha256(Path(script or "").read_bytes()).hexdigest()[:16]
    except OSError as error:
        return f"cannot be read: {error.strerror}"
