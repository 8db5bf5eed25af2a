"""Preflights over nodes at a switch, healthy or with one real fault each, and what has to be found.

Every fault is real: a packet filter, a rate limit, an interface that leads nowhere, a process that is not started, a
file system in user space that answers late. Only the unequal versions are made up, by metadata of a torch 2.4.0 that
lies first in the path of one node's Python.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import switched
from lab.faults import fuse

SOURCES = Path(__file__).resolve().parents[1] / "src"
PORT = 29500
PORTS = "30000:65535"  # what the packet filters drop: all ephemeral ports, not MASTER_PORT
LIMIT = 120.0  # seconds: a preflight that is not over by then has failed


@dataclass(slots=True)
class Set:
    """Nodes with the same number of ranks each, and what a fault has changed."""

    nodes: switched.Nodes
    each: int
    folder: Path
    data: Path  # the path that is tried
    absent: set[int] = field(default_factory=set)  # ranks that are not started
    env: dict[int, dict[str, str]] = field(default_factory=dict)  # by node
    wrap: dict[int, list[str]] = field(default_factory=dict)  # by node: before the command
    ranks: dict[int, int] = field(default_factory=dict)  # by rank: what it is told instead
    options: list[str] = field(default_factory=list)

    @property
    def world(self) -> int:
        return len(self.nodes.names) * self.each

    def ranks_of(self, node: int) -> list[int]:
        return list(range(node * self.each, (node + 1) * self.each))


@dataclass(frozen=True, slots=True)
class Fault:
    """plant: does it to a node, for as long as the context lasts. found: ids of which one has to be a finding that names the node."""

    name: str
    found: tuple[str, ...]
    plant: Callable[[Set, int], Any]
    each: int = 1  # ranks on each node that it takes
    by_rank: bool = False  # the finding has to name the ranks, which came from nowhere
    first: bool = True  # also on the first node, whose rank 0 conducts
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """answer: the JSON of rank 0, None if there is none. codes, said: of each rank, what it said on standard error."""

    answer: dict[str, Any] | None
    codes: Mapping[int, int | None]
    said: Mapping[int, str]
    seconds: float

    def findings(self, grade: str = "stop") -> list[dict[str, Any]]:
        return [one for one in (self.answer or {"findings": []})["findings"] if one["grade"] == grade]


@contextmanager
def blocked(made: Set, node: int) -> Iterator[None]:
    """New connections to ephemeral ports are dropped; what the node begins itself, and MASTER_PORT, go through."""
    made.nodes.run(node, "iptables", "-A", "INPUT", "-p", "tcp", "--syn", "--dport", PORTS, "-j", "DROP")
    yield


@contextmanager
def rejected(made: Set, node: int) -> Iterator[None]:
    made.nodes.run(node, "iptables", "-A", "INPUT", "-p", "tcp", "--syn", "--dport", PORTS, "-j", "REJECT")
    yield


@contextmanager
def blocked_out(made: Set, node: int) -> Iterator[None]:
    made.nodes.run(
        node, "iptables", "-A", "OUTPUT", "-o", switched.DEVICE, "-p", "tcp", "--syn", "--dport", PORTS, "-j", "DROP"
    )
    yield


@contextmanager
def limited(made: Set, node: int) -> Iterator[None]:
    """What the node sends gets through at 200 Mb/s."""
    limit = ["tbf", "rate", "200mbit", "burst", "64kbit", "latency", "50ms"]
    made.nodes.run(node, "tc", "qdisc", "add", "dev", switched.DEVICE, "root", *limit)
    yield


@contextmanager
def limited_in(made: Set, node: int) -> Iterator[None]:
    """What the node receives: the limit is at the switch."""
    limit = ["tbf", "rate", "200mbit", "burst", "64kbit", "latency", "50ms"]
    made.nodes.at_switch("tc", "qdisc", "add", "dev", f"port-{node}", "root", *limit)
    yield


@contextmanager
def small_packets(made: Set, node: int) -> Iterator[None]:
    """The switch drops what is larger than 1300 bytes on the way to the node, and says nothing."""
    made.nodes.at_switch("ip", "link", "set", f"port-{node}", "mtu", "1300")
    yield


@contextmanager
def wrong_interface(made: Set, node: int) -> Iterator[None]:
    made.nodes.second_network(node, "storage0")
    made.env[node] = {"GLOO_SOCKET_IFNAME": "storage0"}
    yield


@contextmanager
def no_interface(made: Set, node: int) -> Iterator[None]:
    made.env[node] = {"GLOO_SOCKET_IFNAME": "eth1"}
    yield


@contextmanager
def loopback_name(made: Set, node: int) -> Iterator[None]:
    """The node's own name is 127.0.1.1, as Debian's installer writes it."""
    table = Path("/etc/netns", made.nodes.spaces[node], "hosts")
    own = f"{made.nodes.address(node)} {made.nodes.names[node]}\n"
    table.write_text(table.read_text().replace(own, f"127.0.1.1 {made.nodes.names[node]}\n"))
    yield


@contextmanager
def missing_rank(made: Set, node: int) -> Iterator[None]:
    made.absent.add(made.ranks_of(node)[-1])
    made.options += ["--wait", "10"]
    yield


@contextmanager
def missing_node(made: Set, node: int) -> Iterator[None]:
    made.absent.update(made.ranks_of(node))
    made.options += ["--wait", "10"]
    yield


@contextmanager
def missing_first(made: Set, node: int) -> Iterator[None]:
    made.absent.add(0)
    made.options += ["--wait", "10"]
    yield


@contextmanager
def cut_off(made: Set, node: int) -> Iterator[None]:
    made.nodes.run(node, "ip", "link", "set", switched.DEVICE, "down")
    made.options += ["--wait", "10"]
    yield


@contextmanager
def came_twice(made: Set, node: int) -> Iterator[None]:
    """Both the first node and this one are told to be the first."""
    for rank in made.ranks_of(node):
        made.ranks[rank] = rank - node * made.each
    made.options += ["--wait", "10"]
    yield


@contextmanager
def other_torch(made: Set, node: int) -> Iterator[None]:
    package = made.folder / "older" / "torch-2.4.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0\n")
    made.env[node] = {"PYTHONPATH": str(package.parent)}
    yield


@contextmanager
def other_setting(made: Set, node: int) -> Iterator[None]:
    made.env[node] = {"NCCL_ALGO": "Tree"}
    yield


@contextmanager
def storage(made: Set, node: int, delay: float) -> Iterator[None]:
    """On this node the path is a file system of its own, each of whose answers takes so long."""
    behind, mount = made.folder / "behind", made.folder / "mount"
    behind.mkdir()
    mount.mkdir()
    with fuse.mounted(behind, mount) as files:
        files.delay = delay
        made.wrap[node] = ["sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', str(mount), str(made.data)]
        yield


def slow_storage(made: Set, node: int) -> Any:
    return storage(made, node, 0.06)


def hung_storage(made: Set, node: int) -> Any:
    return storage(made, node, 1e5)


FAULTS = (
    Fault("blocked ports", ("blocked_in", "blocked_pair"), blocked, tool="iptables"),
    Fault("rejected ports", ("blocked_in", "blocked_pair"), rejected, tool="iptables"),
    Fault("blocked outgoing", ("blocked_out", "blocked_pair"), blocked_out, tool="iptables"),
    Fault("rate-limited link", ("slow_node", "slow_link"), limited, tool="tc"),
    Fault("rate-limited inwards", ("slow_node", "slow_link"), limited_in, tool="tc"),
    Fault("large packets lost", ("large_packets_lost",), small_packets),
    Fault("wrong interface", ("wrong_interface",), wrong_interface),
    Fault("no such interface", ("no_interface",), no_interface),
    Fault("own name on loopback", ("loopback",), loopback_name),
    Fault("missing rank", ("missing",), missing_rank, by_rank=True, first=False),
    Fault("missing node", ("missing",), missing_node, by_rank=True, first=False),
    Fault("node cut off", ("missing",), cut_off, by_rank=True, first=False),
    Fault("rank 0 missing", (), missing_first),
    Fault("rank twice", ("twice",), came_twice, first=False, each=2),
    Fault("unequal versions", ("version_torch",), other_torch),
    Fault("unequal settings", ("variable_differs",), other_setting),
    Fault("slow storage", ("storage_outlier", "storage_slow"), slow_storage),
    Fault("storage that hangs", ("storage_hangs",), hung_storage),
)


def right(fault: Fault, made: Set, node: int, ended: Ended) -> bool:
    """Found and named: no-go everywhere, by the finding that was wanted, which names that node, or those ranks."""
    if set(ended.codes.values()) != {1}:
        return False
    if 0 in made.absent:  # nobody is left to answer: each says for itself whom it did not reach
        return all("NO-GO" in said and f"rank 0 at {made.nodes.names[0]}" in said for said in ended.said.values())
    if ended.answer is None or ended.answer["answer"] != "no-go":
        return False
    ranks = sorted(made.absent or made.ranks_of(node))
    return any(
        one["id"] in fault.found
        and one["do"]
        and (one["ranks"] == ranks if fault.by_rank else made.nodes.names[node] in one["nodes"])
        for one in ended.findings()
    )


@contextmanager
def prepared(count: int, each: int) -> Iterator[Set]:
    with ExitStack() as stack:
        nodes = stack.enter_context(switched.nodes(count))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="preflight-")))
        data = folder / "data"
        data.mkdir()
        yield Set(nodes, each, folder, data)


def run(made: Set, python: Sequence[str] = (sys.executable,), more: Sequence[str] = ()) -> Ended:
    """Starts all ranks, as a launcher would, and waits for them."""
    begin = time.monotonic()
    running: dict[int, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryFile())
        errors = {}
        for rank in range(made.world):
            if rank not in made.absent:
                errors[rank] = stack.enter_context(tempfile.TemporaryFile())
                running[rank] = _start(made, rank, python, more, out if rank == 0 else None, errors[rank])
        codes: dict[int, int | None] = {rank: _wait(child, begin + LIMIT) for rank, child in running.items()}
        took = time.monotonic() - begin
        out.seek(0)
        answer = None
        with suppress(ValueError):
            answer = json.loads(out.read())
        said = {}
        for rank, file in errors.items():
            file.seek(0)
            said[rank] = file.read().decode("utf-8", "replace")
    return Ended(answer, codes, said, took)


def _start(
    made: Set, rank: int, python: Sequence[str], more: Sequence[str], out: Any, errors: Any
) -> subprocess.Popen[bytes]:
    node = rank // made.each
    told = made.ranks.get(rank, rank)
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "TORCHELASTIC_", "OMPI_"))
    }
    env |= {
        "RANK": str(told), "WORLD_SIZE": str(made.world), "LOCAL_RANK": str(rank % made.each), "LOCAL_WORLD_SIZE": str(made.each),
        "MASTER_ADDR": made.nodes.names[0], "MASTER_PORT": str(PORT), "PYTHONPATH": str(SOURCES),
    }  # fmt: skip
    own = dict(made.env.get(node, {}))
    if "PYTHONPATH" in own:
        own["PYTHONPATH"] = f"{own['PYTHONPATH']}:{SOURCES}"
    words = [*python, "-m", "whichrank.preflight", "--json", "--path", str(made.data), *made.options, *more]
    command = made.nodes.inside(node, *made.wrap.get(node, []), *words)
    return subprocess.Popen(
        command,
        env=env | own,
        stdin=subprocess.DEVNULL,
        stdout=out or subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )


def _wait(child: subprocess.Popen[bytes], until: float) -> int | None:
    try:
        return child.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        return None


def possible(fault: Fault) -> str | None:
    """Why this fault cannot be planted here, None if it can."""
    if fault.tool and shutil.which(fault.tool) is None:
        return f"{fault.tool} is not installed"
    if "storage" in fault.name and not Path("/dev/fuse").exists():
        return "no /dev/fuse"
    return None
