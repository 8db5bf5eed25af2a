"""What is measured beside the job: RAS polls, runs of nccl-tests, NCCL Inspector, the compiler's lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from incident import SURE, Incident, named, surely_named, told, words

MISMATCH = """Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (c41f7e0b93aa5d26) MISMATCH
  Communicator ranks have different AllReduce operation counts
{sets}
"""


def outlier(job: Incident, rank: int, count: int) -> str:
    return f"  Rank {rank} has launched up to operation {count} -- GPU {job.local(rank)} managed by process {job.pid(rank)} on node 10.0.0.{11 + rank // 4}"


def polled(job: Incident, at: float, level: int, counts: Mapping[int, int]) -> None:
    """One text report: most ranks at `level`, the outliers listed."""
    sets = [f"  {job.size - len(counts)} ranks have launched up to operation {level}"]
    sets += [outlier(job, rank, count) for rank, count in counts.items()]
    job.raw(at, f"ras_{at:.0f}.txt", MISMATCH.format(sets="\n".join(sets)))


def hung(tmp_path: Path, polls: Sequence[tuple[int, Mapping[int, int]]], timeouts: bool = False):  # type: ignore[no-untyped-def]
    job = Incident()
    job.init()
    end = job.steps(100, 130)
    for number, (level, counts) in enumerate(polls):
        polled(job, end + 60 * number, level, counts)
    if timeouts:
        job.time_out(end + 602, seq=131)
    return job.verdict(tmp_path)


def test_the_same_counts_in_three_polls(tmp_path: Path) -> None:
    verdict = hung(tmp_path, [(650, {5: 642})] * 3)

    assert named(verdict) == [5] and verdict.rank_grade in SURE, told(verdict)
    assert "the same in 3 polls" in words(verdict)


def test_one_poll_is_no_proof(tmp_path: Path) -> None:
    verdict = hung(tmp_path, [(650, {5: 642})])

    assert not surely_named(verdict), told(verdict)


def test_counts_that_grow_blame_nobody(tmp_path: Path) -> None:
    verdict = hung(tmp_path, [(650, {5: 649}), (702, {5: 700})])

    assert not named(verdict), told(verdict)


def test_ranks_ahead_are_told_and_not_blamed(tmp_path: Path) -> None:
    """The report lists whoever stands apart: here the two that ran ahead."""
    verdict = hung(tmp_path, [(650, {1: 651, 6: 651})] * 3, timeouts=True)

    assert not {1, 6} & set(named(verdict)), told(verdict)

    verdict = hung(tmp_path / "both", [(650, {1: 651, 5: 642})] * 3)
    assert named(verdict) == [5], told(verdict)
    assert "rank 1 is ahead" in words(verdict)


def bench(
    hosts: Sequence[str], busbw: float, size: int = 1 << 30, gpu: str = "NVIDIA H100 80GB HBM3", per: int = 8
) -> str:
    ranks = "\n".join(
        f"#  Rank {n:2d} Group  0 Pid {4100 + n:6d} on {hosts[n // per]:>10s} device {n % per:2d} [0000:{27 + n % per:02x}:00] {gpu}"
        for n in range(per * len(hosts))
    )
    factor = 2 * (per * len(hosts) - 1) / (per * len(hosts))
    row = f"{size:12d} {size // 4:12d}     float     sum      -1  {size / busbw * factor / 1e3:.1f}  {busbw / factor:.2f}  {busbw:.2f}       0  {size / busbw * factor / 1e3:.1f}  {busbw / factor:.2f}  {busbw:.2f}       0"
    return f"# Collective test starting: all_reduce_perf\n{ranks}\n#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n{row}\n# Out of bounds values : 0 OK"


def benched(tmp_path: Path, runs: Sequence[str]):  # type: ignore[no-untyped-def]
    job = Incident()
    job.init()
    end = job.steps(100, 130)
    for number, run in enumerate(runs):
        job.raw(end, f"bench/{number}.txt", run)
    job.time_out(end + 602, seq=131)
    return job.verdict(tmp_path)


def test_the_node_that_all_slow_pairs_share(tmp_path: Path) -> None:
    runs = [
        bench(["rail-1", "rail-2"], 431),
        bench(["rail-1", "rail-3"], 204),
        bench(["rail-2", "rail-3"], 199),
        bench(["rail-1", "rail-4"], 440),
    ]
    verdict = benched(tmp_path, runs)

    assert (verdict.cause, verdict.hosts) == ("network", ("rail-3",)), told(verdict)


def test_sets_of_more_than_two_nodes(tmp_path: Path) -> None:
    """Halving: of four runs on three nodes each, those with rail-5 are slow."""
    runs = [
        bench(["rail-1", "rail-2", "rail-3"], 380),
        bench(["rail-1", "rail-5", "rail-3"], 150),
        bench(["rail-2", "rail-5", "rail-4"], 148),
        bench(["rail-2", "rail-3", "rail-4"], 377),
    ]
    verdict = benched(tmp_path, runs)

    assert verdict.cause == "network" and "rail-5" in verdict.hosts, told(verdict)


def test_sound_runs_say_nothing(tmp_path: Path) -> None:
    runs = [bench(["rail-1", "rail-2"], 431), bench(["rail-1", "rail-3"], 425), bench(["rail-2", "rail-3"], 447)]

    assert "GB/s" not in words(benched(tmp_path, runs))


@pytest.mark.parametrize(
    ("hosts", "busbw", "size", "gpu", "told_of"),
    [
        (["rail-1", "rail-2"], 92.0, 1 << 30, "NVIDIA H100 80GB HBM3", True),
        (["rail-1", "rail-2"], 431.0, 1 << 30, "NVIDIA H100 80GB HBM3", False),
        (["rail-1", "rail-2"], 92.0, 1 << 20, "NVIDIA H100 80GB HBM3", False),  # latency, not bandwidth
        (["rail-1", "rail-2"], 92.0, 1 << 30, "NVIDIA L40S", False),  # nothing is known of these
        (["rail-1"], 43.0, 1 << 30, "NVIDIA A100-SXM4-80GB", True),
    ],
)  # fmt: skip
def test_one_run_against_what_such_machines_reach(
    hosts: list[str], busbw: float, size: int, gpu: str, told_of: bool, tmp_path: Path
) -> None:
    from whichrank.evidence import Evidence, read_piece
    from whichrank.findings import examine
    from whichrank.job.build import build

    evidence = Evidence()
    read_piece("bench.txt", bench(hosts, busbw, size, gpu).encode(), evidence)
    short = examine(build(evidence)[0]).network.measured.short

    assert (short is not None) == told_of
    assert short is None or (short.inside == (len(hosts) == 1) and short.reached.source)


def inspected(rank: int, host: str, times: Sequence[int], *, nnodes: int = 2) -> str:
    return "".join(
        json.dumps(
            {
                "header": {"id": "0x4cd1e07b", "rank": rank, "n_ranks": 4, "nnodes": nnodes},
                "metadata": {
                    "inspector_output_format_version": "v4.0",
                    "dump_timestamp_us": 1796015000000000 + sn,
                    "hostname": host,
                    "pid": 700 + rank,
                },
                "coll_perf": {
                    "coll": "AllReduce",
                    "coll_sn": sn,
                    "coll_msg_size_bytes": 1 << 26,
                    "coll_exec_time_us": us,
                    "coll_busbw_gbs": 90.0,
                },
            },
            separators=(",", ":"),
        )
        + "\n"
        for sn, us in enumerate(times, 1)
    )


@pytest.mark.parametrize(("late", "own", "named_"), [(2, 200, True), (2, 8000, False)])
def test_the_rank_that_enters_last(late: int, own: int, named_: bool, tmp_path: Path) -> None:
    """All leave together: the one with the shortest time is the one they wait for. 8 of 12 ms tells nobody apart."""
    job = Incident(ranks=4)
    for rank in job.ranks:
        times = [own if rank == late else 12000 + 100 * (sn % 3) for sn in range(20)]
        job.raw(0, f"insp/{job.host(rank)}-pid{700 + rank}.log", inspected(rank, job.host(rank), times).rstrip("\n"))

    verdict = job.verdict(tmp_path)

    assert (late in named(verdict)) == named_, told(verdict)
    assert verdict.rank_grade != "proven", told(verdict)


STEP3 = "[rank{rank}]:I{when}000 {pid} torch/_inductor/compile_fx.py:1302] [0/0] Step 3: torchinductor {what} FORWARDS graph 0"


@pytest.mark.parametrize("finished", [False, True])
def test_one_rank_compiles_while_the_others_wait(finished: bool, tmp_path: Path) -> None:
    job = Incident()
    job.init()
    end = job.steps(100, 130)

    def graph(at: float, rank: int, what: str) -> None:
        job.raw(at, job.file_of(rank), STEP3.format(rank=rank, when=job.glog(at), pid=job.pid(rank), what=what))

    for rank in job.ranks:
        graph(2, rank, "compiling")
        graph(8, rank, "done compiling")
    graph(end + 1, 5, "compiling")
    if finished:  # long before the others began to wait
        graph(end + 1.5, 5, "done compiling")
    job.time_out(end + 612, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert ("compiling FORWARDS graph 0" in words(verdict)) == (not finished), told(verdict)
    if not finished:
        assert (verdict.cause, named(verdict)) == ("slow_compute", [5]), told(verdict)


def test_a_graph_break_is_not_compiling_for_ever(tmp_path: Path) -> None:
    """A frame that Dynamo gives up prints no end of its tracing: what the rank said afterwards shows that it went on."""
    job = Incident()
    job.init()
    for rank in job.ranks:
        job.raw(
            2,
            job.file_of(rank),
            f"[rank{rank}]:I{job.glog(2)}000 {job.pid(rank)} torch/_dynamo/symbolic_convert.py:5335] [0/0] Step 1: torchdynamo start tracing inner /opt/lib/external_utils.py:67",
        )
    end = job.steps(100, 130)
    job.time_out(end + 612, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert "compiling" not in words(verdict) and verdict.cause != "slow_compute", told(verdict)
