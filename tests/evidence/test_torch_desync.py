"""The desync report, fingerprints of DETAIL, monitored barriers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from reading import essence, facts_of, one, survivors


def report(rank: int, seq: int) -> list[str]:
    return [
        f"[rank{rank}]:[E520 11:08:21.344089644 ProcessGroupNCCL.cpp:1937] Rank {rank}",
        f"\t - [{rank}] Timeout at collective: ALLREDUCE, #{seq}",
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        "\t   - [1, 2] joined but didn't finish collective #204 (count from 1)",
        "\t     [5] finished collective #204, but didn't join collective #205 (count from 1)",
        "\t - Snapshot of ranks' latest states:",
        "\t   #204 finished ranks:",
        "\t     [5] finished ALLREDUCE",
        f"\t   #{seq} started ranks:",
        "\t     [0, 3] started _ALLGATHER_BASE",
    ]


def test_report_of_each_rank() -> None:
    facts = facts_of("\n".join((*report(0, 341), *report(3, 343))))
    found = [fact for fact in facts if fact.kind == "desync"]
    assert [
        (fact.rank, fact["lagging"], fact["joined"], fact["not_joined"], fact["seq"], fact["op"], fact["timeout_seq"])
        for fact in found
    ] == [
        (0, [1, 2, 5], [1, 2], [5], 204, "ALLREDUCE", 341),
        (3, [1, 2, 5], [1, 2], [5], 204, "ALLREDUCE", 343),
    ]
    states = [fact for fact in facts if fact.kind == "desync_state"]
    assert [(fact.rank, fact.seq, fact["op"], fact["state"]) for fact in states][:3] == [
        (5, 204, "ALLREDUCE", "finished"),
        (0, 341, "_ALLGATHER_BASE", "started"),
        (3, 341, "_ALLGATHER_BASE", "started"),
    ]
    assert {fact["reporter"] for fact in states} == {0, 3}


def test_ranks_that_never_joined() -> None:
    text = "\t - [0] Timeout at collective: BROADCAST, #1\n\t - To our best knowledge, ranks [2, 7] are the lagging ranks that caused this timeout. They never joined any collectives\n"
    fact = one(text, "desync")
    assert (fact.rank, fact["lagging"], fact["never_joined"], fact["op"], fact["seq"]) == (
        0,
        [2, 7],
        [2, 7],
        "BROADCAST",
        1,
    )
    assert "[2, 7]" in fact.spot.excerpt


def test_report_with_labels() -> None:
    fact = one("\n".join("[rank0]: " + line for line in report(0, 341)[1:]), "desync")
    assert (fact.rank, fact["lagging"]) == (0, [1, 2, 5])


OLD = "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(OpType=ALLGATHER, TensorShape=[37, 256], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default))), but Rank 2 is running collective: CollectiveFingerPrint(OpType=ALLGATHER, TensorShape=[36, 256], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)))."
NEW = "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=BROADCAST, TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default))), but Rank 3 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default))).Collectives differ in the following aspects: \t Op type: BROADCASTvs ALLREDUCE"


def test_old_fingerprint() -> None:
    fact = one(OLD, "fingerprint")
    assert (fact["a_rank"], fact["a_op"], fact["a_shape"], fact["a_dtype"], fact["a_seq"]) == (
        1,
        "ALLGATHER",
        "[37, 256]",
        "Float",
        None,
    )
    assert (fact["b_rank"], fact["b_op"], fact["b_shape"]) == (2, "ALLGATHER", "[36, 256]")
    assert fact["differ"] == ["shape"]


def test_new_fingerprint() -> None:
    fact = one(NEW, "fingerprint")
    assert fact.rank == 0
    assert (fact["a_rank"], fact["a_op"], fact["a_seq"], fact["b_rank"], fact["b_op"], fact["b_seq"]) == (
        0,
        "BROADCAST",
        7,
        3,
        "ALLREDUCE",
        7,
    )
    assert fact["differ"] == ["op"]


def test_fingerprint_with_several_differences() -> None:
    fact = one(
        NEW.replace("Op type: BROADCASTvs ALLREDUCE", "Sequence number: 7vs 8 \t Tensor Tensor shapes: 4vs 5"),
        "fingerprint",
    )
    assert fact["differ"] == ["shape", "seq"]


def test_barrier() -> None:
    text = "[rank2]: RuntimeError: ProcessGroupWrapper: Monitored Barrier encountered error running collective: CollectiveFingerPrint(SequenceNumber=9, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=x). Error: "
    fact = one(text, "wrapper_error")
    assert (fact.rank, fact["op"], fact["shape"], fact.seq) == (2, "ALLREDUCE", "[4]", 9)


def test_monitored_barrier() -> None:
    assert one(
        "[E ProcessGroupGloo.cpp:2810] [Rank 0]: Rank 2 failed to pass monitoredBarrier in 3000 ms", "barrier_missing"
    )["ranks"] == [2]
    many = one("RuntimeError: [Rank 0]: Ranks 1, 2, 12 failed to pass monitoredBarrier in 3000 ms", "barrier_missing")
    assert (many["ranks"], many["timeout_ms"], many.rank) == ([1, 2, 12], 3000, 0)
    innocent = one(
        "[rank1]: RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.",
        "barrier_innocent",
    )
    assert innocent.rank == 1


@given(st.integers(0, 2**32))
def test_other_lines_do_not_matter(seed: int) -> None:
    lines = [*report(0, 341), *report(3, 343), OLD, NEW]
    assert survivors(lines, seed, rival="[rank0]: R") >= {repr(essence(fact)) for fact in facts_of("\n".join(lines))}
