"""SIGKILL has many senders: memory only where the kernel, the cgroup or the scheduler says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, named, surely_named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def killed(layout: str = "per-rank", torch: str = "2.7", *, victim: int = 5, **more: object) -> tuple[Incident, float]:
    job = Incident(layout=layout, torch=torch, **more)  # type: ignore[arg-type]
    job.init()
    end = job.steps(100, 130)
    job.killed(end + 2, victim)
    here = [rank for rank in job.ranks if job.host(rank) == job.host(victim)]
    job.time_out(end + 602, seq=131, but=here)
    return job, end + 2


@every_layout
@pytest.mark.parametrize("torch", ["2.1", "2.3", "2.7"])
def test_bare_exit_minus_9_is_killed_and_no_oom(layout: str, torch: str, tmp_path: Path) -> None:
    job, _ = killed(layout, torch)

    report = job.report(tmp_path)
    verdict = report.verdicts[0]

    assert (verdict.cause, named(verdict), verdict.hosts) == ("killed", [5], ("node-02",)), told(verdict)
    assert all(
        other.cause != "host_oom" or other.grade == "undecided" or other.grade == "possible"
        for other in report.verdicts
    )
    assert not verdict.action.exclude_hosts
    assert verdict.mechanism == "dead", told(verdict)


@every_layout
@pytest.mark.parametrize("how", ["dmesg-T", "boot", "syslog"])
def test_kernels_line_for_the_ranks_pid_proves_host_oom(layout: str, how: str, tmp_path: Path) -> None:
    job, at = killed(layout)
    job.oom(at - 1, "node-02", job.pid(5), how=how)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, verdict.grade) == ("host_oom", "proven"), told(verdict)
    assert (named(verdict), verdict.rank_grade) == ([5], "proven"), told(verdict)
    assert any("Killed process" in proof.excerpt for proof in verdict.because)


@every_layout
def test_kernels_line_alone_is_enough_with_a_silent_rank(layout: str, tmp_path: Path) -> None:
    """No exit code was collected."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.oom(end + 2, "node-02", job.pid(5))
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, verdict.grade, named(verdict)) == ("host_oom", "proven", [5]), told(verdict)


@every_layout
def test_neighbours_process_is_no_oom_of_the_rank(layout: str, tmp_path: Path) -> None:
    """The same host, the same minute, a person's notebook in its own slice."""
    job, at = killed(layout)
    job.oom(at - 40, "node-02", 77123, comm="jupyter-lab", memcg="/user.slice/user-1017.slice")

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("killed", [5]), told(verdict)


@every_layout
def test_neighbours_python_in_a_user_slice_is_no_oom_of_the_rank(layout: str, tmp_path: Path) -> None:
    job, at = killed(layout)
    job.oom(at - 40, "node-02", 77123, comm="python3", memcg="/user.slice/user-1017.slice/session-22.scope")

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("killed", [5]), told(verdict)


@every_layout
def test_neighbours_pid_never_proves_it(layout: str, tmp_path: Path) -> None:
    """A python process of unknown owner: it may have been this job's, and may not."""
    job, at = killed(layout)
    job.oom(at - 1, "node-02", 77123)

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "host_oom" or verdict.grade != "proven", told(verdict)
    assert set(named(verdict)) <= {5}, told(verdict)


@every_layout
def test_another_slurm_jobs_cgroup_is_not_ours(layout: str, tmp_path: Path) -> None:
    job, at = killed(layout)
    job.raw(
        at + 3,
        job.launcher_file("node-02"),
        "slurmstepd: error: *** STEP 512077.0 ON node-01 CANCELLED AT 2026-11-30T05:01:15 ***",
    )
    job.oom(at - 1, "node-02", 77123, memcg="/system.slice/slurmstepd.scope/job_499031/step_0")

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "host_oom" or verdict.grade not in ("likely", "proven"), told(verdict)


@every_layout
def test_killed_dataloader_worker_is_the_ranks_oom(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.oom(end + 1, "node-02", 52001, comm="pt_data_worker", memcg="/kubepods/burstable/pod0aa")
    job.crash(
        end + 2,
        5,
        "RuntimeError",
        "DataLoader worker (pid 52001) is killed by signal: Killed. ",
        "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
        1251,
    )
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("host_oom", [5]), told(verdict)
    assert verdict.grade in ("likely", "proven"), told(verdict)


@every_layout
def test_the_same_pid_on_another_host_is_another_process(layout: str, tmp_path: Path) -> None:
    """Hosts number their processes independently."""
    job, at = killed(layout)
    job.quiet_kernel(["node-02"])
    job.oom(at - 1, "node-01", job.pid(5))

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict), verdict.hosts) == ("killed", [5], ("node-02",)), told(verdict)


@every_layout
def test_same_pid_on_both_hosts_is_the_rank_of_the_kernels_host(layout: str, tmp_path: Path) -> None:
    """Containers: local pids repeat over the hosts, and node-01's kernel speaks of node-01's rank."""
    job = Incident(layout=layout)
    job.pid = lambda rank: 41200 + job.local(rank)  # type: ignore[method-assign]
    job.init()
    end = job.steps(100, 130)
    job.oom(end + 2, "node-01", job.pid(1))
    job.time_out(end + 602, seq=131, but=[1])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict), verdict.hosts) == ("host_oom", [1], ("node-01",)), told(verdict)


@every_layout
def test_a_pid_that_was_used_before_is_not_the_rank(layout: str, tmp_path: Path) -> None:
    """The kernel killed a process of that number the day before: the number was given out again."""
    job, _ = killed(layout)
    job.oom(-86400.0, "node-02", job.pid(5))

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("killed", [5]), told(verdict)


@every_layout
@pytest.mark.parametrize(
    "text",
    [
        "memory guard: Killed process 41207 (python3) total-vm:221356012kB, anon-rss:150944000kB because it grew too large",
        "watching dmesg for 'Out of memory: Killed process'",
        "Out of memory: Killed process 41207 (python3) total-vm:221356012kB, anon-rss:150944000kB, file-rss:68kB",
    ],
)
def test_a_training_script_is_not_the_kernel(layout: str, text: str, tmp_path: Path) -> None:
    job, at = killed(layout)
    job.say(at - 3, 0, text.replace("41207", str(job.pid(5))))

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "host_oom", told(verdict)


@every_layout
def test_slurms_word_for_the_task_is_the_ranks_oom(layout: str, tmp_path: Path) -> None:
    """One task a rank: task 5 is rank 5."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.raw(
        end + 3,
        "slurm-512077.out",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=512077.0. Some of the step tasks have been OOM Killed.\nsrun: error: node-02: task 5: Out Of Memory",
    )
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("host_oom", [5]), told(verdict)
    assert verdict.grade in ("likely", "proven"), told(verdict)


def test_exit_137_of_a_pod_is_only_a_sigkill(tmp_path: Path) -> None:
    job, _ = killed("per-node")
    job.raw(
        0,
        "describe.txt",
        "Name:         node-02\nNamespace:    ml\nNode:         worker-7/10.0.0.7\nStatus:       Running\n    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    137",
    )

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "killed", told(verdict)


def test_oomkilled_of_a_pod_is_the_kernels_word(tmp_path: Path) -> None:
    job, _ = killed("per-node")
    job.raw(
        0,
        "describe-node-02.txt",
        "Name:             node-02\nNamespace:        ml\nNode:             worker-7/10.0.0.7\nStatus:           Running\nContainers:\n  trainer:\n    State:          Running\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
    )

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "host_oom", told(verdict)
    assert set(named(verdict)) <= {4, 5, 6, 7}, told(verdict)


@every_layout
def test_kill_by_the_launcher_after_an_exception_is_cleaning_up(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, 5)
    job.agent(
        end + 2, "node-02", f"Sending process {job.pid(4)} closing signal SIGTERM", "W", "multiprocessing/api.py:900"
    )
    job.agent(
        end + 32,
        "node-02",
        f"Unable to shutdown process {job.pid(4)} via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL",
        "W",
        "multiprocessing/api.py:919",
    )
    job.agent(
        end + 33, "node-02", f"failed (exitcode: 1) local_rank: 1 (pid: {job.pid(5)}) of binary: /opt/venv/bin/python3"
    )
    job.summary(end + 34, "node-02", 5, 1, [(4, -9), (6, -15), (7, -15)])
    job.time_out(end + 602, seq=131, ranks=[0, 1, 2, 3])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)


@every_layout
def test_sigterm_is_never_the_root(layout: str, tmp_path: Path) -> None:
    """All that was kept is the end of node-01's launcher: it stops its own ranks."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.exits(end + 5, 0, -15, hosts=["node-01"])

    verdict = job.verdict(tmp_path)

    assert surely_named(verdict) == [], told(verdict)
    assert verdict.cause not in ("killed", "host_oom", "exception"), told(verdict)
