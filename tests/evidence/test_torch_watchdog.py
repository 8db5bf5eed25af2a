"""ProcessGroupNCCL's watchdog, every generation of its lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import essence, facts_of, one, survivors

TIMEOUTS = {
    "1.13": (
        "[E ProcessGroupNCCL.cpp:587] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, TensorShape=[1, 512], Timeout(ms)=1800000) ran for 1804406 milliseconds before timing out.",
        (1, None, "ALLREDUCE", None, None, 1800000, 1804406),
    ),
    "2.0": (
        "[E ProcessGroupNCCL.cpp:828] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=48817, OpType=ALLREDUCE, TensorShape=[5], Timeout(ms)=1800000) ran for 1802292 milliseconds before timing out.",
        (4, 48817, "ALLREDUCE", None, None, 1800000, 1802292),
    ),
    "2.1, no sizes": (
        "[E ProcessGroupNCCL.cpp:737] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=30877, OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1802210 milliseconds before timing out.",
        (0, 30877, "_ALLGATHER_BASE", None, None, 1800000, 1802210),
    ),
    "2.3": (
        "[rank7]:[E ProcessGroupNCCL.cpp:563] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17290, OpType=ALLREDUCE, NumelIn=12851200, NumelOut=12851200, Timeout(ms)=600000) ran for 600039 milliseconds before timing out.",
        (7, 17290, "ALLREDUCE", 12851200, 12851200, 600000, 600039),
    ),
    "2.7": (
        "[rank2]:[E1130 05:41:18.324909491 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=611, OpType=ALLGATHER, NumelIn=1, NumelOut=4, Timeout(ms)=60000) ran for 60037 milliseconds before timing out.",
        (2, 611, "ALLGATHER", 1, 4, 60000, 60037),
    ),
    "coalesced: -1 is no number": (
        "[rank2]:[E1130 05:41:18.3 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=18446744073709551615, OpType=COALESCED, NumelIn=18446744073709551615, NumelOut=4, Timeout(ms)=60000) ran for 60037 milliseconds before timing out.",
        (2, None, "COALESCED", 18446744073709551615, 4, 60000, 60037),
    ),
}


@pytest.mark.parametrize(("line", "expected"), TIMEOUTS.values(), ids=TIMEOUTS)
def test_timeout(line: str, expected: tuple[object, ...]) -> None:
    fact = one(line, "timeout")
    assert (
        fact.rank,
        fact.seq,
        fact["op"],
        fact["numel_in"],
        fact["numel_out"],
        fact["timeout_ms"],
        fact["ran_ms"],
    ) == expected
    assert fact.group is None
    assert fact["backend"] == "nccl"
    assert not fact["echo"]


def test_shape_and_rank_in_the_group() -> None:
    fact = one(TIMEOUTS["1.13"][0], "timeout")
    assert fact["shape"] == "[1, 512]"
    assert one(TIMEOUTS["2.3"][0], "timeout")["group_rank"] == 3


def test_file_name_outranks_rank_in_group() -> None:
    assert one(TIMEOUTS["2.1, no sizes"][0], "timeout", name="logs/rank12.log").rank == 12


def test_after_a_progress_bar_of_another_rank() -> None:
    bar = "[rank2] generate:  55%|█████▌    | 220/400 [13:35<11:06,  3.70s/it]"
    assert one(bar + TIMEOUTS["2.3"][0], "timeout").rank == 7


WRAPPERS = (
    "[E ProcessGroupNCCL.cpp:916] [Rank 3] NCCL watchdog thread terminated with exception: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8034, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800890 milliseconds before timing out.",
    "  what():  [Rank 3] NCCL watchdog thread terminated with exception: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8034, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800890 milliseconds before timing out.",
    "  what():  [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8034, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802210 milliseconds before timing out.",
    "[rank3]:[E506 16:32:30.3 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8034, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600063 milliseconds before timing out.",
)


@pytest.mark.parametrize("line", WRAPPERS)
def test_wrapper_is_an_echo(line: str) -> None:
    fact = one(line, "timeout")
    assert (fact.rank, fact.seq, fact["op"], fact["echo"]) == (3, 8034, "ALLREDUCE", True)


STATUS = {
    "2.3": (
        "[rank0]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 0] Timeout at NCCL work: 17290, last enqueued NCCL work: 17291, last completed NCCL work: 17289.",
        ("1", 0, 17290, 17291, 17289, None),
    ),
    "2.4": (
        "[rank1]:[E1126 10:02:11.3 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at work: 1, last enqueued NCCL work: 1, last completed NCCL work: -1.",
        ("default_pg", 1, 1, 1, -1, None),
    ),
    "with started": (
        "[rank1]:[E1126 10:02:11.3 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 1] Timeout at NCCL work: 4, last enqueued NCCL work: 6, last started NCCL work: 5, last completed NCCL work: 3.",
        ("default_pg", 1, 4, 6, 3, 5),
    ),
    "2.7": (
        "[rank5]:[E420 12:35:44.0 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 3(mesh_fsdp) Rank 2]  failure detected by watchdog at work sequence id: 88214 PG status: last enqueued work: 88215, last completed work: 88213",
        ("mesh_fsdp", 2, 88214, 88215, 88213, None),
    ),
    "no description": (
        "[rank1]:[E603 14:22:41.0 ProcessGroupNCCL.cpp:2168] [PG ID 2 PG GUID 3 Rank 1]  failure detected by watchdog at work sequence id: 1 PG status: last enqueued work: 1, last completed work: -1",
        ("3", 1, 1, 1, -1, None),
    ),
    "undefined": (
        "[rank1]:[E603 14:22:41.0 ProcessGroupNCCL.cpp:2168] [PG ID 2 PG GUID 3(undefined) Rank 1]  failure detected by watchdog at work sequence id: 1 PG status: last enqueued work: 1, last completed work: -1",
        ("3", 1, 1, 1, -1, None),
    ),
    "unknown work": (
        "[rank1]:[E603 14:22:41.0 ProcessGroupNCCL.cpp:2168] [PG ID 2 PG GUID 3(tp) Rank 1]  failure detected by watchdog at work sequence id: 18446744073709551615 PG status: last enqueued work: 1, last completed work: -1",
        ("tp", 1, None, 1, -1, None),
    ),
}


@pytest.mark.parametrize(("line", "expected"), STATUS.values(), ids=STATUS)
def test_status(line: str, expected: tuple[object, ...]) -> None:
    fact = one(line, "pg_status")
    assert (
        fact.group,
        fact["group_rank"],
        fact["failed"],
        fact["enqueued"],
        fact["completed"],
        fact["started"],
    ) == expected


SIGNALS = {
    "local": (
        "[rank4]:[E506 16:31:30.2 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 4] Received a dump signal due to a collective timeout from this local rank and we will try our best to dump the debug info. Last enqueued NCCL work: 9412, last completed NCCL work: 9411.This is most likely caused by",
        (4, None, 9412, 9411, None),
    ),
    "from a rank": (
        "[rank6]:[E703 21:51:54.1 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump signal due to a collective timeout from  rank 7 and we will try our best to dump the debug info. Last enqueued NCCL work: 56116, last completed NCCL work: 56116.This is",
        (6, 7, 56116, 56116, None),
    ),
    "2.3 global": (
        "[rank6]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 6] Received a global timeout from another rank and will start to dump the debug info. Last enqueued NCCL work: 8, last completed NCCL work: 7.",
        (6, None, 8, 7, True),
    ),
    "2.4 global": (
        "[rank6]:[E ProcessGroupNCCL.cpp:1316] [PG 0 (default_pg) Rank 6] Received a global dump signal from rank 2, and will start to dump the debug info. Last enqueued NCCL work: 8, last completed NCCL work: 8.",
        (6, 2, 8, 8, True),
    ),
    "store": (
        "[rank1]:[E703 21:51:54.1 ProcessGroupNCCL.cpp:1922] [PG ID 0 PG GUID 0(default_pg) Rank 1] Observed flight recorder dump signal from another rank via TCPStore.",
        (1, None, None, None, True),
    ),
}


@pytest.mark.parametrize(("line", "expected"), SIGNALS.values(), ids=SIGNALS)
def test_dump_signal(line: str, expected: tuple[object, ...]) -> None:
    fact = one(line, "dump_signal")
    assert (fact.rank, fact["from_rank"], fact["enqueued"], fact["completed"], fact["remote"]) == expected


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "[rank1]:[F ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring enqueued collectives.",
            "watchdog_stuck",
        ),
        (
            "[rank1]:[F ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] NCCL monitor thread timeout. Basically, this could be due to",
            "watchdog_stuck",
        ),
        (
            "[rank1]:[E ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
            "watchdog_stuck",
        ),
        (
            "[rank1]:[F ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
            "watchdog_stuck",
        ),
        (
            "[rank1]:[F ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] Terminating the process after attempting to dump debug info, due to collective timeout or exception.",
            "generic_abort",
        ),
        (
            "[rank1]:[E ProcessGroupNCCL.cpp:1] Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
            "gil_stuck",
        ),
        (
            "[rank1]:[E ProcessGroupNCCL.cpp:1] [Rank 1] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, …",
            "generic_abort",
        ),
        (
            "[E ProcessGroupNCCL.cpp:1] Some NCCL operations have failed or timed out. … To avoid this inconsistency, we are taking the entire process down.",
            "generic_abort",
        ),
        (
            "[rank1]:[E ProcessGroupNCCL.cpp:1] [Rank 1] To avoid data inconsistency, we are taking the entire process down.",
            "generic_abort",
        ),
        ("terminate called after throwing an instance of 'c10::DistBackendError'", "generic_abort"),
        ("[rank1]:[E ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] remote error detected from rank: 5", "remote_error"),
    ],
)
def test_other_words(line: str, kind: str) -> None:
    fact = one(line, kind)
    if kind == "watchdog_stuck" and "600" in line:
        assert fact["seconds"] == 600
    if kind == "remote_error":
        assert fact["from_rank"] == 5


@pytest.mark.parametrize("tail", ["", " (NCCL_BLOCKING_WAIT=1).", " (TORCH_NCCL_BLOCKING_WAIT=1)."])
def test_blocking_wait(tail: str) -> None:
    fact = one(
        f"[rank1]:[E ProcessGroupNCCL.cpp:1] [Rank 1] Work WorkNCCL(SeqNum=5, OpType=BARRIER, NumelIn=1, NumelOut=1, Timeout(ms)=9000) timed out in blocking wait{tail}",
        "timeout",
    )
    assert (fact.rank, fact.seq, fact["op"], fact["timeout_ms"], fact["blocking"], fact["group_rank"]) == (
        1,
        5,
        "BARRIER",
        9000,
        True,
        1,
    )


def test_nccl2_backend() -> None:
    assert one("timeout - timeout watchdog detected operation timeout", "timeout")["backend"] == "nccl2"
    assert [
        fact["word"]
        for fact in facts_of("error - nccl hit async error: unhandled system error")
        if fact.kind == "nccl_error"
    ] == ["unhandled system error"]


def test_async_error_with_last_error() -> None:
    text = (
        "[rank1]:[E1126 10:02:11.3 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 1] Collective WorkNCCL(SeqNum=40, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) raised the following async exception: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\n"
        "NET/IB: Got completion from peer 10.0.0.7<41000> with status=12 opcode=0 len=0 vendor err 129\n"
    )
    fact = next(fact for fact in facts_of(text) if fact.kind == "nccl_error" and fact.seq == 40)
    assert fact.rank == 1
    assert fact["word"] == "remote process exited or there was a network error"
    assert fact["version"] == "2.21.5"
    assert fact["last_error"].startswith("NET/IB: Got completion")


SITES = (
    "[rank0]:[E625 09:25:44.1 ProcessGroupNCCL.cpp:664] Stack trace of the failed collective: ",
    "#0 all_gather_into_tensor from /usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:3798",
    "#1 _train_step from /work/trainer.py:318",
    "#2 <module> from /work/train.py:61",
    "",
    "[rank3]:[E625 09:25:44.2 ProcessGroupNCCL.cpp:664] Stack trace of the failed collective: ",
    "#0 barrier from /usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:4000",
    "#1 <module> from /work/train.py:99",
)


def test_site_of_the_failed_collective() -> None:
    sites = [fact for fact in facts_of("\n".join(SITES)) if fact.kind == "failed_collective_site"]
    assert [(site.rank, site["frames"][-1]) for site in sites] == [
        (0, "<module> /work/train.py:61"),
        (3, "<module> /work/train.py:99"),
    ]
    assert not [
        fact
        for fact in facts_of(
            "[rank0]:[E] Stack trace of the failed collective not found, potentially because FlightRecorder is disabled."
        )
        if fact.kind == "failed_collective_site"
    ]


@given(st.integers(0, 2**32))
def test_other_lines_do_not_matter(seed: int) -> None:
    lines = [TIMEOUTS["2.3"][0], STATUS["2.7"][0], SIGNALS["from a rank"][0], *SITES, WRAPPERS[3]]
    before = sorted(map(repr, map(essence, facts_of("\n".join(lines)))))
    assert survivors(lines, seed, rival="[rank7]") >= set(before)
