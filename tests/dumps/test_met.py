"""gloo, dumps and logs together: all were there in time, or a size did not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import SURE, Incident, named, surely_named, told
from recorded import Job, report_on

LATE = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:{line}] Timed out waiting {ms}ms for {way} operation to complete"


def both(hosts: int = 2, *, frames: bool = True) -> tuple[Incident, Job, float]:
    logs = Incident(ranks=4, hosts=hosts, limit_s=60)
    for rank in logs.ranks:
        logs.say(0.5, rank, f"up on {logs.host(rank)} as pid {logs.pid(rank)}")
    logs.init()
    end = logs.steps(1, 20)
    dumps = Job(4, backend="gloo", timeout_s=60, frames=frames)
    dumps.wait(end - 3)
    dumps.steps(20)
    return logs, dumps, end


def timed_out(logs: Incident, at: float, ranks: list[int]) -> None:
    for rank in ranks:
        way, line = ("recv", 78) if rank % 2 else ("send", 129)
        text = LATE.format(line=line, ms=60000, way=way)
        frame = '  File "/work/fit.py", line 88, in main\n    dist.all_reduce(total)\n'
        logs.stderr(at + 0.01 * rank, rank, f"Traceback (most recent call last):\n{frame}{text}")


def verdict_of(logs: Incident, dumps: Job, folder: Path, but: tuple[int, ...] = ()):  # type: ignore[no-untyped-def]
    logs.write(folder)
    dumps.write(folder, names="fr/comm_lib_trace_rank_{rank}", but=but)
    return report_on(folder).verdicts[0]


def test_all_in_one_call_on_two_hosts_and_it_times_out(tmp_path: Path) -> None:
    logs, dumps, end = both()
    dumps.call("all_reduce", ended=True)  # gloo retires what failed
    timed_out(logs, end + 62, [0, 1, 2, 3])

    verdict = verdict_of(logs, dumps, tmp_path)

    assert verdict.mechanism == "network" and not named(verdict), told(verdict)
    assert verdict.cause in ("network", "undecided") and verdict.grade not in ("proven",), told(verdict)


def test_on_one_host_it_is_no_network(tmp_path: Path) -> None:
    logs, dumps, end = both(hosts=1)
    dumps.call("all_reduce", ended=True)
    timed_out(logs, end + 62, [0, 1, 2, 3])

    verdict = verdict_of(logs, dumps, tmp_path)

    assert verdict.mechanism != "network" and verdict.cause != "network", told(verdict)


def test_who_made_the_call_when_the_others_had_given_up_was_late(tmp_path: Path) -> None:
    logs, dumps, end = both()
    dumps.call("all_reduce", but=[2], ended=True)
    dumps.wait(75)
    dumps.call("all_reduce", only=[2], ended=True)
    timed_out(logs, end + 62, [0, 1, 3])

    verdict = verdict_of(logs, dumps, tmp_path)

    assert verdict.mechanism != "network", told(verdict)


def sizes(logs: Incident, at: float, rank: int, received: int, expected: int) -> None:
    logs.stderr(
        at,
        rank,
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        f"  what():  [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. {received} vs {expected}. ",
    )


@pytest.mark.parametrize(
    ("rows", "spoke", "received", "expected", "odd"), [(40, 1, 200, 160, [1]), (60, 2, 240, 200, [3])]
)
def test_whose_size_departs(
    rows: int, spoke: int, received: int, expected: int, odd: list[int], tmp_path: Path
) -> None:
    """50 floats on most ranks: who had room for less is the odd one, or the neighbour of who sends more."""
    logs, dumps, end = both()
    dumps.call("all_gather", sizes=[[50]], but=[odd[0]], ended=False)
    sizes(logs, end + 1, spoke, received, expected)

    verdict = verdict_of(logs, dumps, tmp_path, but=tuple({spoke, *odd}))

    assert (verdict.cause, verdict.mechanism) == ("desync_mismatch", "mismatch"), told(verdict)
    assert named(verdict) in (odd, []), told(verdict)
    assert surely_named(verdict) in (odd, []), told(verdict)


def test_without_dumps_the_one_that_says_it_is_not_sure_to_be_it(tmp_path: Path) -> None:
    logs, _, end = both()
    sizes(logs, end + 1, 3, 8192, 6144)
    logs.write(tmp_path)

    verdict = report_on(tmp_path).verdicts[0]

    assert verdict.mechanism == "mismatch", told(verdict)
    assert verdict.rank_grade not in SURE, told(verdict)
