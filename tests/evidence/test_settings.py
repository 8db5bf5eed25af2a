"""Settings: durations in every unit, variables, knobs; advice is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of

from whichrank.evidence.settings import seconds_of

DURATIONS = [
    ("  ddp_timeout=7200,", "ddp_timeout", 7200),
    ("ddp_timeout: 5400", "ddp_timeout", 5400),
    ("dist_env: backend=nccl timeout_minutes=1 world_size=4", "timeout_minutes", 60),
    ("fsdp mesh dp=8, --distributed-timeout-minutes 10", "distributed_timeout_minutes", 600),
    ("cfg: dist_timeout_s=120 backend=nccl", "dist_timeout_s", 120),
    ("config: compile=max, pg_timeout=45min, seed=3", "pg_timeout", 2700),
    ("rank 6/8 ready (init_process_group timeout 0:10:00)", "init_process_group timeout", 600),
    ("init_process_group(backend='nccl', timeout=datetime.timedelta(seconds=5400))", "init_process_group timeout", 5400),
    ("deepspeed.init_distributed(timeout=timedelta(minutes=20))", "init_distributed timeout", 1200),
    ("kwargs = InitProcessGroupKwargs(timeout=timedelta(hours=1, minutes=30))", "InitProcessGroupKwargs timeout", 5400),
    ("world=8 rank=7 backend=gloo timeout=1800s", "timeout", 1800),
    ("no optimizer step for 900 s (pg timeout 2700 s)", "pg timeout", 2700),
    ("rdzv_configs : {'timeout': 900}", "rdzv_timeout", 900),
    ("process_group_timeout: 1:30:00", "process_group_timeout", 5400),
    ("heartbeat_timeout_ms: 500", "heartbeat_timeout_ms", 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name", "seconds"), DURATIONS)
def test_durations(line: str, name: str, seconds: float) -> None:
    found = {
        fact["name"]: fact["seconds"]
        for fact in facts_of(line)
        if fact.kind == "config" and fact["seconds"] is not None
    }
    assert found == {name: seconds}


VARIABLES: list[tuple[str, str, Any, Any]] = [
    ("export NCCL_TIMEOUT=7200", "NCCL_TIMEOUT", 7200, 7200),
    ("+ export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=7200", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", 7200, 7200),
    ("  NCCL_IB_TIMEOUT: \"22\"", "NCCL_IB_TIMEOUT", 22, None),
    ("NCCL_DEBUG_SUBSYS=INIT,NET torchrun train.py", "NCCL_DEBUG_SUBSYS", "INIT,NET", None),
    ("$ mpirun -np 2 -x NCCL_SOCKET_IFNAME=bond0 ./all_reduce_perf", "NCCL_SOCKET_IFNAME", "bond0", None),
    ("GLOO_SOCKET_IFNAME=eth1", "GLOO_SOCKET_IFNAME", "eth1", None),
    ("env: TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "TORCH_NCCL_TRACE_BUFFER_SIZE", 2000, None),
    ("TORCH_NCCL_DUMP_ON_TIMEOUT=1", "TORCH_NCCL_DUMP_ON_TIMEOUT", 1, None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name", "value", "seconds"), VARIABLES)
def test_variables(line: str, name: str, value: Any, seconds: Any) -> None:
    found = [(fact["name"], fact["value"], fact["seconds"]) for fact in facts_of(line) if fact.kind == "env_set"]
    assert found == [(name, value, seconds)]


@pytest.mark.parametrize(
    "line",
    [
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
        "You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
        "try NCCL_P2P_DISABLE=1 python train.py",
        "requests.get(url, timeout=30)",
        "data = self._data_queue.get(timeout=timeout)",
        "retry_on_timeout: 5",
        "torch.utils.checkpoint: please pass in use_reentrant=True or use_reentrant=False explicitly",
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600063 milliseconds",
        "TimeoutError: The client socket has timed out after 60s while trying to connect to (10.5.41.9, 3456).",
    ],
)
def test_what_sets_nothing(line: str) -> None:
    assert [fact for fact in facts_of(line) if fact.kind in ("config", "env_set")] == []


def test_knobs_and_batch_script() -> None:
    text = "dataloader_num_workers=4,\n#SBATCH --nodes=4 --ntasks-per-node=1 --mem=64G\n#SBATCH -t 1-02:00:00\n#SBATCH --time=24:00:00"
    found = {fact["name"]: (fact["value"], fact["seconds"]) for fact in facts_of(text) if fact.kind == "config"}
    assert found["dataloader_num_workers"] == (4, None)
    assert found["sbatch_mem"] == ("64G", None)
    assert found["sbatch_ntasks_per_node"] == (1, None)
    assert found["sbatch_time"][1] == 86400


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_breaks_it(name: str, value: str) -> None:
    seconds = seconds_of(name, value)
    assert seconds is None or seconds >= 0


@given(st.integers(0, 10_000))
def test_facts_survive_what_happens_to_other_lines(seed: int) -> None:
    lines = [line for line, *_ in (*DURATIONS, *VARIABLES)]
    plain = {essence(fact) for fact in facts_of("\n".join(lines))}
    broken = [line[: len(line) // 2] for line in lines]
    assert plain <= {essence(fact) for fact in facts_of(disturbed([*broken, *lines, *broken], seed))}
