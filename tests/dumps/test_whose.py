"""Whose dump a file is: names, folders, groups and placement; attempts, copies and leftovers in one folder."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "evidence"))
import rings
from rings import content, dumped

from whichrank import diagnose
from whichrank.model import Report

WORLD, STUCK = 8, 5
SECOND = 1_000_000_000


def host(rank: int) -> str:
    return f"cn-0{rank // 4 + 1}"


def pid(rank: int) -> int:
    return 40_000 + 7 * rank


def bare(rank: int) -> bytes:
    """The same calls as PyTorch 2.2 writes them: a list, without members of groups."""
    entries = [
        {
            "pg_id": 0,
            "seq_id": entry["collective_seq_id"],
            "time_created": entry["time_created_ns"] // 1000,
            **{
                name: entry[name]
                for name in ("profiling_name", "input_sizes", "output_sizes", "state", "retired", "frames")
            },
        }
        for entry in content(rank, world=WORLD, stuck=STUCK)["entries"]
    ]
    return pickle.dumps(entries, protocol=2)


def of_all(name: str, how: str = "dict") -> dict[str, bytes]:
    """Every rank's dump under a name made of {host}, {pid}, {rank}, {local}."""
    return {
        name.format(host=host(rank), pid=pid(rank), rank=rank, local=rank % 4): bare(rank)
        if how == "list"
        else dumped(rank, world=WORLD, stuck=STUCK)
        for rank in range(WORLD)
    }


def asked(folder: Path, files: Mapping[str, bytes], placement: str | None = None, **how: int) -> Report:
    for name, data in files.items():
        path = folder / "dumps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    given = folder / "layout.txt"
    if placement is not None:
        given.write_text(placement)
    return diagnose([str(folder / "dumps")], placement=str(given) if placement is not None else None, **how)


def named(report: Report) -> list[tuple[int | None, str | None]]:
    return [(culprit.rank, culprit.host) for culprit in report.verdicts[0].culprits]


def whys(report: Report) -> str:
    return "\n".join(f"{gap.what}: {gap.why}" for gap in report.gaps)


ROWS = "\n".join(f"{rank} {host(rank)} {rank % 4} {pid(rank)}" for rank in range(WORLD))
TABLE = f"rank host local_rank pid\n{ROWS}\n"


@pytest.mark.parametrize("how", ["dict", "list"])
@pytest.mark.parametrize(
    "placement", [TABLE, ROWS, "\n".join(f"rank {rank}: {host(rank)}:{pid(rank)}" for rank in range(WORLD))]
)
def test_a_process_in_the_name_is_looked_up(placement: str, how: str, tmp_path: Path) -> None:
    report = asked(tmp_path, of_all("fr_{host}_{pid}.pkl", how), placement)

    assert named(report) == [(STUCK, host(STUCK))]
    assert report.verdicts[0].culprits[0].pid == pid(STUCK)
    assert report.verdicts[0].rank_grade == "proven"
    assert "Flight Recorder dump, but" not in whys(report)


@pytest.mark.parametrize("how", ["dict", "list"])
def test_without_a_placement_a_pid_is_no_rank(how: str, tmp_path: Path) -> None:
    report = asked(tmp_path, of_all("fr_{host}_{pid}.pkl", how))

    assert named(report) == []
    assert whys(report).count("Flight Recorder dump, but") == WORLD
    assert report.summary.world_size in (None, WORLD)


def test_a_layout_that_lies_beside_the_dumps_is_as_good(tmp_path: Path) -> None:
    report = asked(tmp_path, {**of_all("fr_{host}_{pid}.pkl"), "where.txt": TABLE.encode()})

    assert named(report) == [(STUCK, host(STUCK))]


@pytest.mark.parametrize(
    "row", ["pod-{0}: rank {rank}", '"pod-{0}": {rank}', "pod-{0} {rank}"], ids=["sentence", "json", "row"]
)
def test_a_pod_that_is_one_rank(row: str, tmp_path: Path) -> None:
    """Pods are not numbered as ranks are."""
    turned = {rank: (rank + 3) % WORLD for rank in range(WORLD)}
    rows = [row.format(turned[rank], rank=rank) for rank in range(WORLD)]
    placement = "{" + ",\n".join(rows) + "}" if row.startswith('"') else "\n".join(rows)
    files = {f"pod-{turned[rank]}/dump.pickle": dumped(rank, world=WORLD, stuck=STUCK) for rank in range(WORLD)}

    assert named(asked(tmp_path, files, placement)) == [(STUCK, f"pod-{turned[STUCK]}")]


def test_a_pod_and_its_node(tmp_path: Path) -> None:
    rows = "\n".join(f"train-{rank},gke-{host(rank)}-x,{rank}" for rank in range(WORLD))
    files = {f"train-{rank}/dump.pickle": dumped(rank, world=WORLD, stuck=STUCK) for rank in range(WORLD)}

    assert named(asked(tmp_path, files, f"pod,node,rank\n{rows}\n")) == [(STUCK, f"gke-{host(STUCK)}-x")]


@pytest.mark.parametrize("form", ["{file} {rank}", "{file}: rank {rank}", '"{file}": {rank}'])
def test_a_placement_may_name_the_files(form: str, tmp_path: Path) -> None:
    files = {rank: f"x{rank * 13 % 8}z.bin" for rank in range(WORLD)}
    rows = [form.format(file=name, rank=rank) for rank, name in files.items()]
    placement = "{" + ", ".join(rows) + "}" if form.startswith('"') else "\n".join(rows)
    report = asked(tmp_path, {name: dumped(rank, world=WORLD, stuck=STUCK) for rank, name in files.items()}, placement)

    assert named(report) == [(STUCK, None)]


@pytest.mark.parametrize("name", ["{host}/fr_{local}", "{host}/fr_local_rank{local}.pkl", "{host}_gpu{local}.pkl"])
def test_ranks_on_a_node(name: str, tmp_path: Path) -> None:
    assert named(asked(tmp_path, of_all(name), "cn-01 slots=4\ncn-02 slots=4\n")) == [(STUCK, host(STUCK))]


def test_ranks_on_a_node_without_a_placement_are_an_assumption(tmp_path: Path) -> None:
    report = asked(tmp_path, of_all("{host}/fr_{local}"))

    assert named(report) == [(STUCK, host(STUCK))]
    assert report.verdicts[0].rank_grade == "possible"
    assert "folders are taken for the nodes" in whys(report)


def test_folders_called_after_hosts_give_the_host(tmp_path: Path) -> None:
    assert named(asked(tmp_path, of_all("{host}/nccl_trace_rank_{rank}"))) == [(STUCK, host(STUCK))]


def test_folders_called_after_parts_are_no_hosts(tmp_path: Path) -> None:
    files = {f"part{rank // 4}/nccl_trace_rank_{rank}": data for rank, data in enumerate(of_all("{rank}").values())}

    assert named(asked(tmp_path, files)) == [(STUCK, None)]


def test_the_host_of_a_rank_that_the_name_tells(tmp_path: Path) -> None:
    report = asked(tmp_path, of_all("nccl_trace_rank_{rank}"), "cn-01: ranks 0-3\ncn-02: ranks 4-7\n")

    assert named(report) == [(STUCK, "cn-02")] and report.verdicts[0].hosts == ("cn-02",)


def test_a_placement_that_contradicts_the_names_is_said(tmp_path: Path) -> None:
    report = asked(tmp_path, of_all("{host}/nccl_trace_rank_{rank}"), "cn-02: ranks 0-3\ncn-01: ranks 4-7\n")

    assert [rank for rank, _ in named(report)] == [STUCK]
    assert "the rank is taken from the name" in whys(report)


def test_a_process_outweighs_a_number_in_the_name(tmp_path: Path) -> None:
    files = of_all("nccl_trace_rank_{rank}")
    files[f"{host(7)}_{pid(7)}_rank_3"] = files.pop("nccl_trace_rank_7")
    report = asked(tmp_path, files, TABLE)

    assert named(report) == [(STUCK, host(STUCK))] and report.summary.ranks == WORLD
    assert "taken as rank 7" in whys(report)


def test_groups_outweigh_a_placement(tmp_path: Path) -> None:
    """Of another run: no process of these has rank 11."""
    placement = "\n".join(f"{host(rank)}:{pid(rank)} {rank + 11}" for rank in range(WORLD))
    report = asked(tmp_path, of_all("nccl_trace_{host}_{pid}_rank_{rank}"), placement)

    assert [rank for rank, _ in named(report)] == [STUCK]
    assert "which is not in the groups that it used" in whys(report)


def test_a_placement_that_says_nothing_is_a_gap(tmp_path: Path) -> None:
    report = asked(tmp_path, of_all("nccl_trace_rank_{rank}"), "hello world\n")

    assert "no line of it says where a rank runs" in whys(report)


def test_a_placement_of_a_large_job_is_read_whole(tmp_path: Path) -> None:
    rows = "\n".join(f"{rank} node-{rank // 8:03}" for rank in range(3000))
    report = asked(tmp_path, of_all("nccl_trace_rank_{rank}"), rows)

    assert named(report) == [(STUCK, "node-000")]


# ---- attempts, copies, leftovers

LATER = rings.START + 700 * SECOND


def attempt(name: str, stuck: int, start: int, but: int | None = None) -> dict[str, bytes]:
    return {
        name.format(rank=rank): dumped(rank, world=WORLD, stuck=stuck, start=start)
        for rank in range(WORLD)
        if rank != but
    }


@pytest.mark.parametrize(
    "name", ["attempt_{n}/nccl_trace_rank_{{rank}}", "restart_{n}/rank{{rank}}.pkl", "fr_attempt{n}_rank{{rank}}.pkl"]
)
def test_attempts_are_kept_apart(name: str, tmp_path: Path) -> None:
    files = attempt(name.format(n=0), 3, rings.START) | attempt(name.format(n=1), STUCK, LATER)

    report = asked(tmp_path, files)

    assert [named(each) for each in report.incidents] == [[(3, None)], [(STUCK, None)]]
    assert named(asked(tmp_path, files, attempt=0)) == [(3, None)]


def test_of_folders_without_a_number_the_later_one_counts(tmp_path: Path) -> None:
    files = attempt("first/rank_{rank}", 3, rings.START) | attempt("second/rank_{rank}", STUCK, LATER)

    report = asked(tmp_path, files)

    assert named(report) == [(STUCK, None)]
    assert "8 dumps in it are of an earlier attempt" in whys(report)


def test_a_rank_that_left_nothing_in_the_later_one_is_not_taken_from_the_earlier(tmp_path: Path) -> None:
    files = attempt("first/rank_{rank}", 3, rings.START) | attempt("second/rank_{rank}", STUCK, LATER, but=STUCK)

    report = asked(tmp_path, files)

    assert named(report) == [(STUCK, None)] and report.verdicts[0].mechanism == "dead"
    assert f"so rank {STUCK} has no dump" in whys(report)


def uneven(rank: int, stuck: int, start: int, seed: int) -> bytes:
    """Steps that last as long on all ranks of a run, and otherwise in another run."""
    draw, at = random.Random(seed), start
    times = [at := at + int(SECOND * draw.uniform(0.5, 2.5)) for _ in range(24)]
    whole = content(rank, world=WORLD, stuck=stuck, calls=20, start=start)
    for entry in whole["entries"]:
        entry["time_created_ns"] = times[entry["collective_seq_id"] - 1] + rank * 1000
        entry["timeout_ms"] = 30_000
        if entry["time_discovered_completed_ns"]:
            entry["time_discovered_completed_ns"] = entry["time_created_ns"] + SECOND // 2
    return pickle.dumps(whole, protocol=2)


@pytest.mark.parametrize("seconds", [40, 100, 700])
def test_a_leftover_shows_though_the_job_was_restarted_at_once(seconds: int, tmp_path: Path) -> None:
    files = {
        f"rank_{rank}": uneven(rank, STUCK, rings.START + seconds * SECOND, 1) for rank in range(WORLD) if rank != STUCK
    }
    files[f"rank_{STUCK}"] = uneven(STUCK, 3, rings.START, 2)

    report = asked(tmp_path, files)

    assert f"so rank {STUCK} has no dump" in whys(report)
    assert report.verdicts[0].mechanism == "dead"


@pytest.mark.parametrize("seconds", [-45, 45])
def test_a_node_whose_clock_is_off_left_its_dumps_in_this_run(seconds: int, tmp_path: Path) -> None:
    files = {
        f"rank_{rank}": uneven(rank, STUCK, rings.START + (seconds * SECOND if rank >= 4 else 0), 1)
        for rank in range(WORLD)
    }

    report = asked(tmp_path, files)

    assert named(report) == [(STUCK, None)] and report.verdicts[0].mechanism == "host_stuck"


def test_copies_in_two_folders_are_one(tmp_path: Path) -> None:
    report = asked(tmp_path, of_all("a/rank_{rank}") | of_all("b/rank_{rank}"))

    assert named(report) == [(STUCK, None)]
    assert "8 dumps in it are a copy" in whys(report)
