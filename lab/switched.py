"""Some nodes on one machine: network namespaces at a switch, with a name each. Needs root and iproute2 on Linux."""

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

DEVICE = "eth0"
NETWORK = "10.77.1"
NAMED = 'hostname "$0" && exec "$@"'
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Nodes:
    """names: what each node calls itself; spaces: the network namespace of each."""

    names: tuple[str, ...]
    spaces: tuple[str, ...]
    switch: str

    def address(self, node: int) -> str:
        return f"{NETWORK}.{node + 1}"

    def inside(self, node: int, *words: str) -> list[str]:
        """The command, to be run on that node."""
        return [
            "ip",
            "netns",
            "exec",
            self.spaces[node],
            "unshare",
            "--uts",
            "sh",
            "-c",
            NAMED,
            self.names[node],
            *words,
        ]

    def run(self, node: int, *words: str) -> None:
        """Raises CalledProcessError."""
        _run("ip", "netns", "exec", self.spaces[node], *words)

    def at_switch(self, *words: str) -> None:
        """On the switch: the port of node n is called port-n."""
        _run("ip", "netns", "exec", self.switch, *words)

    def second_network(self, node: int, device: str) -> str:
        """Gives the node an interface of that name that leads nowhere; its address."""
        _run("ip", "-n", self.spaces[node], "link", "add", device, "type", "veth", "peer", "name", f"{device}-end")
        address = f"192.168.77.{node + 1}"
        _run("ip", "-n", self.spaces[node], "addr", "add", f"{address}/24", "dev", device)
        for name in (device, f"{device}-end"):
            _run("ip", "-n", self.spaces[node], "link", "set", name, "up")
        return address


def usable() -> str | None:
    """Why such nodes cannot be had here, None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "unshare", "hostname") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is not installed (apt-get install iproute2 util-linux hostname)"
    try:
        with nodes(1):
            return None
    except (OSError, subprocess.CalledProcessError):
        return "network namespaces, veth or bridges are not allowed here"


def sweep() -> None:
    """Takes away the nodes of labs that are gone: one that was killed could not."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for space, process in re.findall(r"^((?:node-[a-z]|switch)-(\d+)-\d+)\b", listed, re.M):
        if not Path("/proc", process).exists():
            _remove(space)


def _remove(space: str) -> None:
    subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)
    shutil.rmtree(Path("/etc/netns", space), ignore_errors=True)


@contextmanager
def nodes(count: int) -> Iterator[Nodes]:
    number = f"{os.getpid()}-{next(_numbers)}"
    names = tuple(f"node-{chr(ord('a') + place)}" for place in range(count))
    made = Nodes(names, tuple(f"{name}-{number}" for name in names), f"switch-{number}")
    table = "127.0.0.1 localhost\n" + "".join(f"{made.address(node)} {name}\n" for node, name in enumerate(names))
    sweep()
    try:
        _run("ip", "netns", "add", made.switch)
        _run("ip", "-n", made.switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", made.switch, "link", "set", "bridge", "up")
        for node, space in enumerate(made.spaces):
            _plug(made, node, space, table)
        yield made
    finally:
        for space in (*made.spaces, made.switch):
            _remove(space)
        with suppress(OSError):  # others' are in it
            Path("/etc/netns").rmdir()


def _plug(made: Nodes, node: int, space: str, table: str) -> None:
    own = Path("/etc/netns", space)  # laid over /etc by `ip netns exec`
    own.mkdir(parents=True, exist_ok=True)
    (own / "hosts").write_text(table)
    _run("ip", "netns", "add", space)
    port = f"port-{node}"
    _run("ip", "-n", space, "link", "add", DEVICE, "type", "veth", "peer", "name", port, "netns", made.switch)
    _run("ip", "-n", space, "addr", "add", f"{made.address(node)}/24", "dev", DEVICE)
    for name in (DEVICE, "lo"):
        _run("ip", "-n", space, "link", "set", name, "up")
    _run("ip", "-n", made.switch, "link", "set", port, "master", "bridge")
    _run("ip", "-n", made.switch, "link", "set", port, "up")


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
