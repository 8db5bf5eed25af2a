"""The first failure, not the loudest: what falls afterwards explains nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import GENERATIONS, LAYOUTS, Incident, named, surely_named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
# An unlabelled traceback of torch 2.1 in a shared file belongs to nobody: such files are told from in test_victims.
labelled = pytest.mark.parametrize("torch", GENERATIONS[1:])


def begun(layout: str, torch: str = "2.7", **more: object) -> tuple[Incident, float]:
    job = Incident(layout=layout, torch=torch, **more)  # type: ignore[arg-type]
    job.init()
    return job, job.steps(100, 130)


@every_layout
@labelled
def test_exception_before_connections_closed(layout: str, torch: str, tmp_path: Path) -> None:
    job, end = begun(layout, torch)
    job.crash(end + 1, 5)
    job.closed_by_peer(end + 4, job.others(5), 5)
    job.exits(end + 6, 5, 1)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)
    assert verdict.grade in ("likely", "proven"), told(verdict)
    assert verdict.mechanism == "dead", told(verdict)
    assert verdict.action.do == "fix_code", told(verdict)


@every_layout
def test_fatal_traceback_before_any_other_failure_decides_alone(layout: str, tmp_path: Path) -> None:
    """docs/report.md names it among the evidence that proves by itself."""
    job, end = begun(layout)
    job.crash(end + 1, 5)
    job.exits(end + 6, 5, 1, hosts=["node-02"])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, verdict.grade) == ("exception", "proven"), told(verdict)
    assert (named(verdict), verdict.rank_grade) == ([5], "proven"), told(verdict)


@every_layout
@labelled
def test_exception_before_timeouts(layout: str, torch: str, tmp_path: Path) -> None:
    job, end = begun(layout, torch)
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5], first=0)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)


@every_layout
@labelled
def test_gpu_memory_before_everything_else(layout: str, torch: str, tmp_path: Path) -> None:
    job, end = begun(layout, torch)
    job.crash(
        end + 1,
        5,
        "torch.OutOfMemoryError",
        "CUDA out of memory. Tried to allocate 11.62 GiB. GPU 1 has a total capacity of 79.11 GiB of which 3.20 GiB is free.",
    )
    job.closed_by_peer(end + 4, job.others(5), 5)
    job.crash(end + 30, 1, "ValueError", "cannot flush the metrics of a broken run")
    job.exits(end + 40, 5, 1)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("cuda_oom", [5]), told(verdict)


@pytest.mark.parametrize("layout", ["per-rank", "per-node"])
@pytest.mark.parametrize(("first", "second"), [(5, 1), (1, 5)])
def test_the_earlier_of_two_exceptions_by_time(layout: str, first: int, second: int, tmp_path: Path) -> None:
    """Two files: their clocks tell, not the order in which they are read."""
    job, end = begun(layout)
    job.crash(end + 1, first, "KeyError", "'mask'")
    job.say(end + 60, second, "flushing metrics before exit")
    job.crash(end + 61, second, "RuntimeError", "metrics writer is closed", "/work/metrics.py")

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [first]), told(verdict)


@pytest.mark.parametrize(("first", "second"), [(5, 1), (1, 5)])
def test_the_earlier_of_two_exceptions_by_line(first: int, second: int, tmp_path: Path) -> None:
    """One file without stamps: the order of its lines tells."""
    job, end = begun("merged", stamps="none")
    job.crash(end + 1, first, "KeyError", "'mask'")
    for rank in job.others(first):
        job.say(end + 2 + 0.01 * rank, rank, "waiting for the others to finish the epoch")
    job.crash(end + 61, second, "RuntimeError", "metrics writer is closed", "/work/metrics.py")

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [first]), told(verdict)


@every_layout
def test_skewed_stamps_within_a_file_do_not_turn_its_order(layout: str, tmp_path: Path) -> None:
    """The traceback stands before the abort in rank 5's own file, although the C++ clock there is a minute behind."""
    job, end = begun(layout)
    job.crash(end + 1, 5)
    job.raw(
        end + 1.5,
        job.file_of(5),
        f"[rank5]:[W{job.glog(end - 60)}000 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
    )
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)


@every_layout
def test_gloo_closed_by_peer_is_a_shadow(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    job.crash(end + 1, 5)
    for rank in job.others(5):
        job.stderr(
            end + 2 + 0.1 * rank,
            rank,
            'Traceback (most recent call last):\n  File "/work/train.py", line 190, in main\n    dist.barrier()\n'
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.8]:41122. This may indicate a remote application crash.",
        )

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)


@every_layout
def test_closed_connections_alone_name_no_survivor(layout: str, tmp_path: Path) -> None:
    """Rank 5's own log shows nothing: its peers saw it go, and they are victims."""
    job, end = begun(layout)
    job.closed_by_peer(end + 4, job.others(5), 5)
    job.exits(end + 6, 0, 1, hosts=["node-01"])

    verdict = job.verdict(tmp_path)

    assert set(named(verdict)) <= {5}, told(verdict)
    assert verdict.cause not in ("exception",), told(verdict)


@every_layout
def test_a_caught_exception_is_not_the_cause(layout: str, tmp_path: Path) -> None:
    """Rank 2 logs a traceback, goes on for thirty steps, and waits with the others in the end."""
    job = Incident(layout=layout)
    job.init()
    middle = job.steps(100, 110)
    job.crash(middle + 0.5, 2, "OSError", "[Errno 5] Input/output error: '/data/shard-0041.tar'")
    end = job.steps(111, 140, at=middle + 2)
    job.crash(end + 1, 5, "KeyError", "'mask'")
    job.time_out(end + 602, seq=141, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)


@every_layout
def test_a_stop_from_outside_is_no_exception(layout: str, tmp_path: Path) -> None:
    """SignalException and KeyboardInterrupt echo who stopped the job."""
    job, end = begun(layout)
    for rank in job.ranks:
        job.stderr(
            end + 3 + 0.1 * rank,
            rank,
            'Traceback (most recent call last):\n  File "/work/train.py", line 190, in main\n    loss.backward()\nKeyboardInterrupt',
        )
    job.agent(
        end + 4,
        "node-01",
        "Received Signals.SIGTERM death signal, shutting down workers",
        "W",
        "agent/server/api.py:722",
    )

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "exception", told(verdict)
    assert surely_named(verdict) == [], told(verdict)


@every_layout
def test_killed_before_the_timeouts(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    job.killed(end + 2, 5)
    job.closed_by_peer(end + 3, [0, 1, 2, 3], 5)
    job.time_out(end + 602, seq=131, ranks=[0, 1, 2, 3])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("killed", [5]), told(verdict)


@every_layout
def test_an_exception_after_the_kill_explains_nothing(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    job.oom(end + 1, "node-02", job.pid(5))
    job.killed(end + 2, 5)
    job.crash(end + 90, 1, "ValueError", "heartbeat of rank 5 is older than a minute", "/work/monitor.py")
    job.time_out(end + 602, seq=131, ranks=[0, 2, 3])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("host_oom", [5]), told(verdict)


@every_layout
def test_a_kernels_kill_after_the_timeouts_explains_nothing(layout: str, tmp_path: Path) -> None:
    """All eight dump core at once and the host runs out of memory while they do: twenty minutes after the hang began."""
    job, end = begun(layout)
    job.time_out(end + 602, seq=131)
    job.oom(end + 640, "node-02", job.pid(5))

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "host_oom", told(verdict)
    assert surely_named(verdict) == [], told(verdict)


@every_layout
def test_secondary_xid_is_not_the_fault(layout: str, tmp_path: Path) -> None:
    """79 on rank 5's GPU; 43 and 45 on others are the clean-up."""
    job, end = begun(layout)
    job.excusable = {"node-02"}
    job.kernel(
        end + 1,
        "node-02",
        "NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    )
    for rank in (0, 1, 2, 3):
        job.kernel(
            end + 640,
            "node-01",
            f"NVRM: Xid (PCI:0000:{0x1B + 0x10 * job.local(rank):02x}:00): 45, pid={job.pid(rank)}, name=python3, Ch 00000010",
        )
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "gpu_fault", told(verdict)
    assert (named(verdict), verdict.hosts) == ([5], ("node-02",)), told(verdict)


@every_layout
def test_xid_43_alone_proves_no_hardware(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    job.kernel(end + 640, "node-02", f"NVRM: Xid (PCI:0000:2b:00): 43, pid={job.pid(5)}, name=python3, Ch 00000010")
    job.time_out(end + 602, seq=131)

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "gpu_fault" or verdict.grade not in ("likely", "proven"), told(verdict)
    assert surely_named(verdict) == [], told(verdict)


@every_layout
def test_an_old_xid_explains_nothing(layout: str, tmp_path: Path) -> None:
    """Last week's fault of the same GPU."""
    job, end = begun(layout)
    job.kernel(
        -6 * 86400.0,
        "node-02",
        "NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    )
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)
