"""Two hosts on one machine: network namespaces with a cable between them, and a name each. Needs root and iproute2."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

NAMES = ("node-a", "node-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
DEVICE = "eth0"
RENAMED = 'hostname "$0" && exec "$@"'
_numbers = itertools.count()  # incidents of one process may run at the same time


@dataclass(frozen=True, slots=True)
class Hosts:
    spaces: tuple[str, str]

    def prefix(self, node: int) -> list[str]:
        """What comes before a command for it to run there."""
        return ["ip", "netns", "exec", self.spaces[node], "unshare", "--uts", "sh", "-c", RENAMED, NAMES[node]]

    def slow(self, node: int) -> None:
        """What leaves this host gets through at 20 kB/s, and late."""
        limit = ["tbf", "rate", "160kbit", "burst", "16kbit", "latency", "400ms"]
        _ip("netns", "exec", self.spaces[node], "tc", "qdisc", "add", "dev", DEVICE, "root", *limit)

    def cut(self, node: int) -> None:
        _ip("-n", self.spaces[node], "link", "set", DEVICE, "down")


def sweep() -> None:
    """Takes away the hosts of labs that are gone: one that was killed could not."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for name, process in re.findall(r"^(node-[ab]-(\d+)-\d+)\b", listed, re.M):
        if not Path("/proc", process).exists():
            _remove(name)


def _remove(space: str) -> None:
    subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)
    shutil.rmtree(Path("/etc/netns", space), ignore_errors=True)
    with suppress(OSError):  # others' are in it
        Path("/etc/netns").rmdir()


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    number = f"{os.getpid()}-{next(_numbers)}"
    spaces = (f"{NAMES[0]}-{number}", f"{NAMES[1]}-{number}")
    made = Hosts(spaces)
    table = "127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for a, n in zip(ADDRESSES, NAMES, strict=True))
    try:
        for space in spaces:
            own = Path("/etc/netns", space)  # laid over /etc by `ip netns exec`
            own.mkdir(parents=True, exist_ok=True)
            (own / "hosts").write_text(table)
            _ip("netns", "add", space)
        _ip("-n", spaces[0], "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", spaces[1])
        for space, address in zip(spaces, ADDRESSES, strict=True):
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", DEVICE)
            _ip("-n", space, "link", "set", DEVICE, "up")
            _ip("-n", space, "link", "set", "lo", "up")
        yield made
    finally:
        for space in spaces:
            _remove(space)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
