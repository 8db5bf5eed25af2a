"""Simulated dumps: the same for the same seed, written as PyTorch writes them, each fault with its own mark."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lab.simulate import faults, formats, incident, programs, stream, truth
from lab.simulate.__main__ import main
from lab.simulate.draw import Wishes
from lab.simulate.engine import Engine
from lab.simulate.incident import Incident
from lab.simulate.layout import build
from lab.simulate.ops import COLLECTIVE, P2P

KINDS = tuple(faults.KINDS)
SIZES = ["input_sizes", "input_dtypes", "output_sizes", "output_dtypes"]
STATE = ["state", "time_discovered_started_ns", "time_discovered_completed_ns", "retired"]
COUNTERS = ["collective_seq_id", "p2p_seq_id", "op_id", "profiling_name", "time_created_ns"]
ENTRY = {  # as the recorder of each version inserts them; 2.9 and 2.10 seen in real dumps as well
    "list": ["pg_id", "seq_id", "profiling_name", "time_created", "input_sizes", "output_sizes", "state", "retired", "frames"],
    "1.4": ["record_id", "pg_id", "seq_id", "op_id", "profiling_name", "time_created_ns", "input_sizes", "output_sizes", *STATE, "frames"],
    "2.1": ["frames", "record_id", "pg_id", "process_group", *COUNTERS, *SIZES, *STATE, "is_p2p"],
    "2.4": ["frames", "record_id", "pg_id", "process_group", *COUNTERS, *SIZES, *STATE, "timeout_ms", "is_p2p"],
    "2.9": ["frames", "record_id", "pg_id", "process_group", *COUNTERS, *SIZES, *STATE, "timeout_ms", "is_p2p"],
    "2.10": [
        "frames", "record_id", "pg_id", "process_group", "thread_name", "thread_id", *COUNTERS, *SIZES, *STATE, "timeout_ms", "is_p2p",
    ],
}  # fmt: skip
TOP = {
    "1.4": ["entries", "version", "pg_config"],
    "2.1": ["version", "pg_config", "entries"],
    "2.4": ["version", "pg_config", "pg_status", "entries"],
    "2.9": ["version", "pg_config", "nccl_version", "pg_status", "entries"],
    "2.10": ["version", "pg_config", "comm_lib_version", "pg_status", "entries"],
}

MADE: dict[str, Incident] = {}
SOME: list[Incident] = []


def one(kind: str) -> Incident:
    """An incident of that kind with everything on record."""
    if kind not in MADE:
        wishes = Wishes(
            worlds=(8, 16), kinds=(kind,), frames="python", missing=0.0, ring=2000, version="2.10", json=False,
            backend="nccl", scheme="nccl_trace", by_hand=False,
        )  # fmt: skip
        MADE[kind] = incident.make(17, 0, wishes)
    return MADE[kind]


def dumps(made: Incident) -> dict[int, dict]:  # type: ignore[type-arg]
    by_path = {path: rank for rank, path in made.paths.items()}
    load = json.loads if made.mode.json else pickle.loads
    return {by_path[name]: load(data) for name, data in made.files() if name in by_path}


def some() -> list[Incident]:
    """Anything: all options drawn, each kind once."""
    for number in range(len(SOME), len(KINDS)):
        SOME.append(incident.make(5, number, Wishes(worlds=(4, 8))))
    return SOME


# ---- the same again


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again = (list(incident.make(3, 6, Wishes(worlds=(8,))).files()) for _ in range(2))
    assert first == again
    assert first != list(incident.make(4, 6, Wishes(worlds=(8,))).files())


# ---- formats


@pytest.mark.parametrize("version", ENTRY)
def test_fields_are_those_of_the_version(version: str) -> None:
    made = incident.make(2, 0, Wishes(worlds=(8,), kinds=("healthy",), version=version, frames="python", json=False, backend="nccl", timing=False, scheme="nodes"))  # fmt: skip
    for _, data in made.files():
        read = pickle.loads(data)
        entries = read if version == "list" else read["entries"]
        assert version == "list" or list(read) == TOP[version]
        assert entries
        assert all(list(entry) == ENTRY[version] for entry in entries)


def test_groups_are_configured_as_the_version_has_them() -> None:
    for version, kind in (("1.4", list), ("2.4", str)):
        made = incident.make(
            2, 0, Wishes(worlds=(8,), kinds=("healthy",), version=version, json=False, backend="nccl", missing=0.0)
        )
        for rank, read in dumps(made).items():
            for key, group in read["pg_config"].items():
                ranks = group if kind is list else group["ranks"]
                assert isinstance(ranks, kind)
                members = ranks if kind is list else json.loads(ranks)
                assert rank in members
                assert isinstance(key, int if kind is list else str)


def test_json_has_no_frames_and_zeros_for_unknown_times() -> None:
    made = incident.make(
        2, 0, Wishes(worlds=(8,), kinds=("host_stuck",), version="2.10", json=True, backend="nccl", missing=0.0)
    )
    for _, data in made.files():
        text = data.decode()
        read = json.loads(text)
        assert text == json.dumps(read, sort_keys=True, separators=(",", ":"))
        assert all(isinstance(n, str) for status in read["pg_status"].values() for n in status.values())
        for entry in read.get("entries", []):
            assert "frames" not in entry
            assert isinstance(entry["process_group"], list)
            assert entry["state"] == "completed" or entry["time_discovered_completed_ns"] == 0


def test_an_empty_json_dump_has_no_entries() -> None:
    style = formats.Style("2.10", json=True)
    assert "entries" not in json.loads(formats.write(formats.Recording(0, []), style))


def test_gloo_leaves_states_scheduled_and_says_done_by_retired() -> None:
    wishes = Wishes(
        worlds=(8,),
        layout=(1, 2, 4, 1),
        kinds=("late_then_stuck",),
        backend="gloo",
        version="2.10",
        json=False,
        missing=0.0,
    )
    made = incident.make(1, 0, wishes)
    for rank, read in dumps(made).items():
        assert read["pg_config"] == {"": {"name": "", "desc": "", "ranks": "[]"}}
        assert {entry["state"] for entry in read["entries"]} == {"scheduled"}
        assert all(entry["profiling_name"].startswith("gloo:") and not entry["is_p2p"] for entry in read["entries"])
        assert (
            rank in made.fault.culprits or not all(entry["retired"] for entry in read["entries"]) or made.layout.pp > 1
        )


def test_frames_can_be_off_generated_or_absent_in_calls_from_cpp() -> None:
    kinds = {}
    for frames in ("python", "generated", "off"):
        wishes = Wishes(
            worlds=(8,),
            layout=(2, 1, 4, 1),
            style="ddp",
            kinds=("healthy",),
            frames=frames,
            version="2.10",
            json=False,
            backend="nccl",
        )
        (read, *_) = dumps(incident.make(1, 0, wishes)).values()
        kinds[frames] = read["entries"]
    assert all("frames" not in entry for entry in kinds["off"])
    files = {f["filename"] for entry in kinds["generated"] for f in entry["frames"]}
    assert any("torchinductor" in file for file in files)
    assert any(not entry["frames"] for entry in kinds["python"])
    assert any(entry["frames"] for entry in kinds["python"])


def test_every_file_is_where_the_scheme_puts_it() -> None:
    for scheme, start in (("nodes", "node-"), ("attempts", "attempt_"), ("plain", "_dump_")):
        made = incident.make(1, 0, Wishes(worlds=(16,), kinds=("healthy",), scheme=scheme))
        assert all(name.startswith(start) for name, _ in made.files())


# ---- what holds in every dump


def test_the_ring_keeps_the_latest_in_order_of_issue() -> None:
    for made in some():
        for recording in made.recordings.values():
            ids = [r.record_id for r in recording.records]
            assert ids == list(range(recording.recorded - len(ids), recording.recorded))
            assert len(ids) <= made.mode.ring
            created = [r.created for r in recording.records]
            assert created == sorted(created)
            assert all(time <= made.looks.at[recording.rank] + 1e-3 for time in created)


def test_numbers_of_a_group_follow_each_other() -> None:
    for made in some():
        for recording in made.recordings.values():
            last: dict[int, tuple[int, int, int]] = {}
            for r in recording.records:
                before = last.get(r.group.index)
                if before and not r.op.parts:
                    assert r.collective_seq == before[0] + 1
                if before and made.mode.backend == "nccl":
                    assert r.op_id - before[2] in (0, 1)
                    assert r.p2p_seq - before[1] in (0, 1)
                last[r.group.index] = (r.collective_seq, r.p2p_seq, r.op_id)


def test_members_of_a_batch_stay_scheduled_and_the_last_entry_carries_the_state() -> None:
    seen = 0
    for made in some():
        if not made.recipe.batched_p2p:
            continue
        for read in dumps(made).values():
            if not isinstance(read, dict) or formats.number(read["version"]) < (2, 1):
                continue
            for entry in read.get("entries", []):
                seen += entry["is_p2p"]
                assert not entry["is_p2p"] or (entry["state"] == "scheduled" and not entry["retired"])
                if entry["profiling_name"] == "nccl:coalesced":
                    assert not entry["is_p2p"]
                    assert entry["input_sizes"] == []
    assert seen


def test_only_timing_knows_of_starts() -> None:
    for timing in (False, True):
        wishes = Wishes(
            worlds=(8,),
            kinds=("host_stuck",),
            timing=timing,
            version="2.10",
            json=False,
            backend="nccl",
            frames="off",
            by_hand=False,
        )
        entries = [e for read in dumps(incident.make(1, 0, wishes)).values() for e in read["entries"]]
        status = [s for read in dumps(incident.make(1, 0, wishes)).values() for s in read["pg_status"].values()]
        assert ("started" in {e["state"] for e in entries}) == timing
        assert any("duration_ms" in e for e in entries) == timing
        assert (max(s["last_started_collective"] for s in status) > -1) == timing
        for e in entries:
            assert "duration_ms" not in e or e["retired"]


def test_ends_are_discovered_when_the_watchdog_polls() -> None:
    made = one("host_stuck")
    for recording in made.recordings.values():
        for r in recording.records:
            if r.retired and r.completed is not None:
                assert r.op.end is not None
                assert 0 <= r.completed - r.op.end < 0.102
                steps = (r.completed - 2e-4 - made.looks.phase[recording.rank, r.group.index]) / 0.1
                assert steps == pytest.approx(round(steps), abs=1e-6)


def test_the_first_timeout_is_counted_from_the_call_and_all_dump_soon_after() -> None:
    made = one("late_then_stuck")
    fires = min(made.looks.fired.values())
    oldest = min(
        op.created + op.group.timeout_ms / 1e3
        for rank in made.ranks
        for op in rank.ops
        if op.group and op.created is not None and op.end is None
    )
    assert fires - oldest == pytest.approx(0.0, abs=0.1)
    assert all(0 <= at - fires < 20 for at in made.looks.at)


@pytest.mark.parametrize("style", programs.STYLES)
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("depth", [1, 40])
def test_a_sound_program_ends(style: str, batched: bool, depth: int) -> None:
    layout = build(2, 3, 4, 2)
    recipe = programs.Recipe(style, 3, 2, 4, 1024, 512, 0.01, 0.1, batched, 2, 2, 2, 1.0, True, "all_reduce_barrier")
    rng = np.random.default_rng(0)
    written = [programs.write(layout, recipe, rank, rng, np.ones(4)) for rank in range(layout.world)]
    for rank in Engine(layout, written, depth).run():
        assert rank.passed == len(rank.ops)
        assert all(op.end is not None for op in rank.ops if op.kind in (COLLECTIVE, P2P))
        assert all(op.start <= op.end for op in rank.ops if op.start is not None and op.end is not None)


def test_nothing_is_open_for_long_in_a_healthy_job() -> None:
    for number in range(12):
        made = incident.make(6, number, Wishes(worlds=(8,), kinds=("healthy",), backend="nccl"))
        for rank, calls in truth.waits(made.ranks, made.looks).pending.items():
            assert all(made.looks.at[rank] - (op.created or 0.0) < 15 for op, _ in calls)


def test_clocks_of_one_host_agree() -> None:
    made = incident.make(1, 0, Wishes(worlds=(16,), kinds=("healthy",), skew="loose"))
    by_host = defaultdict(set)
    for rank, zero in enumerate(made.zero_ns):
        by_host[made.layout.host(rank)].add(zero)
    assert all(len(zeros) == 1 for zeros in by_host.values())
    assert len({*made.zero_ns}) == made.layout.hosts()


def test_an_earlier_attempt_lies_in_its_own_folder() -> None:
    for number in range(20):
        made = incident.make(4, number, Wishes(worlds=(8,), kinds=("host_stuck",), scheme="attempts", missing=0.0))
        if made.earlier:
            break
    folders = defaultdict(list)
    for name, _ in made.files():
        folders[name.partition("/")[0]].append(name)
    assert {folder: len(files) for folder, files in folders.items()} == {"attempt_0": 8, "attempt_1": 8}
    assert {*made.truth["earlier_attempt"].values()} == {*folders["attempt_0"]}  # type: ignore[attr-defined]


def test_two_stages_may_send_back_over_the_default_group() -> None:
    for number in range(40):
        wishes = Wishes(worlds=(8,), layout=(2, 2, 2, 1), kinds=("healthy",), backend="nccl", ring=2000, missing=0.0)
        made = incident.make(4, number, wishes)
        if made.recipe.both_groups and not made.recipe.batched_p2p:
            break
    for recording in made.recordings.values():
        for r in recording.records:
            if r.op.parts:
                sender = r.op.parts[0].peer if "recv" in r.name else recording.rank
                assert r.group.role == ("world" if made.layout.place(sender)[0] else "pp")


def test_lost_dumps_are_of_innocents_unless_the_rank_died() -> None:
    made = incident.make(1, 0, Wishes(worlds=(16,), kinds=("host_stuck",), missing=0.25))
    lost = made.truth["missing_ranks"]
    assert len(lost) == 4  # type: ignore[arg-type]
    assert not {*lost} & {*made.fault.culprits}  # type: ignore[misc]


def test_a_stale_file_is_hours_older() -> None:
    for number in range(60):
        made = incident.make(
            8, number, Wishes(worlds=(8,), kinds=("dead",), version="2.10", json=False, backend="nccl")
        )
        if made.stale:
            break
    times = {rank: [e["time_created_ns"] for e in read["entries"]] for rank, read in dumps(made).items()}
    fresh = min(min(t) for rank, t in times.items() if rank not in made.stale and t)
    assert all(max(times[rank]) < fresh for rank in made.stale)


# ---- the mark of each fault


def waits(made: Incident) -> truth.Waits:
    return truth.waits(made.ranks, made.looks)


def idle_and_awaited(made: Incident) -> bool:
    found = waits(made)
    awaited = {peer for waiter in range(made.layout.world) for peer in found.absent(waiter)}
    return all(c in awaited and not found.pending.get(c) for c in made.fault.culprits)


def left_no_dump(made: Incident) -> bool:
    return not {*made.recordings} & {*made.fault.culprits} and bool(made.fault.culprits)


def issued_beyond_the_kernel_that_hangs(made: Incident) -> bool:
    rank = made.ranks[made.fault.culprits[0]]
    return rank.hung_at is not None and rank.issued > rank.passed and bool(waits(made).pending.get(rank.number))


def was_late_before(made: Incident) -> bool:
    (culprit,) = made.fault.culprits
    data = [op.host for op in made.ranks[culprit].ops if op.site == "data"]
    return idle_and_awaited(made) and max(data) > 0.4 > sorted(data)[0]


def differs_in_length(made: Incident) -> bool:
    (culprit,) = made.fault.culprits
    stage = made.layout.place(culprit)[0]
    lengths = {
        r: sum(op.kind == COLLECTIVE for op in made.ranks[r].ops)
        for r in range(made.layout.world)
        if made.layout.place(r)[0] == stage
    }
    own = lengths.pop(culprit)
    wanted = -1 if made.fault.kind == "skipped_collective" else 1
    return {own - other for other in lengths.values()} == {wanted}


def has_two_versions_of_one_call(made: Incident) -> bool:
    (culprit,) = made.fault.culprits
    calls: dict[int, dict[int, tuple[str, str]]] = defaultdict(dict)
    for rank, read in dumps(made).items():
        for e in read["entries"]:
            group = next(r.group for r in made.recordings[rank].records if r.record_id == e["record_id"])
            if [*group.ranks] == made.fault.group_ranks and not e["is_p2p"]:
                what = f"{e['profiling_name']} {e['input_sizes']} {e['input_dtypes']}"
                calls[e["collective_seq_id"]][rank] = (what, e["state"])
    odd = [c for c in calls.values() if len({what for what, _ in c.values()}) > 1]
    first = odd[0]
    others = {what for rank, (what, _) in first.items() if rank != culprit}
    return len(others) == 1 and first[culprit][0] not in others and "completed" not in {s for _, s in first.values()}


def calls_in_another_order(made: Incident) -> bool:
    (culprit,) = made.fault.culprits
    step, sites = made.fault.detail["step"], [*made.fault.detail["sites"]]  # type: ignore[misc]
    order = {}
    for rank in made.fault.group_ranks or ():
        order[rank] = [op.site for op in made.ranks[rank].ops if op.step == step and op.site in sites]
    own = order.pop(culprit)
    (other,) = {tuple(o) for o in order.values()}
    return sorted(own) == sorted(other) and tuple(own) != other


def is_already_at_the_final_barrier(made: Incident) -> bool:
    last = {rank: recording.records[-1].op.site for rank, recording in made.recordings.items()}
    return {rank for rank, site in last.items() if site == "final_barrier"} == {*made.fault.culprits}


def entered_by_all_ended_by_none(made: Incident) -> bool:
    _, members = min(made.fault.hits)
    found = waits(made)
    return all(m in found.pending and not found.absent(m) & {*members} for m in members) and bool(members)


def has_one_half_too_few(made: Incident) -> bool:
    (culprit,) = made.fault.culprits
    peer = next(r for r in made.fault.group_ranks or () if r != culprit)
    step, sends = made.fault.detail["step"], made.fault.kind == "missing_send"

    def count(rank: int, other: int, want: bool) -> int:
        parts = [p for op in made.ranks[rank].ops if op.step == step for p in op.parts]
        return sum(p.peer == other and p.sends == want for p in parts)

    return count(culprit, peer, sends) == count(peer, culprit, not sends) - 1


def totals_do_not_add_up(made: Incident) -> bool:
    group = made.fault.group_ranks
    sums: dict[int, int] = defaultdict(int)
    for recording in made.recordings.values():
        for r in recording.records:
            if r.op.name == "all_to_all" and [*r.group.ranks] == group:
                sums[r.collective_seq] += r.inputs[0][0] - r.outputs[0][0]
    complete = [seq for seq in sums if sums[seq]]
    return len(complete) >= 1


def rank_0_alone_is_missing(made: Incident) -> bool:
    found = waits(made)
    return idle_and_awaited(made) and all(found.absent(r) == {0} for r in range(1, made.layout.world))


def goes_on_or_is_slow_in_all(made: Incident) -> bool:
    inside = [op for rank in made.ranks for op in rank.ops if op.site in ("load_shard", "shard_barrier", "save_shard")]
    return bool(inside) and all(rank.stuck_at is None and rank.hung_at is None for rank in made.ranks)


def nothing_timed_out(made: Incident) -> bool:
    return not made.looks.fired and not made.fault.culprits and made.answer.identifiable


MARKS: dict[str, Callable[[Incident], bool]] = {
    "host_stuck": idle_and_awaited,
    "late_then_stuck": was_late_before,
    "two_culprits": idle_and_awaited,
    "dead": left_no_dump,
    "gpu_hang": issued_beyond_the_kernel_that_hangs,
    "skipped_collective": differs_in_length,
    "extra_collective": differs_in_length,
    "size_mismatch": has_two_versions_of_one_call,
    "dtype_mismatch": has_two_versions_of_one_call,
    "op_mismatch": has_two_versions_of_one_call,
    "order_inversion": calls_in_another_order,
    "uneven_data": is_already_at_the_final_barrier,
    "network": entered_by_all_ended_by_none,
    "missing_send": has_one_half_too_few,
    "missing_recv": has_one_half_too_few,
    "split_mismatch": totals_do_not_add_up,
    "rank0_checkpoint": rank_0_alone_is_missing,
    "timeout_short": goes_on_or_is_slow_in_all,
    "healthy": nothing_timed_out,
    "straggler": nothing_timed_out,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_has_its_mark(kind: str) -> None:
    made = one(kind)
    assert made.truth["kind"] == kind
    assert MARKS[kind](made)


@pytest.mark.parametrize("kind", KINDS)
def test_truth_is_complete(kind: str) -> None:
    known = json.loads(json.dumps(one(kind).truth))
    assert known["mechanism"] in (
        "host_stuck", "gpu_hang", "dead", "desync", "mismatch", "deadlock", "network", "timeout_short", "no_hang",
    )  # fmt: skip
    assert {*known["culprits"]} <= {*known["candidates"]}
    assert known["reason"]
    assert set(map(int, known["files"])) | {*known["missing_ranks"]} == {*range(known["world"])}


def test_a_failed_gpu_has_calls_open_that_its_peers_finished() -> None:
    for number in range(40):
        made = incident.make(9, number, Wishes(worlds=(8,), kinds=("gpu_hang",), missing=0.0, ring=2000))
        if made.fault.error:
            break
    (culprit,) = made.fault.culprits
    unseen = [op for op in made.ranks[culprit].ops if op.unseen]
    assert unseen
    assert all(op.end is not None for op in unseen)
    assert made.answer.identifiable


def test_a_silent_gpu_is_not_identifiable_without_start_events() -> None:
    for number in range(40):
        wishes = Wishes(worlds=(8,), kinds=("gpu_hang",), missing=0.0, timing=False)
        made = incident.make(9, number, wishes)
        if not made.fault.error:
            break
    assert not made.answer.identifiable
    assert "undecided" in made.fault.also


def test_with_the_culprits_dump_gone_a_lost_innocent_may_look_the_same() -> None:
    reasons = set()
    for number in range(25):
        made = incident.make(
            3, number, Wishes(worlds=(8, 16), kinds=("dead",), missing=0.25, backend="nccl", ring=2000)
        )
        reasons.add(made.answer.identifiable)
        if not made.answer.identifiable:
            assert {*made.answer.candidates} > {*made.fault.culprits}
    assert reasons == {True, False}


# ---- the command, and the large job


def test_the_command_keeps_truth_apart_from_dumps(tmp_path: Path) -> None:
    assert main([str(tmp_path), "--seed", "1", "--count", "3", "--worlds", "8", "--kinds", "host_stuck,healthy"]) == 0
    index = json.loads((tmp_path / "index.json").read_text())
    assert [line["kind"] for line in index] == ["host_stuck", "healthy", "host_stuck"]
    for number in range(3):
        folder = tmp_path / f"{number:04d}"
        known = json.loads((folder / "truth.json").read_text())
        found = {str(p.relative_to(folder / "dumps")) for p in (folder / "dumps").rglob("*") if p.is_file()}
        assert found == {*known["files"].values()}


def test_wishes_that_cannot_be_met_are_refused() -> None:
    with pytest.raises(RuntimeError, match="missing_send"):
        incident.make(0, 0, Wishes(kinds=("missing_send",), layout=(2, 1, 4, 1)))


def test_the_command_says_what_cannot_be_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "suite"), "--count", "1", "--kinds", "gpu_hang", "--backend", "gloo"]) == 2
    assert "no gpu_hang is possible with" in capsys.readouterr().err


def test_a_large_job_is_made_rank_by_rank() -> None:
    job = stream.model(64, 60, seed=1)
    seen = {}
    for rank, data in stream.dumps(job, seed=1):
        read = pickle.loads(data)
        assert len(read["entries"]) <= 60
        for group in read["pg_config"].values():
            assert rank in json.loads(group["ranks"])
        seen[rank] = [e for e in read["entries"] if not e["is_p2p"] and e["state"] != "completed"]
        for e in read["entries"]:
            if e["profiling_name"] == "nccl:_all_gather_base":
                n = len(json.loads(read["pg_config"][e["process_group"][0]]["ranks"]))
                assert e["output_sizes"][0][0] == n * e["input_sizes"][0][0]
    assert len(seen) == 64
    assert [rank for rank, still_open in seen.items() if not still_open] == [job.victim]
