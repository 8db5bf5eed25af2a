"""Whose kill for memory it was: the kernel's table of tasks, the age of the process, a worker that went away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from incident import Incident, named, surely_named, told

HEAD = "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name"
LOADER = "/opt/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py"


def begun(victim: int = 5) -> tuple[Incident, float]:
    job = Incident()
    job.init()
    return job, job.steps(100, 130)


def table(
    job: Incident, at: float, host: str, tasks: Sequence[tuple[int, str]], killed: int, comm: str, memcg: str | None
) -> None:
    """The kernel's report with its table, in the boot clock's stamps."""
    job.kernel(at - 0.5, host, HEAD, "boot")
    for number, (pid, name) in enumerate(tasks):
        row = f"[{pid:>7}]  1000 {pid:>6}   605193   356597  3761856        0             0 {name}"
        job.kernel(at - 0.4 + 0.01 * number, host, row, "boot")
    job.oom(at, host, killed, comm=comm, memcg=memcg, how="boot")


def cut_off(job: Incident, at: float, rank: int, loader: str = LOADER, queue: str = "connection.py") -> None:
    """A rank loses the socket to its worker before PyTorch notices that this is dead."""
    lib = "/usr/lib/python3.12/multiprocessing"
    job.stderr(
        at,
        rank,
        'Traceback (most recent call last):\n  File "/work/fit.py", line 61, in run\n    for batch in loader:\n'
        f'  File "{loader}", line 1283, in _get_data\n    success, data = self._try_get_data()\n'
        f'  File "{lib}/queues.py", line 122, in get\n    return _ForkingPickler.loads(res)\n'
        f'  File "{lib}/{queue}", line 399, in _recv\n    raise EOFError\nEOFError',
    )


def test_a_workers_kill_in_the_ranks_own_group_is_the_ranks(tmp_path: Path) -> None:
    """The worker's number is nowhere else; the rank beside it in the table is, and one rank lost a worker."""
    job, end = begun()
    here = [(job.pid(rank), "python3") for rank in job.ranks if job.host(rank) == "node-02"]
    table(job, end + 1, "node-02", [*here, (52001, "loader"), (52002, "worker-7")], 52002, "worker-7", "/box/a41")
    cut_off(job, end + 2, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("host_oom", [5]), told(verdict)
    assert verdict.mechanism == "dead", told(verdict)


def test_a_lost_socket_to_a_worker_alone_is_no_kill_for_memory(tmp_path: Path) -> None:
    job, end = begun()
    cut_off(job, end + 2, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "host_oom" or verdict.grade not in ("likely", "proven"), told(verdict)
    assert surely_named(verdict) in ([], [5]), told(verdict)


def test_a_socket_to_a_peer_is_none_to_a_worker(tmp_path: Path) -> None:
    """The same error outside the loader says nothing of a worker, whatever was killed in the job's group."""
    job, end = begun()
    here = [(job.pid(rank), "python3") for rank in job.ranks if job.host(rank) == "node-02"]
    table(job, end + 1, "node-02", [*here, (52002, "python3")], 52002, "python3", "/box/a41")
    cut_off(job, end + 2, 5, loader="/work/rpc/client.py")
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.cause != "host_oom" or verdict.grade != "proven", told(verdict)


def test_a_process_older_than_all_ranks_is_none_of_them(tmp_path: Path) -> None:
    """Another job of the same form on the same host, some time before: its log has no date."""
    job, end = begun()
    job.killed(end + 2, 5)
    others = [(31010 + number, "python3") for number in range(4)]
    table(job, end - 40, "node-02", others, 31012, "python3", "/box/7")
    job.time_out(end + 602, seq=131, but=[4, 5, 6, 7])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("killed", [5]), told(verdict)


def test_a_younger_process_may_be_one_by_the_hosts_numbers(tmp_path: Path) -> None:
    """In a container the ranks' own numbers are small: what the kernel calls them is not known."""
    job = Incident(first_pid=71)
    job.init()
    end = job.steps(100, 130)
    job.killed(end + 2, 5)
    job.oom(end + 1, "node-02", 93055)
    job.time_out(end + 602, seq=131, but=[4, 5, 6, 7])

    verdicts = {verdict.cause: verdict for verdict in job.report(tmp_path).verdicts}

    assert set(verdicts) & {"host_oom", "killed", "undecided"}
    first = next(iter(verdicts.values()))
    assert first.cause != "killed" or first.grade not in ("likely", "proven"), told(first)
