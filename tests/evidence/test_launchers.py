"""Launchers other than torchrun, lines that tie ranks together, and how far a run came."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import essence, facts_of, one, survivors

MEMBERS: list[tuple[str, tuple[int | None, int | None, str | None, int | None, int | None]]] = [
    ("[job 30771 11:00:00] rank 0 of 8 on lk-04, pid 15100", (0, None, "lk-04", 15100, 8)),
    ("2026-05-12 09:00:00 | rank 3/8 | host dn-21 | pid 60413 | cuda:3", (3, None, "dn-21", 60413, 8)),
    ("2025-07-03 14:40:00 [rank 5/8 on c3g0129] pid 77305 start, 12 loader workers", (5, None, "c3g0129", 77305, 8)),
    ("2026-12-02T06:40:00Z INFO rank=0 pid=910 host=ap-11 world=8 start", (0, None, "ap-11", 910, 8)),
    ("[rank0] world size 8, starting", (0, None, None, None, 8)),
    ("[INFO|2025-09-21 11:41:44] hparams.parser: Process rank: 1, world size: 2, device: cuda:1, distributed training: True", (1, None, None, None, 2)),
    ("2026-01-21 09:31:02 | INFO | dist_env: backend=nccl timeout_minutes=1 world_size=4", (None, None, None, None, 4)),
    ("[titan] 2026-09-15 05:12:05,101 - root - INFO - rank 5 pid 1245 attempt 1: resuming from out/last.pt", (5, None, None, 1245, None)),
    ("hostname=n7.cluster local_rank=2 global_rank=18 world_size=32 pid=4411", (18, 2, "n7.cluster", 4411, 32)),
    ("Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/8", (3, None, None, None, 8)),
    ("submitit INFO (2021-04-07 06:41:00,211) - Starting with JobEnvironment(job_id=41822107, hostname=lf1100, local_rank=1(8), node=0(1), global_rank=1(8))", (1, 1, "lf1100", None, 8)),
    ("2021-04-11 20:19:07 | INFO | fairseq.distributed.utils | initialized host lf1100 as rank 4", (4, None, "lf1100", None, None)),
    ("[2024-07-11 09:58:07,303] [INFO] [launch.py:256:main] process 61200 spawned with command: ['/usr/bin/python3', '-u', 'train.py', '--local_rank=2', '--config', 'x']", (None, 2, None, 61200, None)),
    ("(TorchTrainer pid=88) - (node_id=abc, ip=10.0.0.4, pid=1234) world_rank=6, local_rank=2, node_rank=1", (6, 2, "10.0.0.4", 1234, None)),
    ("#  Rank 13 Group  0 Pid   6145 on      c2n03 device  5 [0000:ab:00] NVIDIA H100 80GB HBM3", (13, None, "c2n03", 6145, None)),
    ("[rank3]: 2026-05-12 09:00:00,000 INFO launch.py:41 rank 3/8 local_rank 3 host dn-21 pid 60413", (3, 3, "dn-21", 60413, 8)),
    ("09:00:00 rank 1 of 4 is ready on n42026-05-12 09:00:00,486 [rank 2] rank 2 of 4 is ready on n4", (1, None, "n4", None, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), MEMBERS)
def test_member(line: str, expected: tuple[Any, ...]) -> None:
    fact = one(line, "member")
    assert (fact.rank, fact.who.local_rank, fact.who.host, fact.who.pid, fact["world_size"]) == expected


def test_attempt_of_a_member() -> None:
    assert one(MEMBERS[7][0], "member").who.attempt == 1


@pytest.mark.parametrize(
    "line",
    [
        "[rank5]:[E420 12:35:44.0 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 3(mesh_fsdp) Rank 2]  failure detected by watchdog at work sequence id: 8",
        "Process 21177 has 75.43 GiB memory in use on rank 3.",
        "train, rank: 3, epoch: 0/500, data_slice: 0/5, total step: 31600",
        "[rank3] waiting for rank 0 on collective 7",
        "gx-11:40714:40845 [3] NCCL INFO comm 0x1 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1d0 commId 0x6 - Init START",
        "tensor model parallel world_size=4",
    ],
)
def test_no_member(line: str) -> None:
    assert not [fact for fact in facts_of(line) if fact.kind == "member"]


def test_accelerate_environment() -> None:
    text = "\n".join(
        "[rank3]: " + line
        for line in (
            "Distributed environment: DistributedType.MULTI_GPU  Backend: nccl",
            "Num processes: 8",
            "Process index: 3",
            "Local process index: 1",
            "Device: cuda:1",
        )
    )
    fact = one(text, "member")
    assert (fact.rank, fact.who.local_rank, fact.who.gpu, fact["world_size"], fact["launcher"]) == (
        3,
        1,
        "cuda:1",
        8,
        "accelerate",
    )


EXITS: list[tuple[str, tuple[Any, ...]]] = [
    ("[2024-07-11 10:25:39,004] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_rank=3', '--config', 'x'] exits with return code = -9", (None, 3, None, None, -9, 9, "deepspeed")),
    ("mpirun noticed that process rank 0 with PID 271330 on node hx-03 exited on signal 2 (Interrupt).", (0, None, "hx-03", 271330, None, 2, "mpirun")),
    ("prterun noticed that process rank 7 with PID 12 on node n2 exited on signal 9 (Killed).", (7, None, "n2", 12, None, 9, "prterun")),
    ("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD with errorcode 1.", (3, None, None, None, 1, None, "mpirun")),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL", (None, 3, None, None, None, 9, "spawn")),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 17", (None, 1, None, None, 17, None, "spawn")),
    ("launcher: process 51200 exited with code -11", (None, None, None, 51200, -11, 11, None)),
    ("(raylet, ip=10.9.1.7) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker. RayTask ID: ff Worker ID: ec Node ID: ab Worker IP address: 10.9.1.8 Worker port: 10002 Worker PID: 30646 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits", (None, None, "10.9.1.8", 30646, None, None, "ray")),
    ("ExitCode 137", (None, None, None, None, 137, None, "sagemaker")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), EXITS)
def test_exit(line: str, expected: tuple[Any, ...]) -> None:
    fact = one(line, "exit")
    assert (
        fact.rank,
        fact.who.local_rank,
        fact.who.host,
        fact.who.pid,
        fact["exitcode"],
        fact["signal"],
        fact["launcher"],
    ) == expected


MPI = """--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[52341,1],3]
  Exit code:    1
--------------------------------------------------------------------------"""
MPICH = """===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 3 PID 1234 RUNNING AT node3
=   KILLED BY SIGNAL: 9 (Killed)
==================================================================================="""


def test_mpi_tables() -> None:
    fact = one(MPI, "exit")
    assert (fact.rank, fact["exitcode"], fact["launcher"]) == (3, 1, "mpirun")
    assert one(MPI.replace("[[52341,1],3]", "[prterun-n1-2@1,3]"), "exit").rank == 3
    fact = one(MPICH, "exit")
    assert (fact.rank, fact.who.pid, fact.who.host, fact["signal"]) == (3, 1234, "node3", 9)


def test_deepspeed() -> None:
    text = """[2024-07-11 09:58:07,301] [INFO] [launch.py:152:main] nnodes=1, num_local_procs=4, node_rank=0
[2024-07-11 09:58:07,301] [INFO] [launch.py:164:main] dist_world_size=4
[2024-07-11 09:58:07,301] [INFO] [launch.py:168:main] Setting CUDA_VISIBLE_DEVICES=0,1,2,3
[2024-07-11 10:25:38,004] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 61201
[2024-07-11 10:25:39,004] [INFO] [launch.py:351:main] Process 61200 exits successfully.
"""
    facts = facts_of(text)
    config = {fact["name"]: fact["value"] for fact in facts if fact.kind == "config"}
    assert (
        config.items()
        >= {
            "nnodes": 1,
            "num_local_procs": 4,
            "node_rank": 0,
            "world_size": 4,
            "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        }.items()
    )
    assert [fact.who.pid for fact in facts if fact.kind == "launcher_stop"] == [61201]
    assert [(fact.who.pid, fact["scope"]) for fact in facts if fact.kind == "success"] == [(61200, "rank")]


def test_launch_line() -> None:
    line = "+ srun --nodes=4 --ntasks-per-node=1 bash -c 'torchrun --nnodes=4 --nproc-per-node=8 --rdzv-endpoint=cn-0402:29400 --max_restarts 3 -m train cfg.yaml'"
    config = {fact["name"]: fact["value"] for fact in facts_of(line) if fact.kind == "config"}
    assert (
        config.items()
        >= {"nnodes": 4, "nproc_per_node": 8, "rdzv_endpoint": "cn-0402:29400", "max_restarts": 3, "nodes": 4}.items()
    )


@pytest.mark.parametrize(
    ("line", "signal"),
    [
        ("submitit WARNING (2021-04-07 09:31:47,552) - Bypassing signal 15", 15),
        ("[rank: 0] Received SIGTERM: 15", 15),
        ("2026-11-30 05:12:44 [rank1] caught signal SIGUSR1, saving and leaving", 10),
        ("received signal 15, shutting down", 15),
    ],
)
def test_signal_received(line: str, signal: int) -> None:
    assert one(line, "signal_received")["signal"] == signal


def test_folded() -> None:
    assert one("(WorkerDict pid=30658) step done [repeated 7x across cluster]", "folded")["times"] == 7


@pytest.mark.parametrize(
    ("line", "scope"),
    [
        ("launcher: all 8 workers exited with 0", "job"),
        ("px_350m_r4 exit code 0", "job"),
        ("exit=0", "job"),
        ("process exited with code 0", "rank"),
        ("2026-09-02 23:41:26 [rank0] training finished: 1220 steps, 0 skipped, 0 restarts", "job"),
        ("Training completed. Do not forget to share your model on huggingface.co/models =)", "job"),
        ("`Trainer.fit` stopped: `max_epochs=10` reached.", "job"),
        ("2026-05-12 10:12:54 | finished, 300 steps", "job"),
        ("[job 30771 11:30:51] [rank0] done, 600 iterations", "rank"),
        ("[rank0] done. 180 steps in 0:12:41", "rank"),
        ("2024-01-01 00:00:00 sagemaker-training-toolkit INFO     Reporting training SUCCESS", "job"),
    ],
)
def test_success(line: str, scope: str) -> None:
    assert one(line, "success")["scope"] == scope


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3 finished",
        "[rank0] epoch 3 done, evaluating dev-long",
        "[rank0] eval shard finished, 400 summaries, mean output length 209 tokens",
        "[rank 2] done, 2 files, 9.9 GB, 2.4 s",
        "training finished for epoch 3",
        "+ echo 'px exit code 0'",
        "Loading checkpoint shards: 100%|██████████| 4/4 [00:16<00:00,  4.01s/it] done",
        "      Exit Code:    0",
        "exit code 0x1",
        "process exited with code 01",
        "compile: 2 of 38 graphs done",
    ],
)
def test_no_success(line: str) -> None:
    assert not [fact for fact in facts_of(line) if fact.kind == "success"]


@pytest.mark.parametrize(
    ("line", "kind", "step"),
    [
        ("2026-05-12 09:24:17 | checkpoint step 100 saved", "checkpoint_saved", 100),
        ("2026-09-02 22:58:57 [rank0] checkpoint step 600 written in 18.4 s", "checkpoint_saved", 600),
        (
            "2022-09-27 22:30:08 | INFO | fairseq | Saved checkpoint ckpts/x/checkpoint1.pt (epoch 1 @ 1624 updates, score 5.902)",
            "checkpoint_saved",
            1624,
        ),
        ("  successfully saved checkpoint from iteration    1000 to /ckpt [ t 0, p 0 ]", "checkpoint_saved", 1000),
        ("Model weights saved in out/t5-xl/checkpoint-400/model.safetensors", "checkpoint_saved", 400),
        ("[rank 0] saved t5_ep1.pt in 21.0 s", "checkpoint_saved", None),
        ("2026-09-02 22:58:39 [rank0] saving checkpoint step 600", "checkpoint_saving", 600),
        ("Saving model checkpoint to out/t5-xl/checkpoint-400", "checkpoint_saving", 400),
        ("[rank0] resumed from step 01200, torch.compile cache dir /var/cache", "restored", 1200),
        ("  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 1000", "restored", 1000),
        ("Continuing training from global step 400", "restored", 400),
        ("rank 0 pid 1240 attempt 1: resuming from out/last.pt", "restored", None),
    ],
)
def test_checkpoints(line: str, kind: str, step: int | None) -> None:
    assert one(line, kind)["step"] == step


@pytest.mark.parametrize(
    "line",
    [
        "wandb: Network error resolved after 0:00:12.413, resuming normal operation.",
        "saving epoch-0.pt is left to rank 0; waiting for other ranks",
        "no checkpoint found, starting from scratch",
        "Configuration saved in out/checkpoint-400/config.json",
    ],
)
def test_no_checkpoints(line: str) -> None:
    assert not [fact for fact in facts_of(line) if fact.kind in ("checkpoint_saved", "checkpoint_saving", "restored")]


def test_restarts() -> None:
    fact = one("=== 2025-08-22 09:31:36 job requeued by scheduler, attempt 2, nodes nb-02,nb-07 ===", "restart")
    assert (fact["attempt"], fact["requeue"], fact["nodes"]) == (2, True, "nb-02,nb-07")
    fact = one("2026-07-30 22:18:14Z INFO  launcher: worker group failed, restart 1/20 from step 41100", "restart")
    assert (fact["attempt"], fact["of"], fact["from_step"]) == (1, 20, 41100)


@given(st.integers(0, 2**32))
def test_other_lines_do_not_matter(seed: int) -> None:
    lines = (
        [case[0] for case in MEMBERS[:6] + MEMBERS[9:]]
        + [case[0] for case in EXITS]
        + MPI.split("\n")
        + MPICH.split("\n")
    )
    assert survivors(lines, seed) >= {repr(essence(fact)) for fact in facts_of("\n".join(lines))}
