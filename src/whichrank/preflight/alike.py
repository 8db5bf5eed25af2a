"""What the ranks say of themselves, compared: what has to be the same everywhere, and what cannot work as it is."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from whichrank.preflight import variables
from whichrank.preflight.answer import Finding, names_text
from whichrank.preflight.roster import Roster

MIB, GIB = 1 << 20, 1 << 30
Facts = Mapping[int, Mapping[str, Any]]
# A difference in these makes ranks wait for each other in different calls, or talk different protocols.
HARMFUL = ("NCCL_", "GLOO_", "TORCH_DISTRIBUTED_DEBUG", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_USE_COMM_NONBLOCKING",
           "WORLD_SIZE", "MASTER_PORT", "RCCL_", "FI_", "OFI_", "LD_PRELOAD", "TORCH_GLOO_LAZY_INIT")  # fmt: skip
HARMLESS = (
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_INSPECTOR_",
    "NCCL_PROFILE",
)
MINOR = ("numpy", "whichrank", "driver")  # versions that may differ without a hang
CODE = {"commit": "git commit of the working folder", "script": "hash of the training script"}


def judge(facts: Facts, roster: Roster, backend: str, workers: tuple[int, int] | None) -> list[Finding]:
    """workers: DataLoader workers of each rank, and bytes that each needs; None: not told."""
    parts: tuple[Iterator[Finding], ...] = (
        _versions(facts, roster),
        _code(facts, roster),
        _variables(facts, roster),
        _world(facts, roster),
        _master(facts, roster),
        _interfaces(facts, roster, backend),
        _limits(facts, roster),
        _rdma(facts, roster),
        _memory(facts, roster, workers),
        _late(facts, roster),
    )
    return [finding for part in parts for finding in part]


def _groups(facts: Facts, value: Callable[[Mapping[str, Any]], Any]) -> list[tuple[Any, list[int]]]:
    """Values with their ranks, the most frequent first."""
    found: dict[Any, list[int]] = {}
    for rank in sorted(facts):
        found.setdefault(value(facts[rank]), []).append(rank)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1]))


def _tied(groups: list[tuple[Any, list[int]]]) -> bool:
    """No value is more frequent than the others: nobody can say who is odd."""
    return len(groups) > 1 and len(groups[0][1]) == len(groups[1][1])


def _told(groups: list[tuple[Any, list[int]]], roster: Roster, absent: str = "none") -> str:
    """ "2.4.0 on node-c (ranks 4, 5); 2.13.0 on the others": the odd ones first."""
    if _tied(groups):
        return "; ".join(
            f"{absent if value is None else value} on {roster.where(ranks)}" for value, ranks in groups[:4]
        )
    odd = [f"{absent if value is None else value} on {roster.where(ranks)}" for value, ranks in groups[1:]]
    usual = groups[0][0]
    return (
        f"{', '.join(odd[:4])}; {absent if usual is None else usual} on {'the others' if len(groups) < 6 else 'most'}"
    )


def _odd(groups: list[tuple[Any, list[int]]]) -> tuple[int, ...]:
    return tuple(rank for _, ranks in groups[0 if _tied(groups) else 1 :] for rank in ranks)


def _finding(grade: Any, id: str, says: str, do: str, roster: Roster, ranks: tuple[int, ...]) -> Finding:
    return Finding("settings", grade, id, says, do, roster.nodes_of(ranks), ranks)


def _versions(facts: Facts, roster: Roster) -> Iterator[Finding]:
    names = dict.fromkeys(name for told in facts.values() for name in told["versions"])
    for name in names:
        groups = _groups(facts, lambda told, name=name: told["versions"].get(name))  # type: ignore[misc]
        if len(groups) < 2:
            continue
        grade = "note" if name == "kernel" else "warn" if name in MINOR or _patch_only(name, groups) else "stop"
        where = "every node" if _tied(groups) else f"{names_text(roster.nodes_of(_odd(groups)))} as on the others"
        do = f"install the same {name} on {where}, or start the job from one image"
        yield _finding(
            grade, f"version_{name}", f"{name} is not the same everywhere: {_told(groups, roster, 'not installed')}.",
            do if name != "kernel" else "nothing, unless only these nodes make trouble", roster, _odd(groups),
        )  # fmt: skip


def _patch_only(name: str, groups: list[tuple[Any, list[int]]]) -> bool:
    """Pythons of one minor version read each other's pickles and packages."""
    return name == "python" and len({str(value).rpartition(".")[0] for value, _ in groups}) == 1


def _code(facts: Facts, roster: Roster) -> Iterator[Finding]:
    for name, called in CODE.items():
        groups = _groups(facts, lambda told, name=name: told[name])  # type: ignore[misc]
        unread = [ranks for value, ranks in groups if str(value).startswith("cannot be read")]
        if len(groups) > 1 or unread:
            odd = _odd(groups) or tuple(unread[0])
            yield _finding(
                "stop", name, f"The {called} is not the same everywhere: {_told(groups, roster)}." if len(groups) > 1
                else f"The training script {groups[0][0]}.",
                f"bring the code on {names_text(roster.nodes_of(odd))} to the same state (git pull, or one shared folder), "
                "then run this again", roster, odd,
            )  # fmt: skip


def _variables(facts: Facts, roster: Roster) -> Iterator[Finding]:
    by_rank = {rank: told["env"] for rank, told in facts.items()}
    for name, values in variables.differing(by_rank).items():
        if name in ("MASTER_ADDR", "WORLD_SIZE"):
            continue  # compared as numbers and addresses below
        groups = sorted(values.items(), key=lambda item: -len(item[1]))
        harm = name.startswith(HARMFUL) and not name.startswith(HARMLESS)
        yield _finding(
            "stop" if harm else "note" if name.startswith(HARMLESS) else "warn",
            "variable_differs",
            f"{name} is not the same everywhere: {_told(groups, roster, 'not set')}.",
            f"set {name} alike on every rank, in the launcher's environment rather than in a node's own profile",
            roster, _odd(groups),
        )  # fmt: skip
    for doubt in variables.doubts({name for env in by_rank.values() for name in env}):
        ranks = tuple(rank for rank, env in by_rank.items() if doubt.name in env)
        yield _finding(
            "warn", "variable_without_effect", f"{doubt.name} is set on {roster.where(ranks)} and does nothing: {doubt.says}.",
            f"set {doubt.near} instead, or remove {doubt.name}" if doubt.near else f"remove {doubt.name}, and set what its line names",
            roster, ranks,
        )  # fmt: skip


def _world(facts: Facts, roster: Roster) -> Iterator[Finding]:
    groups = _groups(facts, lambda told: told["world"])
    if len(groups) > 1:
        yield _finding(
            "stop", "world_size", f"WORLD_SIZE is not the same everywhere: {_told(groups, roster)}.",
            "start every node with the same number of nodes and ranks for each (torchrun: --nnodes, --nproc-per-node)",
            roster, _odd(groups),
        )  # fmt: skip


def _loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _looped_only(addresses: Iterable[str]) -> bool:
    return all(map(_loopback, addresses))


def _master(facts: Facts, roster: Roster) -> Iterator[Finding]:
    """Each node may know the first one by an address of its own; loopback is the first one's alone."""
    first = facts.get(0)
    home = roster.node_of(0)
    for node in roster.names:
        told = facts[roster.leader(node)]
        looped = [address for address in told["master"] if _loopback(address)]
        if looped and node != home:
            yield _finding(
                "stop", "master_loopback", f"MASTER_ADDR resolves to {looped[0]} on {node}, which is {node} itself.",
                f"set MASTER_ADDR to an address of {home} that {node} can reach, or correct /etc/hosts on {node}",
                roster, tuple(roster.ranks_of(node)),
            )  # fmt: skip
    if first and first["master"]:
        own = {address for one in first["interfaces"] for address in one["addresses"]}
        if not _looped_only(first["master"]) and not own & {address.partition("%")[0] for address in first["master"]}:
            yield _finding(
                "warn", "master_elsewhere", f"MASTER_ADDR resolves to {first['master'][0]} on {home}, which is none of its own addresses ({names_text(sorted(own))}).",
                f"set MASTER_ADDR to {home}, where rank 0 runs", roster, (0,),
            )  # fmt: skip


def _interfaces(facts: Facts, roster: Roster, backend: str) -> Iterator[Finding]:
    several = len(roster.names) > 1
    for node in roster.names:
        told = facts[roster.leader(node)]
        ranks = tuple(roster.ranks_of(node))
        for library in ("nccl", "gloo"):
            variable = f"{library.upper()}_SOCKET_IFNAME"
            grade = "stop" if library == backend else "warn"
            chosen, given = told[library], told["env"].get(variable)
            if chosen is None and (given or library == backend):
                yield _finding(
                    grade, "no_interface", f"{variable}={given} on {node} names no interface that is up and has an address."
                    if given else f"{node} has no network interface that {library} would take.",
                    f"set {variable} to one of those of {node}: {_those(told)}", roster, ranks,
                )  # fmt: skip
            elif chosen and several and chosen["name"] == "lo" and (library == backend or library == "gloo"):
                why = f"{variable}={given}" if given else f"its own name resolves to {chosen['addresses'][0]}"
                yield _finding(
                    grade, "loopback", f"{library} on {node} would listen on loopback ({why}): no other node reaches it.",
                    f"set {variable} to one of those of {node}: {_those(told)}; or correct {node}'s own name in /etc/hosts",
                    roster, ranks,
                )  # fmt: skip
    mtus = {node: _mtu(facts[roster.leader(node)], backend) for node in roster.names}
    counts = Counter(mtu for mtu in mtus.values() if mtu)
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        odd = [node for node, mtu in mtus.items() if mtu and mtu != usual]
        yield Finding(
            "settings", "warn", "mtu", f"The MTU is not the same everywhere: {', '.join(f'{node} {mtus[node]}' for node in odd[:6])}; {usual} on the others.",
            f"set the same MTU on both ends of a link (ip link set dev … mtu {usual}), and on the switch", tuple(odd),
        )  # fmt: skip


def _mtu(told: Mapping[str, Any], backend: str) -> int | None:
    chosen = told[backend]
    return None if chosen is None or chosen["name"] == "lo" else chosen["mtu"]


def _those(told: Mapping[str, Any]) -> str:
    those = [
        f"{one['name']} ({one['addresses'][0]})" for one in told["interfaces"] if one["name"] != "lo" and one["up"]
    ]
    return names_text(those) or "none but lo is up"


def _limits(facts: Facts, roster: Roster) -> Iterator[Finding]:
    for name, enough, id in (("memlock", None, "memlock"), ("nofile", 4096, "nofile")):
        low = tuple(
            rank
            for rank, told in facts.items()
            if (value := told["limits"][name]) is not None
            and (value < enough if enough else bool(told["rdma"]) and value < 16 * GIB)
        )
        if low:
            value = min(facts[rank]["limits"][name] for rank in low)
            shown = f"{value // MIB} MiB" if name == "memlock" else value
            yield _finding(
                "stop" if name == "memlock" else "warn", id,
                f"The limit {name} is {shown} on {roster.where(low)}: "
                + ("registering memory for RDMA fails." if name == "memlock" else "many ranks and workers need more open files."),
                "ulimit -l unlimited (limits.conf, LimitMEMLOCK= of slurmd, --ulimit memlock=-1 of docker)"
                if name == "memlock" else "ulimit -n 65536 before the launcher", roster, low,
            )  # fmt: skip
    small = tuple(rank for rank, told in facts.items() if told["shm"] and told["shm"]["total"] <= 128 * MIB)
    full = tuple(
        rank for rank, told in facts.items() if told["shm"] and rank not in small and told["shm"]["free"] < GIB
    )
    for grade, ranks in (("stop", small), ("warn", full)):
        if ranks:
            shm = facts[ranks[0]]["shm"]
            yield _finding(
                grade, "shm", f"/dev/shm has {shm['free'] // MIB} of {shm['total'] // MIB} MiB free on {roster.where(ranks)}: "
                "NCCL and DataLoader workers pass data through it.",
                "docker --shm-size=16g or --ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm; else remove what "
                "lies in it", roster, ranks,
            )  # fmt: skip


def _rdma(facts: Facts, roster: Roster) -> Iterator[Finding]:
    """Ports by name: one that is down or slower on few nodes, while it is up on the others."""
    told = {node: facts[roster.leader(node)]["rdma"] for node in roster.names}
    for port in dict.fromkeys(port for ports in told.values() for port in ports):
        states = Counter(ports.get(port) for ports in told.values())
        usual, count = states.most_common(1)[0]
        odd = tuple(node for node, ports in told.items() if ports.get(port) != usual)
        if not odd or usual is None or 2 * count <= len(told) or not usual.startswith("ACTIVE"):
            continue
        shown = ", ".join(f"{told[node].get(port) or 'not there'} on {node}" for node in odd[:4])
        yield Finding(
            "settings", "stop", "rdma_port", f"Port {port} is {shown}; {usual} on the others.",
            f"ibstat and ibv_devinfo on {names_text(odd)}: cable, switch port; or leave {'it' if len(odd) == 1 else 'them'} out, or out of NCCL_IB_HCA",
            odd, tuple(rank for node in odd for rank in roster.ranks_of(node)),
        )  # fmt: skip


def _memory(facts: Facts, roster: Roster, workers: tuple[int, int] | None) -> Iterator[Finding]:
    if workers is None:
        return
    count, each = workers
    for node in roster.names:
        ranks = tuple(roster.ranks_of(node))
        left = facts[ranks[0]]["memory"]
        needed = len(ranks) * count * each
        if left is not None and needed > left:
            fits = int(left * 0.8 // (len(ranks) * each))
            yield _finding(
                "stop", "memory", f"{len(ranks)} ranks x {count} DataLoader workers x {each / GIB:.1f} GiB = {needed / GIB:.0f} GiB "
                f"are more than the {left / GIB:.0f} GiB that {node} has left.",
                f"num_workers={max(0, fits)}, or a higher memory limit for the job on {node}", roster, ranks,
            )  # fmt: skip


def _late(facts: Facts, roster: Roster) -> Iterator[Finding]:
    for what in dict.fromkeys(what for told in facts.values() for what in told["late"]):
        ranks = tuple(rank for rank, told in facts.items() if what in told["late"])
        yield _finding(
            "warn", "no_answer", f"Asked for {what}, {roster.where(ranks)} got no answer in some seconds.",
            "look whether a name server or file system hangs there (getent hosts NAME, ls of the working folder)", roster, ranks,
        )  # fmt: skip
