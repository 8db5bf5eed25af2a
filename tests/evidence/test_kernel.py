"""Kernel log: every row of the formats, both stamps, and blocks with strangers in between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

STAMPS = (
    "",
    "[  625.867793] ",
    "[Thu Jul 03 15:06:16 2025] ",
    "2026-02-11T03:16:35+0100 gx-7 kernel: ",
    "Mar 11 01:10:00 gx-7 kernel: ",
)

SAMPLES: list[tuple[str, str, dict[str, Any]]] = [
    ("Out of memory: Killed process 77391 (python) total-vm:119449032kB, anon-rss:38214472kB, file-rss:68420kB, shmem-rss:1048580kB, UID:30871 pgtables:79613kB oom_score_adj:0", "oom_kill", {"pid": 77391, "comm": "python", "rss_kb": 38214472, "shmem_kb": 1048580, "cgroup": False}),
    ("Memory cgroup out of memory: Killed process 13513 (pt main thread) total-vm:221356kB, anon-rss:50944kB, file-rss:0kB", "oom_kill", {"pid": 13513, "comm": "pt main thread", "rss_kb": 50944, "cgroup": True}),
    ("Killed process 4711 (python) total-vm:221356kB, anon-rss:50944kB, file-rss:0kB", "oom_kill", {"pid": 4711, "comm": "python", "rss_kb": 50944, "cgroup": None}),
    ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=user,mems_allowed=0-1,oom_memcg=/slurm/job_1/step_0,task_memcg=/slurm/job_1/step_0/task_1,task=python,pid=77391,uid=30871", "oom_constraint", {"pid": 77391, "memcg": "/slurm/job_1/step_0", "task_memcg": "/slurm/job_1/step_0/task_1", "constraint": "CONSTRAINT_MEMCG"}),
    ("oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice/s.scope,task=R,pid=9,uid=4", "oom_constraint", {"pid": 9, "memcg": None, "task_memcg": "/user.slice/s.scope"}),
    ("Task in /slurm/uid_1/job_2 killed as a result of limit of /slurm/uid_1", "oom_constraint", {"memcg": "/slurm/uid_1", "task_memcg": "/slurm/uid_1/job_2"}),
    ("memory: usage 524288000kB, limit 524288000kB, failcnt 918273", "memcg_usage", {"usage_kb": 524288000, "limit_kb": 524288000}),
    ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [pt_data_pin:2273422]", "soft_lockup", {"comm": "pt_data_pin", "pid": 2273422, "seconds": 27}),
    ("nfs: server 10.40.2.9 not responding, still trying", "storage_stall", {"fs": "nfs", "server": "10.40.2.9", "state": "stalled"}),
    ("nfs: server fs-home not responding, timed out", "storage_stall", {"server": "fs-home", "state": "timed_out"}),
    ("nfs: server fs-home OK", "storage_stall", {"server": "fs-home", "state": "ok"}),
    ("Lustre: work-OST0007-osc-ffff9a01: Connection to work-OST0007 (at 10.30.9.17@o2ib) was lost; in progress operations using this service will wait for recovery to complete", "storage_stall", {"fs": "lustre", "server": "work-OST0007", "state": "stalled"}),
    ("LustreError: 167-0: s-MDT0000-mdc-ffff: This client was evicted by s-MDT0000; in progress operations using this service will fail.", "storage_stall", {"server": "s-MDT0000", "state": "evicted"}),
    ("Lustre: work-OST0007-osc-ffff9a01: Connection restored to work-OST0007 (at 10.30.9.17@o2ib)", "storage_stall", {"server": "work-OST0007", "state": "ok"}),
    ("libceph: mon0 (1)10.0.0.3:6789 session lost, hunting for new mon", "storage_stall", {"fs": "ceph", "state": "stalled"}),
    ("CIFS: VFS: \\\\fs1 has not responded in 180 seconds. Reconnecting...", "storage_stall", {"fs": "cifs", "state": "stalled"}),
    ("blk_update_request: I/O error, dev nvme0n1, sector 12 op 0x0:(READ)", "io_error", {"device": "nvme0n1"}),
    ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0", "io_error", {"device": "sda1"}),
    ("nvme nvme3: I/O tag 131 (1085) opcode 0x2 (I/O Cmd) QID 31 timeout, aborting req_op:READ(0) size:131072", "io_error", {"device": "nvme3"}),
    ("mlx5_core 0000:9b:00.0 ens4f0np0: Link down", "link", {"interface": "ens4f0np0", "device": "0000:9b:00.0", "state": "down"}),
    ("mlx5_core 0000:1a:00.0 ibp26s0: mlx5e_update_carrier:166:(pid 1204): Link up", "link", {"interface": "ibp26s0", "state": "up"}),
    ("ixgbe 0000:01:00.0 eth0: NIC Link is Down", "link", {"interface": "eth0", "state": "down"}),
    ("bond0: (slave eth1): link status definitely down, disabling slave", "link", {"interface": "eth1", "state": "down"}),
    ("pcieport 0000:80:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)", "pcie_error", {"device": "0000:80:03.0", "severity": "corrected", "type": "Data Link Layer"}),
    ("pcieport 0000:80:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)", "pcie_error", {"severity": "fatal"}),
    ("pcieport 0000:80:03.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)", "pcie_error", {"severity": "nonfatal"}),
    ("pcieport 0000:80:03.0: AER: Multiple Uncorrected (Fatal) error received: 0000:80:03.0", "pcie_error", {"severity": "fatal"}),
    ("nvidia 0000:81:00.0: AER: can't recover (no error_detected callback)", "pcie_error", {"severity": "fatal", "device": "0000:81:00.0", "gpu": "0000:81:00"}),
    ("snd_hda_intel 0000:81:00.1: AER: can't recover (no error_detected callback)", "pcie_error", {"device": "0000:81:00.1", "gpu": None}),
    ("pcieport 0000:80:03.0: AER: device recovery failed", "pcie_error", {"severity": "fatal"}),
    ("NVRM: Xid (PCI:0000:ba:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "xid", {"code": 79, "gpu": "0000:ba:00", "pid": None, "pid_text": "<unknown>"}),
    ("NVRM: Xid (0000:9a:00): 31, pid=77120, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS", "xid", {"code": 31, "gpu": "0000:9a:00", "pid": 77120}),
    ("NVRM: Xid (PCI:0000:05:00): 145, RLW_REMAP Nonfatal XC1 i0 Link 08 (0x00000004 0x00000000)", "xid", {"code": 145, "gpu": "0000:05:00"}),
    ("NVRM: Xid (PCI:0000:05:00 GPU-I:03): 43, pid=12, name=python, Ch 00000008", "xid", {"code": 43, "gpu": "0000:05:00", "pid": 12}),
    ("NVRM: GPU 0000:ba:00.0: GPU has fallen off the bus.", "gpu_lost", {"device": "0000:ba:00.0", "gpu": "0000:ba:00"}),
    ("NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x24:0xffff:1423)", "gpu_lost", {"gpu": "0000:81:00"}),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!", "gpu_error", {"gpu": "0000:03:00", "what": "reset"}),
    ("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!. Source:  1", "gpu_error", {"gpu": "0000:c1:00", "what": "reset"}),
    ("amdgpu 0000:c1:00.0: amdgpu: ring sdma0 timeout, signaled seq=11, emitted seq=13", "gpu_error", {"gpu": "0000:c1:00", "what": "ring_timeout", "ring": "sdma0"}),
    ("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=1, emitted seq=3", "gpu_error", {"gpu": None, "what": "ring_timeout", "ring": "sdma0"}),
    ("amdgpu 0000:c1:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block", "gpu_error", {"what": "ras", "block": "umc"}),
    ("amdgpu 0000:c1:00.0: amdgpu: {1}socket: 0, die: 1, 2 new uncorrectable hardware errors detected in xgmi_wafl block", "gpu_error", {"what": "ras", "block": "xgmi_wafl"}),
    ("amdgpu 0000:dd:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "gpu_error", {"what": "ras", "gpu": "0000:dd:00"}),
    ("amdgpu 0000:83:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:40 vmid:8 pasid:32776, for process python pid 4277 thread python pid 4277)", "gpu_error", {"what": "page_fault", "pid": 4277, "comm": "python"}),
    ("amdgpu 0000:1d:00.0: amdgpu: qcm fence wait loop timeout expired", "gpu_error", {"what": "hang", "gpu": "0000:1d:00"}),
    ("i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85def5fb, in python3 [12345]", "gpu_error", {"what": "hang", "pid": 12345}),
    ("habanalabs 0000:19:00.0: Device heartbeat failed! PCI link is healthy", "gpu_error", {"what": "hang", "gpu": "0000:19:00"}),
    ("oom_reaper: reaped process 4711 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", "oom_kill", {"pid": 4711, "comm": "python", "reaper": True}),
    ("python: page allocation stalls for 10234ms, order:0, mode:0x14280ca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), nodemask=(null)", "pressure", {"resource": "memory", "comm": "python", "ms": 10234}),
    ("nf_conntrack: nf_conntrack: table full, dropping packet", "net_limit", {"text": "nf_conntrack: table full, dropping packet"}),
    ("TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.", "net_limit", {"port": 29500}),
    ("Memory failure: 0x1840200: Sending SIGBUS to python:33395 due to hardware memory corruption", "mce", {"pid": 33395, "comm": "python", "corrected": None}),
    ("MCE 0x1840200: Killing python:33395 early due to hardware memory corruption", "mce", {"pid": 33395}),
    ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", "soft_lockup", {"rcu": True}),
    ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "io_error", {"device": "nvme0"}),
    ("nvme0n1: I/O Cmd(0x2) @ LBA 123456, 8 blocks, I/O Error (sct 0x2 / sc 0x81)", "io_error", {"device": "nvme0"}),
    ("bond0: link status definitely down for interface eth1, disabling it", "link", {"interface": "eth1", "state": "down"}),
    ("mlx5_core 0000:17:00.0: print_health_info:430:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:", "nic_error", {"device": "0000:17:00.0"}),
    ("nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 10003, Non-fatal, Link 20 re-trained", "sxid", {"code": 10003, "fatal": False, "device": "0000:06:00.0"}),
    ("nvidia-nvswitch2: SXid (PCI:0000:08:00.0): 20034, Fatal, Link 41 LTSSM Fault Up", "sxid", {"code": 20034, "fatal": True}),
    ("mlx5_core 0000:99:00.0: Port module event[error]: module 2, Cable error, High Temperature", "nic_error", {"device": "0000:99:00.0"}),
    ("mlx5_core 0000:99:00.0: mlx5_pcie_event:301:(pid 21676): Detected insufficient power on the PCIe slot (27W).", "nic_error", {"device": "0000:99:00.0"}),
    ("python[77391]: segfault at 8 ip 00007f1e sp 00007ffc error 4 in libnccl.so.2[7f1e00000000+1000]", "segfault", {"comm": "python", "pid": 77391, "library": "libnccl.so.2"}),
    ("traps: pt main thread[123] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f00+1]", "segfault", {"comm": "pt main thread", "pid": 123, "library": "libc.so.6"}),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "mce", {"corrected": None}),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "mce", {"corrected": True}),
    ("mce: CPU12: Package temperature/speed above threshold, cpu clock throttled (total events = 1)", "throttled", {"device": "CPU12"}),
    ("task:python          state:D stack:    0 pid:  932 ppid:   900 flags:0x00004002", "process", {"pid": 932, "ppid": 900, "stat": "D", "command": "python"}),
    ("Kernel panic - not syncing: Fatal exception", "node_event", {"reason": "KernelPanic"}),
]  # fmt: skip


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize(
    ("line", "kind", "want"), SAMPLES, ids=[f"{index}-{kind}" for index, (_, kind, _) in enumerate(SAMPLES)]
)
def test_line(line: str, kind: str, want: dict[str, Any], stamp: str) -> None:
    fact = one(stamp + line, kind, "gx-7.dmesg")
    assert {name: getattr(fact.who, name) if name in ("pid", "gpu", "host") else fact[name] for name in want} == want
    if "gx-7" in stamp:
        assert fact.who.host == "gx-7"


def test_other_stamped_lines() -> None:
    assert one("Jan 03 07:12:43 ox-1 systemd-networkd[1377]: ens4f0: Lost carrier", "link").who.host == "ox-1"
    assert (
        one(
            "2025-08-22 09:31:08 nb-05 health check: NVRM Xid 79 on GPU 0000:5d:00.0 (fallen off the bus), node drained",
            "xid",
        ).who.host
        == "nb-05"
    )
    assert (
        one(
            " 1a5 | 03/14/2026 | 02:50:03 | Power Supply PS3 Status | Power Supply AC lost | Asserted", "node_event"
        ).clock
        == "wall"
    )
    assert (
        one(
            "Mar 27 21:15:42 g2 guardd[22]: pid 51880 (python) rss 160.3 GiB above soft limit: paused (SIGSTOP)",
            "frozen",
        ).who.pid
        == 51880
    )


def test_xid_is_not_told_twice() -> None:
    line = "NVRM: Xid (PCI:0000:ba:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert [fact.kind for fact in facts_of(line)] == ["xid"]


def test_memory_events_are_counts_since_the_cgroup_began() -> None:
    text = "low 0\nhigh 0\nmax 812\noom 3\noom_kill 2\noom_group_kill 0"
    assert (one(text, "counter")["name"], one(text, "counter")["value"]) == ("oom_kill", 2)
    assert one("oom 0\noom_kill 0", "counter")["value"] == 0


@pytest.mark.parametrize(
    "line",
    [
        "amdgpu 0000:c1:00.0: amdgpu: ring gfx timeout, but soft recovered",
        "amdgpu 0000:c1:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c1:00.0: amdgpu: 3 correctable hardware errors detected in umc block",
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset(2) succeeded!",
        "Waiting 3.1234 sec since 10:11:12, monitored, thread 12345 RPCThread: reason 'RPC wait' for x on node 10.0.0.7",
    ],
)
def test_what_the_driver_mended_is_no_fault(line: str) -> None:
    assert facts_of(line, "gx-7.dmesg") == []


def test_waiters_of_gpfs() -> None:
    line = "Waiting 512.1234 sec since 10:11:12, monitored, thread 12345 SharedHashTabFetchHandlerThread: on ThCond 0x1800 (MsgRecordCondvar), reason 'RPC wait' for tmMsgTellAcquire1 on node 10.0.0.7 <c0n5>"
    fact = one(line, "storage_stall", "mmdiag.txt")
    assert (fact["fs"], fact["server"], fact["seconds"]) == ("gpfs", "10.0.0.7", 512)


def test_rank_of_a_file_name_is_not_the_process_rank() -> None:
    assert (
        one("Out of memory: Killed process 9 (java) total-vm:1kB, anon-rss:1kB", "oom_kill", "dmesg_rank3.txt").rank
        is None
    )


HUNG = [
    "[Thu Jan 22 14:13:25 2026] INFO: task prefetch_3:55513 blocked for more than 120 seconds.",
    "[Thu Jan 22 14:13:25 2026]       Tainted: P           OE     5.15.0-101-generic #111-Ubuntu",
    '[Thu Jan 22 14:13:25 2026] "echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    "[Thu Jan 22 14:13:25 2026] task:prefetch_3      state:D stack:0     pid:55513 tgid:55210 ppid:55102  flags:0x00004002",
    "[Thu Jan 22 14:13:25 2026] Call Trace:",
    "[Thu Jan 22 14:13:25 2026]  <TASK>",
    "[Thu Jan 22 14:13:25 2026]  io_schedule+0x46/0x80",
    "[Thu Jan 22 14:13:25 2026]  nfs_file_read+0xa1/0xd0 [nfs]",
    "[Thu Jan 22 14:13:25 2026]  </TASK>",
    "[Thu Jan 22 14:15:26 2026] INFO: task prefetch_3:55513 blocked for more than 241 seconds.",
]


def test_hung_task() -> None:
    first, second = (fact for fact in facts_of("\n".join(HUNG), "dmesg") if fact.kind == "hung_task")
    assert (first.who.pid, first["comm"], first["seconds"], first["tgid"]) == (55513, "prefetch_3", 120, 55210)
    assert first["frames"] == ["io_schedule", "nfs_file_read (nfs)"]
    assert (second["seconds"], second["frames"]) == (241, None)


def test_sysrq_stack() -> None:
    text = "[1.000000] task:python state:D stack:0 pid:7 ppid:1 flags:0x2\n[1.000000] Call Trace:\n[1.000000]  rpc_wait_bit_killable+0x1/0x2 [sunrpc]"
    fact = one(text, "stack", "dmesg")
    assert (fact.who.pid, fact["tool"], fact["state"], fact["frames"]) == (
        7,
        "kernel",
        "D",
        ["rpc_wait_bit_killable (sunrpc)"],
    )


@given(st.integers(0, 10_000), st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=8))
def test_facts_survive_what_happens_to_other_lines(seed: int, samples: list[tuple[str, str, dict[str, Any]]]) -> None:
    lines = [*(f"[  625.867793] {line}" for line, _, _ in samples), *HUNG]
    plain = {essence(fact) for fact in facts_of("\n".join(lines), "dmesg")}
    broken = [line[: len(line) // 3] for line in lines]
    assert plain <= {essence(fact) for fact in facts_of(disturbed(lines, seed), "dmesg")}
    assert plain <= {essence(fact) for fact in facts_of(disturbed([*broken, *lines, *broken], seed), "dmesg")}


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize(
    ("head", "numbers"),
    [
        ("[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name", "605193 356597 1 2 3 3761856 0 0"),
        ("[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name", "605193 356597 3761856 0 -998"),
        ("[ pid ]   uid  tgid total_vm      rss nr_ptes swapents oom_score_adj name", "605193 356597 712 0 0"),
    ],
)  # fmt: skip
def test_table_of_tasks(stamp: str, head: str, numbers: str) -> None:
    lines = [head, f"[  4711]  1000  4711 {numbers} python", f"[  4790]  1000  4711 {numbers} pt main thread"]
    lines += ["audit: backlog limit exceeded", f"[  5002]  1000  5002 {numbers} loader 3"]
    killed = "Memory cgroup out of memory: Killed process 5002 (loader 3) total-vm:9kB, anon-rss:5kB, file-rss:0kB"
    text = "\n".join(stamp + line for line in [*lines, killed])

    fact = one(text, "oom_tasks", "dmesg")

    assert (fact["pid"], fact["pids"]) == (5002, [4711, 5002])
    assert one(text, "oom_kill", "dmesg").who.pid == 5002 or one(text, "oom_kill", "dmesg")["pid"] == 5002


@pytest.mark.parametrize("cut", ["", "Memory cgroup out of memory: Killed process 77 (x) total-vm:9kB, anon-rss:5kB"])
def test_table_whose_kill_is_not_among_its_tasks_tells_nothing(cut: str) -> None:
    head = "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name"
    text = f"{head}\n[  4711]  1000  4711 605193 356597 3761856 0 0 python\n{cut}"
    assert not [fact for fact in facts_of(text, "dmesg") if fact.kind == "oom_tasks"]
