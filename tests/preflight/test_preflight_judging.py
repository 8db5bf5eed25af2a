"""What rank 0 makes of what the ranks say: plain values in, findings that name who, and what to do, out."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from whichrank.preflight import alike, collective, gather, reach, storage, unreached
from whichrank.preflight.answer import Finding
from whichrank.preflight.place import Place
from whichrank.preflight.roster import Roster, roster

GIB = 1 << 30
ROSTER = Roster({0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"})


def told(rank: int) -> dict[str, Any]:
    address = f"10.0.0.{rank // 2 + 1}"
    eth = {"name": "eth0", "addresses": [address], "mtu": 9000, "up": True, "speed": 100_000}
    return {
        "host": ROSTER.node_of(rank), "world": 6, "local_rank": rank % 2, "master": ["10.0.0.1"],
        "towards_master": address, "interfaces": [eth], "nccl": eth, "gloo": eth,
        "versions": {"python": "3.11.7", "torch": "2.13.0", "nccl": "2.29.2"}, "env": {"MASTER_ADDR": "a"},
        "limits": {"memlock": None, "nofile": 65536}, "rdma": {"mlx5_0/1": "ACTIVE, 400 Gb/sec (4X NDR)"}, "gpus": 0,
        "shm": {"total": 64 * GIB, "free": 60 * GIB}, "memory": 200 * GIB, "ports": ["32768", "60999"],
        "commit": "0123456789ab", "script": None, "late": [], "listening": [40000 + rank],
    }  # fmt: skip


def facts(**changed: Any) -> dict[int, dict[str, Any]]:
    """Of six ranks on three nodes; changed: of node c alone."""
    made = {rank: told(rank) for rank in range(6)}
    for rank in (4, 5):
        made[rank].update(deepcopy(changed))
    return made


def found(made: dict[int, dict[str, Any]], workers: tuple[int, int] | None = None) -> list[Finding]:
    return alike.judge(made, ROSTER, "nccl", workers)


def test_alike_is_no_finding() -> None:
    assert found(facts()) == []


LO = {"name": "lo", "addresses": ["127.0.0.1"], "mtu": 65536, "up": True, "speed": None}


@pytest.mark.parametrize(
    ("changed", "id", "grade", "word"),
    [
        ({"versions": {"python": "3.11.7", "torch": "2.4.0", "nccl": "2.29.2"}}, "version_torch", "stop", "2.4.0"),
        ({"versions": {"python": "3.11.7", "torch": "2.13.0"}}, "version_nccl", "stop", "not installed"),
        ({"versions": {"python": "3.11.9", "torch": "2.13.0", "nccl": "2.29.2"}}, "version_python", "warn", "3.11.9"),
        ({"versions": {"python": "3.12.1", "torch": "2.13.0", "nccl": "2.29.2"}}, "version_python", "stop", "3.12.1"),
        ({"env": {"MASTER_ADDR": "a", "NCCL_PROTO": "LL"}}, "variable_differs", "stop", "NCCL_PROTO"),
        ({"env": {"MASTER_ADDR": "a", "NCCL_DEBUG": "INFO"}}, "variable_differs", "note", "NCCL_DEBUG"),
        ({"env": {"MASTER_ADDR": "a", "OMP_NUM_THREADS": "1"}}, "variable_differs", "warn", "OMP_NUM_THREADS"),
        ({"world": 8}, "world_size", "stop", "8"),
        ({"master": ["127.0.1.1"]}, "master_loopback", "stop", "127.0.1.1"),
        ({"nccl": LO}, "loopback", "stop", "nccl"),
        ({"nccl": None, "env": {"NCCL_SOCKET_IFNAME": "ib9"}}, "no_interface", "stop", "ib9"),
        ({"limits": {"memlock": 8 << 20, "nofile": 65536}}, "memlock", "stop", "8 MiB"),
        ({"limits": {"memlock": None, "nofile": 1024}}, "nofile", "warn", "1024"),
        ({"rdma": {"mlx5_0/1": "DOWN, 400 Gb/sec (4X NDR)"}}, "rdma_port", "stop", "DOWN"),
        ({"rdma": {"mlx5_0/1": "ACTIVE, 100 Gb/sec (4X EDR)"}}, "rdma_port", "stop", "100 Gb/sec"),
        ({"rdma": {}}, "rdma_port", "stop", "not there"),
        ({"shm": {"total": 64 << 20, "free": 64 << 20}}, "shm", "stop", "64 MiB"),
        ({"shm": {"total": 64 << 30, "free": 1 << 20}}, "shm", "warn", "1 of"),
        ({"commit": "fedcba987654+"}, "commit", "stop", "fedcba987654+"),
        ({"late": ["git"]}, "no_answer", "warn", "git"),
    ],
)  # fmt: skip
def test_what_differs_is_named(changed: dict[str, Any], id: str, grade: str, word: str) -> None:
    one = next(one for one in found(facts(**changed)) if one.id == id)
    assert one.grade == grade
    assert one.nodes == ("c",) and one.ranks == (4, 5)
    assert word in one.says and "c" in one.says
    assert one.do


def test_of_two_kinds_that_are_equally_many_nobody_is_odd() -> None:
    made = {rank: told(rank) for rank in range(4)}
    for rank in (2, 3):
        made[rank]["versions"] = {**made[rank]["versions"], "torch": "2.4.0"}
    one = alike.judge(made, Roster({rank: ROSTER.node_of(rank) for rank in range(4)}), "nccl", None)[0]
    assert one.nodes == ("a", "b") and "the others" not in one.says


@pytest.mark.parametrize(
    "name", ["CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TORCHELASTIC_ERROR_FILE"]
)
def test_what_may_differ_does(name: str) -> None:
    assert not [one for one in found(facts(env={"MASTER_ADDR": "a", name: "eth0"})) if one.id == "variable_differs"]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("NCCL_TIMEOUT", "init_process_group"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_TIMOUT", "NCCL_IB_TIMEOUT"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SECS", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
        ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    ],
)
def test_variables_without_effect(name: str, word: str) -> None:
    made = facts()
    for one in made.values():
        one["env"][name] = "1"
    (one,) = found(made)
    assert one.id == "variable_without_effect" and one.grade == "warn"
    assert name in one.says and word in one.says


@pytest.mark.parametrize(
    "name", ["NCCL_SOMETHING_OF_A_PLUGIN", "NCCL_IB_HCA", "TORCH_NCCL_TRACE_BUFFER_SIZE", "NCCL_INSPECTOR_ENABLE"]
)
def test_variables_that_are_no_mistake(name: str) -> None:
    made = facts()
    for one in made.values():
        one["env"][name] = "1"
    assert found(made) == []


def test_memory_for_workers() -> None:
    (one,) = found(facts(memory=8 * GIB), (8, GIB))
    assert one.id == "memory" and one.nodes == ("c",) and "num_workers=3" in one.do


def results(answers: Callable[[int, int], str], other: str | None = None) -> dict[int, dict[str, dict[str, Any]]]:
    """What every rank found of every other one. answers: from rank, to rank -> result."""
    made: dict[int, dict[str, dict[str, Any]]] = {}
    for rank in range(6):
        for peer in range(6):
            if peer != rank:
                result = answers(rank, peer)
                one: dict[str, Any] = {"ports": {str(40000 + peer): result}}
                if result != "ok" and other:
                    one["other"] = other
                made.setdefault(rank, {})[str(peer)] = one
    return made


def reached(answers: Callable[[int, int], str], other: str | None = None) -> list[Finding]:
    return unreached.judge(results(answers, other), facts(), ROSTER, "nccl", 29500)


def test_everybody_reaches_everybody() -> None:
    assert reached(lambda a, b: "ok") == []


@pytest.mark.parametrize(("failed", "word"), [("silent", "no answer"), ("refused", "refused")])
def test_a_node_that_lets_nobody_in(failed: str, word: str) -> None:
    (one,) = reached(lambda a, b: failed if b in (4, 5) else "ok")
    assert (one.id, one.nodes) == ("blocked_in", ("c",))
    assert word in one.says and "29500" in one.says and "32768-60999" in one.do


def test_a_node_that_gets_nowhere() -> None:
    (one,) = reached(lambda a, b: "silent" if a in (4, 5) and b < 4 else "ok")
    assert (one.id, one.nodes) == ("blocked_out", ("c",))


def test_of_two_nodes_the_one_that_shuts_out_its_own_ranks_too() -> None:
    two = Roster({rank: ROSTER.node_of(rank) for rank in range(4)})
    made = {
        rank: {peer: one for peer, one in peers.items() if int(peer) < 4}
        for rank, peers in results(lambda a, b: "silent" if b in (2, 3) else "ok").items()
        if rank < 4
    }
    (one,) = unreached.judge(made, facts(), two, "nccl", 29500)
    assert (one.id, one.nodes) == ("blocked_in", ("b",))


def test_one_pair_of_nodes() -> None:
    (one,) = reached(lambda a, b: "silent" if {a // 2, b // 2} == {0, 2} else "ok")
    assert one.id == "blocked_pair" and set(one.nodes) == {"a", "c"}
    assert "each other" in one.says


def test_an_address_that_leads_nowhere_beside_one_that_does() -> None:
    (one,) = reached(lambda a, b: "silent" if b in (4, 5) and a < 4 else "ok", other="ok")
    assert (one.id, one.nodes) == ("wrong_interface", ("c",))
    assert "NCCL_SOCKET_IFNAME=eth0" in one.do


def test_a_connection_that_failed_once_is_no_fault() -> None:
    first = results(lambda a, b: "silent" if (a, b) == (0, 4) else "ok")
    second = {0: results(lambda a, b: "silent" if (a, b) == (0, 2) else "ok")[0]}
    assert reach.failing(first) == [0]
    assert unreached.judge(reach.better(first, second), facts(), ROSTER, "nccl", 29500) == []
    assert unreached.judge(reach.better(first, {}), facts(), ROSTER, "nccl", 29500)


def test_large_packets() -> None:
    (one,) = reached(lambda a, b: "stalled" if 2 in (a // 2, b // 2) and a // 2 != b // 2 else "ok")
    assert (one.id, one.nodes) == ("large_packets_lost", ("c",))


def test_a_clock_that_is_off() -> None:
    made = results(lambda a, b: "ok")
    for rank in (0, 1):
        for peer in ("4", "5"):
            made[rank][peer]["ahead"] = 7.5
    (one,) = unreached.judge(made, facts(), ROSTER, "nccl", 29500)
    assert (one.id, one.grade, one.nodes) == ("clock", "warn", ("c",))
    assert "7.5 s ahead" in one.says


def test_a_rank_without_a_result() -> None:
    made = results(lambda a, b: "ok")
    del made[3]
    (one,) = unreached.judge(made, facts(), ROSTER, "nccl", 29500)
    assert (one.id, one.ranks) == ("no_result", (3,))


TOOK = {"look": 1e-4, "create": 1e-3, "write": 0.02, "fsync": 0.01, "read": 0.01, "metadata": 1e-5, "remove": 1e-4}


def stored(**changed: Any) -> list[Finding]:
    """changed: of node c alone."""
    made = {
        rank: {"/d": {"took": dict(TOOK), "kind": "ext4", "source": "/dev/sda", "free": 50, "total": 100}}
        for rank in range(6)
    }
    for rank in (4, 5):
        took = {**TOOK, **changed.get("took", {})}
        made[rank]["/d"].update({**changed, "took": took})
    return storage.judge(made, ROSTER, 12)


def test_storage_that_is_alike() -> None:
    assert stored() == []


@pytest.mark.parametrize(
    ("changed", "id", "grade", "word"),
    [
        ({"took": {"metadata": 0.3}}, "storage_outlier", "stop", "300 ms"),
        ({"took": {"write": 5.0}}, "storage_outlier", "stop", "MB/s"),
        ({"hung": "fsync"}, "storage_hangs", "stop", "fsync"),
        ({"error": "No space left on device", "operation": "write"}, "storage_error", "stop", "No space left"),
        ({"free": 1}, "storage_full", "warn", "nearly full"),
        ({"kind": "nfs4", "source": "srv:/d"}, "storage_differs", "warn", "nfs4"),
    ],
)
def test_storage_of_one_node(changed: dict[str, Any], id: str, grade: str, word: str) -> None:
    (one,) = stored(**changed)
    assert (one.id, one.grade, one.nodes, one.ranks) == (id, grade, ("c",), (4, 5))
    assert word in one.says and one.do


def test_a_hiccup_of_storage_is_no_outlier() -> None:
    assert stored(took={"metadata": 0.004, "fsync": 0.3, "write": 0.2}) == []


def test_what_was_slow_once_is_not_slow() -> None:
    quick, late = {"took": dict(TOOK)}, {"took": {**TOOK, "fsync": 30.0}}
    first: dict[int, dict[str, dict[str, Any]]] = {rank: {"/d": late if rank == 5 else quick} for rank in range(6)}
    second: dict[int, dict[str, dict[str, Any]]] = {rank: {"/d": late if rank == 1 else quick} for rank in range(6)}
    assert storage.suspicious(first, ROSTER) and storage.suspicious(second, ROSTER)
    assert storage.judge(storage.better(first, second), ROSTER, 12) == []
    (one,) = storage.judge(storage.better(first, first), ROSTER, 12)
    assert one.ranks == (5,)
    hung = {**second, 2: {"/d": {"took": {}, "hung": "read"}}}
    assert [found.id for found in storage.judge(storage.better(first, hung), ROSTER, 12)] == ["storage_hangs"]


def test_storage_that_is_slow_everywhere() -> None:
    made = {rank: {"/d": {"took": {**TOOK, "metadata": 2.0}}} for rank in range(6)}
    (one,) = storage.judge(made, ROSTER, 12)
    assert one.id == "storage_slow" and "all ranks" in one.says


def came(ranks: list[tuple[int, str]], world: int = 6) -> gather.Came:
    made = gather.Came(world)
    for ticket, (rank, host) in enumerate(ranks, 1):
        made.tickets[ticket] = {
            "rank": rank,
            "host": host,
            "key": host,
            "pid": 100 + ticket,
            "local_world": 2,
            "local_rank": rank % 2,
        }
    return made


PLACE = Place(0, 6, 0, 2, "a", 29500, "slurm", "", nodes=("a", "a", "b", "b", "c", "c"))
ALL = [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "c")]


def gathered(ranks: list[tuple[int, str]], place: Place = PLACE) -> list[Finding]:
    made = came(ranks)
    return list(gather.judge(made, place, roster(gather.accepted(made)), 30))


def test_all_came() -> None:
    assert gathered(ALL) == []


def test_a_node_is_missing_by_name() -> None:
    (one,) = gathered(ALL[:4])
    assert (one.ranks, one.nodes) == ((4, 5), ("c",))
    assert "Ranks 4, 5 never came" in one.says and "on c" in one.do


def test_a_rank_of_a_node_that_is_there() -> None:
    (one,) = gathered([ALL[0], *ALL[2:]], Place(0, 6, 0, 2, "a", 29500, "torchrun", ""))
    assert (one.ranks, one.nodes) == ((1,), ("a",))


def test_a_node_without_a_name() -> None:
    (one,) = gathered(ALL[:4], Place(0, 6, 0, 2, "a", 29500, "torchrun", ""))
    assert "number 2" in one.says and "beside b" in one.says


def test_twice_and_beyond() -> None:
    found = gathered([*ALL, (4, "d"), (9, "e")])
    assert [(one.id, one.ranks) for one in found] == [("twice", (4,)), ("beyond_world", (9,))]
    assert set(found[0].nodes) == {"c", "d"}


def swept(**changed: Any) -> list[Finding]:
    """changed: of rank 4 alone."""
    made: dict[int, dict[str, Any]] = {rank: {"stage": "done", "rows": {}, "late": False} for rank in range(6)}
    made[4] |= changed
    return collective.failures(made, ROSTER, "gloo", 30)


def test_collectives_that_come_through() -> None:
    assert swept() == []


def test_a_collective_that_hangs_on_one_rank() -> None:
    (one,) = swept(stage="init_process_group", late=True)
    assert (one.grade, one.ranks) == ("stop", (4,)) and "init_process_group" in one.says


def test_an_error_of_its_own_outweighs_those_that_waited() -> None:
    made: dict[int, dict[str, Any]] = {
        rank: {
            "stage": "first all_reduce",
            "rows": {},
            "late": False,
            "error": "Connection closed by peer [10.0.0.3]:1",
        }
        for rank in range(6)
    }
    made[4]["error"] = "No module named numpy"
    (one,) = collective.failures(made, ROSTER, "gloo", 30)
    assert one.ranks == (4,) and "numpy" in one.says


def test_a_slow_import_is_no_fault() -> None:
    assert [one.grade for one in swept(stage="importing torch", late=True)] == ["warn"]
