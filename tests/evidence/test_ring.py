"""The recorder's ring file: what is written comes back, and of damaged files only what is sound."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank import diagnose
from whichrank.evidence import Evidence, read_piece
from whichrank.evidence import ring as reader
from whichrank.record import ring as writer

COLLECTIVE = writer.PHASES.index("collective")
DATA = writer.PHASES.index("data")
STACK = b"recv (socket.py:30)\nall_reduce (torch/distributed/distributed_c10d.py:2800)\nmain (/w/train.py:12)"
IDENTITY = {"rank": 3, "local_rank": 1, "world": 8, "attempt": 0, "host": "node-b", "pid": 4711}
ERROR = """Traceback (most recent call last):
  File "/w/train.py", line 12, in main
    loss.backward()
ValueError: bad batch
"""
WALL, MONO = 1_800_000_000_000_000_000, 5_000_000_000


def made(path: Path, direct: bool = True) -> writer.Ring:
    ring = writer.Ring()
    ring.attach(str(path), direct)
    return ring


def filled(path: Path, direct: bool = True) -> writer.Ring:
    ring = made(path, direct)
    ring.identify(IDENTITY)
    for step in range(1, 601):
        ring.now(DATA, MONO + step, step, step, MONO)
        ring.step(step, MONO + step, [0, 0, 5_000_000, 95_000_000, *[0] * 7])
    ring.now(COLLECTIVE, MONO + 10**9, 600, 601, MONO, seq=12, texts=b"all_reduce\x000\x00default_pg\0")
    for number in range(1, 71):
        text = b"f%d (x.py:1)\n" % number + STACK
        ring.mark(ring.sample(text), MONO + number, MONO + number, 1, 600, (0, 0), COLLECTIVE)
    for times in range(2, 12):
        ring.mark(70, MONO + 70, MONO + times * 10**9, times, 600, (7, 8), COLLECTIVE)
    ring.raised(WALL, True, "MainThread", ERROR)
    ring.beat(MONO + 14 * 10**9, WALL + MONO, MONO, 9, 5_000, 2_000, 2, False)
    ring.flush()
    return ring


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    filled(tmp_path / "a.ring")
    return (tmp_path / "a.ring").read_bytes()


@pytest.mark.parametrize("direct", [True, False])
def test_what_is_written_comes_back(tmp_path: Path, direct: bool) -> None:
    filled(tmp_path / "a.ring", direct)
    ring = reader.read(tmp_path / "a.ring")
    assert ring is not None
    assert ring.state is not None
    assert dict(ring.identity) == IDENTITY
    state = ring.state
    assert (state.phase, state.op, state.group, state.group_desc, state.seq) == (
        "collective",
        "all_reduce",
        "0",
        "default_pg",
        12,
    )
    assert (state.since_ns, state.step, state.batches, state.changes) == (MONO + 10**9, 600, 601, 601)
    assert [step.number for step in ring.steps] == list(range(89, 601))
    assert ring.steps[-1].seconds == {"data": 0.005, "compute": 0.095}
    assert len(ring.samples) == 64
    last = ring.samples[-1]
    assert (last.times, last.last_ns, last.cpu_ns, last.phase) == (11, MONO + 11 * 10**9, 1, "collective")
    assert last.frames[1] == "recv (socket.py:30)"
    assert ring.exception is not None
    assert ring.exception.text == ERROR
    assert ring.wall_ns(MONO) == WALL + MONO
    assert ring.overhead == reader.Overhead(601 * 2_000, 5_000)


def test_the_file_is_small_and_only_its_owners(tmp_path: Path) -> None:
    filled(tmp_path / "a.ring")
    assert (tmp_path / "a.ring").stat().st_size == writer.SIZE <= 400_000
    assert (tmp_path / "a.ring").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["a.ring"]  # noqa: PTH208


@pytest.mark.parametrize("direct", [True, False])
def test_what_was_written_before_there_was_a_file_is_in_it(tmp_path: Path, direct: bool) -> None:
    ring = writer.Ring()
    ring.identify(IDENTITY)
    ring.now(DATA, MONO, 7, 8, MONO)
    ring.attach(str(tmp_path / "a.ring"), direct)
    read = reader.read(tmp_path / "a.ring")
    assert read is not None
    assert read.rank == 3
    assert read.state is not None
    assert read.state.batches == 8


def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "full" / "b.ring" / "x").mkdir(parents=True)
    with pytest.raises(OSError):
        made(tmp_path / "full" / "b.ring")
    with pytest.raises(OSError):
        made(tmp_path / "none" / "b.ring")
    assert os.listdir(tmp_path / "full") == ["b.ring"]  # noqa: PTH208


def test_a_long_exception_keeps_its_end(tmp_path: Path) -> None:
    ring = made(tmp_path / "a.ring")
    ring.raised(WALL, True, "MainThread", "Traceback\n" + "x" * 50_000 + "\nValueError: the end")
    ring.raised(WALL, False, "T" * 500, "\0" * 9000)
    read = reader.read(tmp_path / "a.ring")
    assert read is not None
    assert read.exception is not None
    assert read.exception.text.startswith("Traceback")
    assert read.exception.text.endswith("ValueError: the end")
    assert len(read.exceptions) == 2


def test_an_identity_of_any_size_fits(tmp_path: Path) -> None:
    ring = made(tmp_path / "a.ring")
    ring.identify({**IDENTITY, "groups": ["g" * 100] * 1000, "job": "j" * 10_000})
    read = reader.read(tmp_path / "a.ring")
    assert read is not None
    assert read.rank == 3


def facts(data: bytes, name: str = "run/ring/rank-000003-a0-p4711.ring") -> Evidence:
    evidence = Evidence()
    read_piece(name, data, evidence)
    return evidence


def test_a_diagnosis_learns_phase_stack_and_exception(data: bytes) -> None:
    found = {fact.kind: fact for fact in facts(data).facts}
    assert set(found) == {"member", "phase", "stack", "exception"}
    assert all((fact.rank, fact.who.host, fact.who.pid) == (3, "node-b", 4711) for fact in found.values())
    assert found["member"]["world_size"] == 8
    phase = found["phase"]
    assert (phase["name"], phase["seconds"], phase["op"], phase.group, phase.seq) == (
        "collective",
        13.0,
        "all_reduce",
        "default_pg",
        12,
    )
    assert phase.at_ns == WALL + MONO + 10**9
    assert phase.clock == "wall"
    assert found["stack"]["main"]
    assert found["stack"]["tool"] == "recorder"
    assert found["stack"]["seconds"] == pytest.approx(11)
    assert "all_reduce" in found["stack"].spot.excerpt
    assert (found["exception"]["type"], found["exception"]["message"], found["exception"]["site"]) == (
        "ValueError",
        "bad batch",
        "/w/train.py:12 main",
    )


def test_a_file_without_content_is_a_gap() -> None:
    evidence = facts(writer.header())
    assert not evidence.facts
    assert len(evidence.gaps) == 1


WHOLE: list[bytes] = []


@pytest.fixture(autouse=True)
def whole(data: bytes) -> None:
    WHOLE[:] = [data]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, writer.SIZE))
def test_a_ring_cut_anywhere_yields_what_is_sound(end: int) -> None:
    ring = reader.parse(WHOLE[0][:end])
    facts(WHOLE[0][:end])
    if ring is not None:
        sound(ring)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, writer.SIZE - 1), st.binary(min_size=1, max_size=300)), max_size=20))
def test_damaged_bytes_are_never_believed(damage: list[tuple[int, bytes]]) -> None:
    data = bytearray(WHOLE[0])
    for at, other in damage:
        data[at : at + len(other)] = other
    data = data[: writer.SIZE]
    facts(bytes(data))
    if (ring := reader.parse(bytes(data))) is not None:
        sound(ring)


def sound(ring: reader.Ring) -> None:
    """All that is left was really written."""
    undamaged = reader.parse(WHOLE[0])
    assert undamaged is not None
    assert not ring.identity or dict(ring.identity) == IDENTITY
    assert set(ring.exceptions) <= set(undamaged.exceptions)
    assert ring.state is None or ring.state == undamaged.state or ring.state.phase == "data"
    by_number = {step.number: step for step in undamaged.steps}
    assert all(by_number[step.number] == step for step in ring.steps)
    stacks = {sample.frames for sample in undamaged.samples}
    assert all(sample.frames in stacks for sample in ring.samples)


def test_a_write_that_broke_off_leaves_the_one_before(tmp_path: Path) -> None:
    """Killed within a store: any part of the slot's new bytes over the old ones."""
    ring = made(tmp_path / "a.ring")
    for number in range(3):
        ring.now(DATA, MONO + number, number, number, MONO)
    before = (tmp_path / "a.ring").read_bytes()
    ring.now(COLLECTIVE, MONO + 99, 3, 3, MONO, seq=12, texts=b"all_reduce\0")
    after = (tmp_path / "a.ring").read_bytes()
    changed = [at for at in range(len(before)) if before[at] != after[at]]
    for cut in range(changed[0], changed[-1] + 1):
        for torn in (after[:cut] + before[cut:], before[:cut] + after[cut:]):
            state = getattr(reader.parse(torn), "state", None)
            assert state is not None
            assert (state.phase, state.step) in (("data", 2), ("collective", 3))


@pytest.mark.parametrize("content", [b"", b"x", writer.MAGIC, b"\x80\x04", writer.header()[:100]])
def test_what_is_no_ring_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.ring").write_bytes(content)
    assert reader.read(tmp_path / "a.ring") is None
    assert reader.read(tmp_path / "none.ring") is None


def test_both_sides_name_the_phases_alike() -> None:
    assert writer.PHASES == reader.PHASES


def run_dir(folder: Path, start: int, pid: int) -> None:
    """What `whichrank run` leaves of two ranks: their rings and what they printed, here as container logs have it."""
    (folder / "ring").mkdir(parents=True)
    for rank in range(2):
        ring = made(folder / "ring" / f"rank-{rank:06}-a0-p{pid + rank}.ring")
        ring.identify({**IDENTITY, "rank": rank, "world": 2, "pid": pid + rank})
        ring.now(COLLECTIVE, MONO, 10, 11, MONO, seq=12, texts=b"all_reduce\x000\x00default_pg\0")
        ring.beat(MONO + 10**9, start + MONO, MONO, 9, 5_000, 2_000, 2, False)
        ring.flush()
    stamp = datetime.fromtimestamp(start / 1e9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000000000Z")
    lines = [f"{stamp} stdout F [rank{rank}] step {step} loss 0.5" for step in range(10) for rank in range(2)]
    (folder / "output.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_two_run_directories_in_a_folder_are_two_runs(tmp_path: Path) -> None:
    """One right after the other on one node: other processes, so another run."""
    run_dir(tmp_path / "second", WALL + 60 * 10**9, 900)
    run_dir(tmp_path / "first", WALL, 100)
    assert [incident.label for incident in diagnose([str(tmp_path)]).incidents] == ["job first", "job second"]
