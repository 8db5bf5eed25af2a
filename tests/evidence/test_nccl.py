"""NCCL's lines, version by version."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import NOISE, disturbed, essence, facts_of, one

INFO = "gx-7:4071:4095 [3] NCCL INFO "
WARN = "gx-7:4071:4095 [3] transport/net_ib.cc:93 NCCL WARN "
WARN_230 = "[2026-07-04 09:13:05] gx-7:4071:4095 [3] transport/net_ib/p2p.cc:93 (ncclIbTest) NCCL WARN "

SAMPLES: list[tuple[str, str, dict[str, Any]]] = [
    # --- init
    (
        INFO + "comm 0x55d6 rank 5 nranks 8 cudaDev 5 busId 9b000 - Init COMPLETE",
        "init_complete",
        {"rank_in_comm": 5, "nranks": 8, "comm": "0x55d6", "cuda_dev": 5, "bus_id": "9b000", "comm_id": None},
    ),
    (
        INFO + "comm 0x55d6 rank 5 nranks 8 cudaDev 5 nvmlDev 5 busId 19000 commId 0x0f3c - Init START",
        "init_start",
        {
            "rank_in_comm": 5,
            "nranks": 8,
            "comm": "0x55d6",
            "cuda_dev": 5,
            "nvml_dev": 5,
            "bus_id": "19000",
            "comm_id": "0x0f3c",
        },
    ),
    (
        INFO
        + "ncclCommInitRankConfig comm 0x55d6 rank 5 nranks 8 cudaDev 5 nvmlDev 5 busId 9b000 commId 0x0f3c - Init COMPLETE",
        "init_complete",
        {"rank_in_comm": 5, "comm_id": "0x0f3c"},
    ),
    (
        INFO
        + "ncclCommSplit comm 0x55d7 rank 1 nranks 4 cudaDev 5 nvmlDev 5 busId 9b000 parent 0x55d6 splitCount 2 color 1734 key 1 - Init START",
        "init_start",
        {"rank_in_comm": 1, "nranks": 4, "parent": "0x55d6", "comm": "0x55d7"},
    ),
    (
        INFO
        + "ncclCommSplit comm 0x55d7 rank 1 nranks 4 cudaDev 5 nvmlDev 5 busId 9b000 parent 0x55d6 childCount 2 color 1734 key 1- Init START",
        "init_start",
        {"rank_in_comm": 1},
    ),
    (
        INFO
        + "[Rank 5] ncclCommInitRank comm 0x55d6 rank 5 nranks 8 cudaDev 5 nvmlDev 5 busId 9b000 commId 0x0f3c - Init START",
        "init_start",
        {"rank_in_comm": 5, "comm_id": "0x0f3c"},
    ),
    (
        INFO + "comm 0x55d6 rank 2 nRanks 4 nNodes 1 localRanks 4 localRank 2 MNNVL 0",
        "init_start",
        {"rank_in_comm": 2, "nranks": 4, "nnodes": 1, "local_ranks": 4, "local_rank_in_comm": 2},
    ),
    (
        INFO + "comm 0x55d6 rank 5 nranks 8 cudaDev 5 busId 9b000 - Abort COMPLETE",
        "abort",
        {"rank_in_comm": 5, "comm": "0x55d6"},
    ),
    (
        INFO + "comm 0x55d6 rank 5 nRanks 8 cudaDev 5 busId 9b000 - Destroy COMPLETE",
        "destroy",
        {"rank_in_comm": 5, "comm": "0x55d6"},
    ),
    ("NCCL version 2.21.5+cuda12.4", "nccl_version", {"version": "2.21.5", "cuda": "12.4"}),
    (INFO + "NCCL version 2.27.5+cuda12.9", "nccl_version", {"version": "2.27.5", "cuda": "12.9"}),
    ("RCCL version 2.18.6+hip6.0 HEAD:0f2e48a+", "nccl_version", {"version": "2.18.6", "cuda": "6.0"}),
    ("RCCL version : 2.22.3-HEAD:1a2b", "nccl_version", {"version": "2.22.3"}),
    (INFO + "cudaDriverVersion 12040", "config", {"name": "cudaDriverVersion", "value": 12040}),
    (INFO + "NCCL_IB_GID_INDEX set by environment to 3.", "env_set", {"name": "NCCL_IB_GID_INDEX", "value": 3}),
    (
        INFO + "NCCL_SOCKET_IFNAME set by environment to =ens3f0",
        "env_set",
        {"name": "NCCL_SOCKET_IFNAME", "value": "=ens3f0"},
    ),
    (INFO + "NCCL_IB_HCA set to mlx5_0,mlx5_1", "env_set", {"name": "NCCL_IB_HCA", "value": "mlx5_0,mlx5_1"}),
    # --- transport
    (INFO + "Bootstrap : Using eth0:10.0.0.1<0>", "bootstrap_using", {"interface": "eth0", "address": "10.0.0.1"}),
    (INFO + "Bootstrap: Using ens4:10.31.0.6<0>", "bootstrap_using", {"interface": "ens4", "address": "10.31.0.6"}),
    (
        INFO + "Bootstrap : Using ib0:fe80::ba59:9f03%ib0<0>",
        "bootstrap_using",
        {"interface": "ib0", "address": "fe80::ba59:9f03%ib0"},
    ),
    (
        INFO + "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_2:1/IB [RO]; OOB ens4:10.31.0.6<0>",
        "net_using",
        {"transport": "IB", "devices": "[0]mlx5_0:1/IB [1]mlx5_2:1/IB", "interface": "ens4", "address": "10.31.0.6"},
    ),
    (
        INFO + "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB bond0:192.168.40.21<0>",
        "net_using",
        {"transport": "RoCE", "devices": "[0]mlx5_0:1/RoCE", "interface": "bond0"},
    ),
    (
        INFO + "NET/Socket : Using [0]eth0:10.8.112.45<0> [1]eth1:10.9.0.4<0>",
        "net_using",
        {"transport": "Socket", "interface": "eth0", "address": "10.8.112.45"},
    ),
    (INFO + "Using network IBext_v8", "net_using", {"transport": "IBext_v8"}),
    (INFO + "Using network AWS Libfabric", "net_using", {"transport": "AWS Libfabric"}),
    (INFO + "Assigned NET plugin Socket to comm", "net_using", {"transport": "Socket"}),
    (INFO + "NET/OFI Selected Provider is efa (found 4 nics)", "net_using", {"transport": "efa"}),
    (INFO + "NET/IB : No device found.", "no_ib_device", {}),
    (
        INFO + "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
        "net_plugin",
        {"plugin": "none"},
    ),
    (
        INFO
        + "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No plugin found (libnccl-net.so), using internal implementation",
        "net_plugin",
        {"plugin": "none"},
    ),
    (INFO + "NET/Plugin: Using internal network plugin.", "net_plugin", {"plugin": "none"}),
    (
        INFO + "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "net_plugin",
        {"plugin": "none"},
    ),
    (INFO + "NET/Plugin: Could not find: libnccl-net.so.", "net_plugin", {"plugin": "none"}),
    (INFO + "NET/Plugin: Loaded net plugin Libfabric (v9)", "net_plugin", {"plugin": "Libfabric"}),
    (
        INFO + "Plugin Path : /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
        "net_plugin",
        {"plugin": "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"},
    ),
    (INFO + "P2P plugin v8 IBext_v8", "net_plugin", {"plugin": "IBext_v8"}),
    (
        INFO + "Successfully loaded external network plugin libnccl-net-ofi.so",
        "net_plugin",
        {"plugin": "libnccl-net-ofi.so"},
    ),
    (INFO + "NET/OFI Initializing aws-ofi-nccl 1.13.2-aws", "net_plugin", {"plugin": "aws-ofi-nccl 1.13.2-aws"}),
    (
        INFO + "NET/IB : mlx5_0:1 speed change detected: 400000 -> 100000 Mbps",
        "speed_change",
        {"device": "mlx5_0:1", "from_mbps": 400000, "to_mbps": 100000},
    ),
    # --- InfiniBand
    (
        WARN + "NET/IB : Got completion from peer 10.61.4.11<51847> with error 12, opcode 0, len 0, vendor err 129",
        "ib_error",
        {"peer": "10.61.4.11", "peer_port": 51847, "status": 12, "vendor_err": 129},
    ),
    (
        WARN
        + "NET/IB : Got completion from peer 10.61.4.11<51847> with error 12, opcode 1, len 0, vendor err 129 (Send) localGid fe80::1 remoteGids fe80::2",
        "ib_error",
        {"status": 12, "vendor_err": 129},
    ),
    (
        WARN
        + "NET/IB : Got completion from peer 192.168.40.22<41655> with status=9 opcode=0 len=0 vendor err 138 (Send) localGid ::ffff:192.168.40.21 remoteGids::ffff:192.168.40.22",
        "ib_error",
        {"peer": "192.168.40.22", "status": 9, "vendor_err": 138, "device": None},
    ),
    (
        WARN
        + "NET/IB: Got completion from peer 10.0.0.2<41655> with status=12 opcode=0 len=0 vendor err 129 (Recv) hca mlx5_3",
        "ib_error",
        {"peer": "10.0.0.2", "status": 12, "vendor_err": 129, "device": "mlx5_3"},
    ),
    (
        WARN_230
        + "NET/IB: Got completion from peer fe80::5<41655> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 localGid fe80::1 remoteGids fe80::5 hca mlx5_3",
        "ib_error",
        {"peer": "fe80::5", "status": 12, "vendor_err": 129, "device": "mlx5_3"},
    ),
    (
        WARN
        + "NET/IBP: Got completion from peer 10.0.0.2<41655> with status=5 opcode=0 len=0 vendor err 249 (Send) hca mlx5_3",
        "ib_error",
        {"status": 5, "device": "mlx5_3"},
    ),
    (
        "[rank3]: NET/IB : Got completion from peer 10.0.0.2<41655> with error 4, opcode 0, len 0, vendor err 81",
        "ib_error",
        {"status": 4, "peer": "10.0.0.2"},
    ),
    (WARN + "NET/IB : Got async event : port error", "ib_async", {"event": "port error", "fatal": True}),
    (WARN + "NET/IB : Got async event : port active", "ib_async", {"event": "port active", "fatal": False}),
    (
        WARN + "NET/IB : Got async event : client reregistration",
        "ib_async",
        {"event": "client reregistration", "fatal": False},
    ),
    (
        WARN + "NET/IB : mlx5_0:1 Got async event : local access violation work queue error",
        "ib_async",
        {"event": "local access violation work queue error", "fatal": True, "device": "mlx5_0:1"},
    ),
    (
        WARN + "NET/IB : mlx5_0:1 Got non-fatal async event: client reregistration(17)",
        "ib_async",
        {"event": "client reregistration", "fatal": False, "device": "mlx5_0:1"},
    ),
    (
        WARN + "NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)",
        "ib_async",
        {"event": "port error", "fatal": True, "device": "mlx5_0:1"},
    ),
    (WARN + "NET/IB : mlx5_0:1 Got async error event: port error", "ib_async", {"event": "port error", "fatal": True}),
    (
        WARN + "NET/IB : mlx5_0:1 async fatal event: local catastrophic error",
        "ib_async",
        {"event": "local catastrophic error", "fatal": True, "device": "mlx5_0:1"},
    ),
    (
        WARN_230
        + "NET/IB : mlx5_0:1 async fatal event on QP (0x7f) qpn=7 handle=1 send_cq=2 recv_cq=3 state=5 sq_psn=1: local work queue catastrophic error",
        "ib_async",
        {"fatal": True, "event": "local work queue catastrophic error"},
    ),
    (
        WARN
        + "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR",
        "ib_call_failed",
        {"call": "ibv_modify_qp", "code": 110, "error": "Connection timed out"},
    ),
    (
        WARN + "Call to ibv_modify_qp failed with error Invalid argument errno 22",
        "ib_call_failed",
        {"call": "ibv_modify_qp", "code": 22, "error": "Invalid argument"},
    ),
    (
        WARN + "Call to ibv_reg_mr failed with error Cannot allocate memory",
        "ib_call_failed",
        {"call": "ibv_reg_mr", "error": "Cannot allocate memory"},
    ),
    (WARN + "Call to ibv_poll_cq() returned -1", "ib_call_failed", {"call": "ibv_poll_cq", "code": -1}),
    # --- sockets
    (
        WARN + "socketProgress: Connection closed by remote peer cn-0417.ib<48021>",
        "peer_closed",
        {"peer_host": "cn-0417.ib", "peer_port": 48021, "backend": "nccl"},
    ),
    (
        WARN + "Net : Connection closed by remote peer 10.0.0.4<48021>",
        "peer_closed",
        {"peer_host": "10.0.0.4", "peer_port": 48021},
    ),
    ("[rank1]: socketProgress: Connection closed by remote peer", "peer_closed", {"peer_host": None}),
    (
        INFO + "[Service thread] Connection closed by localRank 4",
        "peer_closed",
        {"peer_local_rank": 4, "backend": "nccl"},
    ),
    (
        WARN + "socketProgressOpt: Call to recv from 10.0.0.4<48021> failed : Connection reset by peer",
        "peer_closed",
        {"peer_host": "10.0.0.4", "error": "Connection reset by peer"},
    ),
    (
        WARN + "socketProgressOpt: Call to recv from 10.0.0.4<48021> failed : No route to host",
        "connect_failed",
        {"address": "10.0.0.4", "error": "No route to host"},
    ),
    (
        WARN + "socketStartConnect: Connect to 10.0.0.4<48021> failed : No route to host",
        "connect_failed",
        {"address": "10.0.0.4", "port": 48021, "error": "No route to host"},
    ),
    (
        WARN + "socketStartConnect: connect to 10.0.0.4<48021> failed : Connection refused",
        "connect_failed",
        {"address": "10.0.0.4", "port": 48021, "error": "Connection refused"},
    ),
    (
        WARN + "socketPollConnect to 10.0.0.4<48021> failed with error Connection timed out",
        "connect_failed",
        {"address": "10.0.0.4", "error": "Connection timed out"},
    ),
    (
        WARN
        + "socketPollConnect: Connect to 10.0.0.4<48021> returned 111(Connection refused) errno 115(Operation now in progress)",
        "connect_failed",
        {"address": "10.0.0.4", "port": 48021},
    ),
    (
        WARN
        + "socketPollConnect: connect to 10.0.0.4<48021> returned Connection refused, exceeded error retry count after 34 attempts",
        "connect_failed",
        {"address": "10.0.0.4", "error": "Connection refused"},
    ),
    (WARN + "socketStartConnect: exceeded retries (20000)", "connect_failed", {"error": "exceeded retries (20000)"}),
    (
        INFO
        + "socketPollConnect: connect to 10.31.0.6<51233> returned Connection refused, retrying (2/34) after sleep for 200 msec",
        "connect_retry",
        {"attempt": 2, "of": 34, "address": "10.31.0.6", "port": 51233, "error": "Connection refused"},
    ),
    (
        WARN + "Net : Call to recv from 10.0.0.4<48021> failed : Connection reset by peer",
        "peer_closed",
        {"peer_host": "10.0.0.4"},
    ),
    (
        WARN + "[Service thread] Could not receive type from localRank 4, res=3, closed=0",
        "peer_closed",
        {"peer_local_rank": 4},
    ),
    (INFO + "Failed to open libibverbs.so[.1]", "no_ib_device", {}),
    (
        "(RayWorkerWrapper pid=9, ip=10.0.0.7) INFO 06-19 10:21:04 [pynccl.py:69] vLLM is using nccl==2.26.2",
        "nccl_version",
        {"version": "2.26.2"},
    ),
    (WARN + "Bootstrap : no socket interface found", "no_interface", {}),
    ("[rank8]: Bootstrap : no socket interface found", "no_interface", {}),
    (WARN + "NET/Socket : no interface found", "no_interface", {}),
    (WARN + "NET/IB : No IP interface found.", "no_interface", {}),
    (
        WARN + "no device found matching exactly mlx5_9, verify NCCL_OOB_NET_IFNAME",
        "no_interface",
        {"wanted": "exactly mlx5_9"},
    ),
    (
        WARN + "Net : No interface found in the same subnet as remote address 10.0.0.4<48021>",
        "no_interface",
        {"wanted": "10.0.0.4"},
    ),
    # --- what must not differ and does
    (
        WARN + "Mismatched NCCL version detected : rank 3 version 21805 rank 0 version 21602",
        "nccl_mismatch",
        {"what": "version", "a_rank": 3, "a": 21805, "b_rank": 0, "b": 21602},
    ),
    (
        WARN + "NCCL version mismatch with remote peer 10.0.0.4<48021> (local: 2.27.5, remote 2.26.2)",
        "nccl_mismatch",
        {"what": "version", "peer": "10.0.0.4", "a": "2.27.5", "b": "2.26.2"},
    ),
    (
        WARN
        + "Bootstrap Root : mismatch in info from procs, nranks 8 vs 16, nroots 1 vs 1, iroot 0 vs 0, offset 0 vs 0",
        "nccl_mismatch",
        {"what": "info", "a": 8, "b": 16},
    ),
    (
        WARN + "Bootstrap Root : mismatch in rank count from procs 8 : 16",
        "nccl_mismatch",
        {"what": "info", "a": 8, "b": 16},
    ),
    (
        WARN + "Message truncated : received 256 bytes instead of 16",
        "nccl_mismatch",
        {"what": "message", "a": 256, "b": 16},
    ),
    (
        WARN
        + "NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [0]mlx5_0:1/RoCE. Try selecting NICs of only one link type using NCCL_IB_HCA",
        "nccl_mismatch",
        {"what": "link_layer", "a": "[0]mlx5_0:1/IB", "b": "[0]mlx5_0:1/RoCE"},
    ),
    (
        WARN
        + "Detected mixed local Net device counts across ranks (min 1, max 8). Set NCCL_IGNORE_NET_MISMATCH=1 to continue.",
        "nccl_mismatch",
        {"what": "devices", "a": 1, "b": 8},
    ),
    (WARN + "Bootstrap Root : rank 3 of 16 ranks has already checked in", "duplicate_rank", {"a": 3, "nranks": 16}),
    (
        WARN + "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        "duplicate_gpu",
        {"a": 1, "b": 0, "bus_id": "1000"},
    ),
    # --- shared memory
    (
        WARN + "Error: failed to extend /dev/shm/nccl-WUq8Oe to 9637892 bytes, error: No space left on device (28)",
        "shm_error",
        {"path": "/dev/shm/nccl-WUq8Oe", "size": 9637892, "error": "No space left on device"},
    ),
    (
        WARN + "Error: failed to extend /dev/shm/nccl-WUq8Oe to 9637892 bytes",
        "shm_error",
        {"path": "/dev/shm/nccl-WUq8Oe", "size": 9637892},
    ),
    (
        INFO
        + "fallocate: Failed to extend /dev/shm/nccl-WUq8Oe to 9637892 bytes, error: No space left on device (28) - retrying",
        "shm_error",
        {"path": "/dev/shm/nccl-WUq8Oe"},
    ),
    (
        "[rank0]: Error while creating shared memory segment /dev/shm/nccl-a4056B (size 7340384)",
        "shm_error",
        {"path": "/dev/shm/nccl-a4056B", "size": 7340384},
    ),
    (
        WARN
        + "Error while attaching to shared memory segment /dev/shm/nccl-a4056B (size 7340384), error: No such file or directory (2)",
        "shm_error",
        {"size": 7340384, "error": "No such file or directory"},
    ),
    (
        WARN + "Error: failed to create shared memory file /dev/shm/nccl-a4056B, error Too many open files (24)",
        "shm_error",
        {"path": "/dev/shm/nccl-a4056B", "error": "Too many open files"},
    ),
    # --- errors
    (
        WARN + "Cuda failure 'uncorrectable NVLink error detected during the execution'",
        "cuda_error",
        {"hardware": True, "message": "uncorrectable NVLink error detected during the execution"},
    ),
    (
        WARN + "Cuda failure 700 'an illegal memory access was encountered'",
        "cuda_error",
        {"hardware": False, "message": "an illegal memory access was encountered"},
    ),
    (
        INFO
        + "P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",
        "p2p_info",
        {"text": "P2P is disabled between connected GPUs 1 and 0"},
    ),
    (
        INFO + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        "p2p_info",
        {"text": "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"},
    ),
    (
        INFO + "Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct",
        "p2p_info",
        {"text": "0[0] -> 1[1] via SHM/direct/direct"},
    ),
    (WARN + 'Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!', "p2p_info", {}),
]


@pytest.mark.parametrize(
    ("line", "kind", "values"), SAMPLES, ids=[f"{kind}-{i}" for i, (_, kind, _) in enumerate(SAMPLES)]
)
def test_lines(line: str, kind: str, values: dict[str, Any]) -> None:
    fact = one(line, kind)
    assert {name: fact[name] for name in values} == values
    if "gx-7:4071" in line:
        assert (fact.who.host, fact.who.pid, fact.who.rank) == ("gx-7", 4071, None)


def test_error_words() -> None:
    text = """[rank3]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5
[rank3]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
[rank3]: Last error:
[rank3]: Error while creating shared memory segment /dev/shm/nccl-a4056B (size 7340384)"""
    facts = facts_of(text)
    assert [fact["word"] for fact in facts if fact.kind == "nccl_error"] == ["unhandled system error"] * 2
    assert [fact["version"] for fact in facts if fact.kind == "nccl_error"] == ["2.21.5", None]
    assert {fact.rank for fact in facts} == {3}
    assert any(fact.kind == "shm_error" for fact in facts)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (
            "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, unhandled cuda error, NCCL version 2.14.3",
            "unhandled cuda error",
        ),
        (
            "what():  NCCL error: remote process exited or there was a network error, NCCL version 2.18.5",
            "remote process exited or there was a network error",
        ),
        (
            "gx-7: Test NCCL failure all_reduce.cu:44 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '",
            "unhandled system error",
        ),
        (
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "remote process exited or there was a network error",
        ),
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "invalid usage"),
    ],
)
def test_error_spellings(line: str, word: str) -> None:
    assert one(line, "nccl_error")["word"] == word


@pytest.mark.parametrize(
    "line",
    [
        INFO + "Call to ibv_reg_dmabuf_mr failed with error Operation not supported errno 95",
        INFO + "TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin.",
        INFO + "HINT: In many cases this error occurs when ACS is enabled which would break GPU Direct RDMA protocol.",
        INFO + "GPU Direct RDMA Enabled for GPU 1000 / HCA 0 (distance 2 <= 4), read 1",
        INFO + "Channel 00/0 : 4[4] -> 5[5] via P2P/CUMEM/read",
        INFO + "P2P Chunksize set to 524288",
        INFO + "Connected all rings",
        "INFO train: Using network of 24 layers",
        "the NCCL version is new",
        "[rank0]:     raise RuntimeError('NCCL error: unhandled system error')",
    ],
)
def test_means_nothing(line: str) -> None:
    assert facts_of(line) == []


def test_rank_in_communicator_is_no_speaker() -> None:
    """NCCL 2.30 starts the line with [Rank N]; RCCL and old versions mention ranks freely."""
    fact = one(
        "[rank9]: gx-7:71:95 [1] NCCL INFO [Rank 1] ncclCommInitRank comm 0x5 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId 1b000 commId 0x2 - Init START",
        "init_start",
    )
    assert fact.rank == 9
    assert fact["rank_in_comm"] == 1


def test_host_label_is_not_mistaken_for_a_dialect() -> None:
    text = "\n".join(
        INFO + f"comm 0x{n:x} rank {n} nranks 8 cudaDev 3 nvmlDev 3 busId bb000 commId 0x1 - Init COMPLETE"
        for n in range(1, 40)
    )
    assert {(fact.who.host, fact.who.pid) for fact in facts_of(text)} == {("gx-7", 4071)}


def _damaged(line: str, rng: random.Random) -> str:
    how = rng.randrange(4)
    if how == 0:
        return line[: rng.randrange(len(line))]
    if how == 1:
        return line[: len(line) // 2] + rng.choice(NOISE)
    if how == 2:
        return "\x00\ufffd" + line[::-1]
    return line + "\n" + line


@given(st.integers(0, 2**32))
def test_untouched_lines_survive(seed: int) -> None:
    rng = random.Random(seed)
    lines = [line for line, _, _ in rng.sample(SAMPLES, 12)]
    touched = {n for n in range(len(lines)) if rng.random() < 0.4}
    text = disturbed([_damaged(line, rng) if n in touched else line for n, line in enumerate(lines)], seed)
    found = [essence(fact) for fact in facts_of(text)]
    for n, line in enumerate(lines):
        if n not in touched:
            assert all(essence(fact) in found for fact in facts_of(line)), line
