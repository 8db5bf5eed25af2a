"""TCPStore, rendezvous and the store based barrier."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import essence, facts_of, survivors

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 4/8 clients joined.", "store_timeout", {"seconds": 601, "joined": 4, "expected": 8}),
    ("torch.distributed.DistStoreError: wait timeout after 2000ms, keys: /k", "store_timeout", {"seconds": 2, "keys": ["/k"]}),
    ("[rank3]: torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout", "store_timeout", {"group_rank": 3, "from_rank": 0, "key": 0, "error": "Socket Timeout"}),
    ("RuntimeError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key 'default_pg/0//cuda//0', but store->get('default_pg/0//cuda//0') got error: wait timeout after 600000ms, keys: /x. This may indicate a possible application crash on rank 0 or a network set up issue.", "store_timeout", {"group_rank": 3, "from_rank": 0, "key": "default_pg/0//cuda//0"}),
    ("[E socket.cpp:793] [c10d] The client socket has timed out after 60s while trying to connect to (10.5.41.9, 3456).", "connect_timeout", {"address": "10.5.41.9", "port": 3456, "seconds": 60}),
    ("[rank4]: torch.distributed.DistNetworkError: The client socket has timed out after 5000ms while trying to connect to (nd-a.lab, 41237).", "connect_timeout", {"address": "nd-a.lab", "port": 41237, "seconds": 5}),
    ("[W socket.cpp:601] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 111 - Connection refused).", "connect_failed", {"address": "localhost", "port": 29500, "error": "Connection refused"}),
    ("[W socket.cpp:601] [c10d] The client socket has failed to connect to [fd00::1]:29500 (errno: 113 - No route to host).", "connect_failed", {"address": "fd00::1", "port": 29500, "error": "No route to host"}),
    ("[E socket.cpp:1] [c10d] The client socket has failed to connect to any network address of (nd-a, 29500). Will retry", "connect_failed", {"address": "nd-a", "port": 29500}),
    ("[W1006 07:50:26.6 TCPStore.cpp:302] [c10d] TCP client failed to connect/validate to host nd-a.lab:41237 - retrying (try=2, timeout=600000ms, delay=1232ms): recv got 0 bytes", "connect_retry", {"address": "nd-a.lab", "port": 41237, "attempt": 2}),
    ("[W1006 07:40:24.2 socket.cpp:764] [c10d] The IPv6 network addresses of (nd-a.lab, 41237) cannot be retrieved (gai error: -5 - No address associated with hostname).", "gai_warning", {"address": "nd-a.lab", "port": 41237, "code": -5, "family": "IPv6"}),
    ("socket.gaierror: [Errno -2] Name or service not known", "gai_warning", {"code": -2, "error": "Name or service not known"}),
    ("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.", "rendezvous_error", {"type": "RendezvousConnectionError", "text": "The connection to the C10d store has failed. See inner exception for details."}),
    ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "rendezvous_error", {"type": "RendezvousTimeoutError", "text": None}),
    ("torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "rendezvous_error", {"type": "RendezvousClosedError"}),
    ("INFO:root:Waiting in store based barrier to initialize process group for rank: 3, key: store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)", "store_barrier", {"world_size": 8, "worker_count": 16, "timed_out": None, "group_rank": 3}),
    ("INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 (world_size=16, num_workers_joined=8, timeout=0:30:00)", "store_barrier", {"world_size": 16, "joined": 8}),
    ("INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for 10 seconds rank: 0, key: store_based_barrier_key:1 (world_size=16, num_workers_joined=8, timeout=0:30:00)", "store_barrier", {"world_size": 16, "joined": 8}),
    ("RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)", "store_barrier", {"world_size": 8, "worker_count": 16, "timed_out": True}),
    ("[E socket.cpp:435] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", "addr_in_use", {"port": 29500}),
    ("RuntimeError: The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address already in use).", "addr_in_use", {"port": 29500}),
    ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", "addr_in_use", {"port": 29500}),
    ("OSError: [Errno 98] Address already in use", "addr_in_use", {"port": None}),
    ("[rank0]:[W704 09:13:12.7 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=71, addr=[ra-01]:41812, remote=[ra-01]:29400): Connection reset by peer", "store_lost", {"call": "recvValue", "address": "ra-01", "port": 29400, "error": "Connection reset by peer"}),
    ("[rank0]:[W704 09:13:12.7 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=71, addr=[::ffff:10.0.0.2]:41812, remote=[::ffff:10.0.0.1]:29400): Broken pipe", "store_lost", {"call": "sendBytes", "address": "::ffff:10.0.0.1", "port": 29400, "error": "Broken pipe"}),
    ('[rank0]:[W704 09:13:12.7 ProcessGroupNCCL.cpp:1659] [PG ID 0 PG GUID 0(default_pg) Rank 0] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe', "store_lost", {"error": "Broken pipe"}),
    ("torch.distributed.DistNetworkError: failed to recv, got 0 bytes", "store_lost", {}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "values"), CASES)
def test_line(line: str, kind: str, values: dict[str, Any]) -> None:
    found = [fact for fact in facts_of(line) if fact.kind == kind]
    fact = next(fact for fact in found if {name: fact[name] for name in values} == values)
    if line.startswith("[rank"):
        assert fact.rank == int(line[5])


def test_nothing_from_sources_and_nccl() -> None:
    text = 'from torch.distributed.elastic.rendezvous import RendezvousConnectionError\n  raise RendezvousTimeoutError()\n      "message": "RendezvousConnectionError: x",\n'
    assert not [fact for fact in facts_of(text) if fact.kind == "rendezvous_error"]


@given(st.integers(0, 2**32))
def test_other_lines_do_not_matter(seed: int) -> None:
    lines = [case[0] for case in CASES[::3]]
    assert survivors(lines, seed) >= {
        repr(essence(fact)) for fact in facts_of("\n".join(lines)) if fact.kind != "exception"
    }
