"""The recorder in real trainings on gloo: what its files say of ranks that died, stopped, hang or raised.

WHICHRANK_TORCH_PYTHON names an interpreter with torch, where the one that runs the tests has none.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from programs import environment, rings

from whichrank import diagnose
from whichrank.evidence.ring import Ring
from whichrank.model import Report

PYTHON = os.environ.get("WHICHRANK_TORCH_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="torch is not installed: these jobs are real")
JOB = Path(__file__).with_name("recorded_job.py")
COMPILED = Path(__file__).with_name("compiled_job.py")
VICTIM = 2
PATIENCE = 120  # seconds


@dataclass
class Job:
    run: Path
    out: Path
    process: subprocess.Popen[str]

    def until(self, wanted: Callable[[], bool]) -> None:
        """Wait for what the files must come to say."""
        end = time.monotonic() + PATIENCE
        while not wanted():
            assert time.monotonic() < end, {name: (ring.state, ring.beat) for name, ring in rings(self.run).items()}
            time.sleep(0.1)

    def ranks(self) -> dict[int, Ring]:
        return {ring.rank: ring for ring in rings(self.run).values() if ring.rank is not None}


@contextmanager
def job(event: str, steps: int = 400, at: int = 25) -> Iterator[Job]:
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="whichrank-test-") as folder:
        run, out = Path(folder) / "run", Path(folder) / "out"
        out.mkdir()
        os.mkfifo(out / "fifo")
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(JOB), str(out)]
        process = subprocess.Popen(
            [PYTHON, *words, event, str(VICTIM), str(at), str(steps)],
            env=environment(run, TORCH_FR_BUFFER_SIZE="200", OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield Job(run, out, process)
        finally:
            process.kill()
            process.wait()
            for ring in rings(run).values():  # torchrun gives each rank a session of its own
                end(ring)


def end(ring: Ring) -> None:
    """Kill a rank of this test that is still there."""
    pid = ring.pid or 0
    try:
        if str(JOB) in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"):
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def ranks(report: Report) -> list[int | None]:
    return [culprit.rank for culprit in report.verdicts[0].culprits]


def since(ring: Ring) -> float:
    """Seconds for which a rank had been in its phase when it was last heard of."""
    assert ring.state is not None
    return (ring.last_ns - ring.state.since_ns) / 1e9


def waiting(job: Job) -> bool:
    """Is the victim at its event, and have the others stood still for two seconds?"""
    if not (job.out / f"ready-{VICTIM}").exists():
        return False
    others = [ring for rank, ring in job.ranks().items() if rank != VICTIM]
    return len(others) == 3 and all(ring.state and since(ring) > 2 for ring in others)


def test_a_sound_job_ends_as_ever() -> None:
    with job("none", steps=45) as sound:
        output, _ = sound.process.communicate(timeout=PATIENCE)
        assert sound.process.returncode == 0, output
        assert "whichrank" not in output
        found = sound.ranks()
    assert sorted(found) == [0, 1, 2, 3]
    for rank, ring in found.items():
        assert ring.state is not None and ring.beat is not None
        assert (ring.state.step, ring.state.phase) == (45, "teardown")
        assert ring.beat.exiting
        assert not ring.exceptions
        spent = {phase for step in ring.steps for phase in step.seconds}
        assert {"data", "compute", "optimizer", "collective", "evaluation"} <= spent
        assert ("checkpoint" in spent) == (rank == 0)
        assert ring.identity["groups"] == {"0": "0-3"}


def test_a_killed_rank_is_readable_and_its_beat_has_stopped() -> None:
    with job("kill") as killed:
        killed.process.communicate(timeout=PATIENCE)
        ring = killed.ranks()[VICTIM]
    assert ring.state is not None and ring.beat is not None
    assert (ring.state.phase, ring.state.step, ring.state.batches) == ("compute", 25, 26)
    assert not ring.beat.exiting
    assert ring.exception is None


def test_an_exception_is_the_one_that_the_rank_printed() -> None:
    with job("raise") as raised:
        output, _ = raised.process.communicate(timeout=PATIENCE)
        ring = raised.ranks()[VICTIM]
        report = diagnose([str(raised.run)])
    assert "ValueError: bad batch" in output
    assert ring.exception is not None
    assert ring.exception.text.endswith("ValueError: bad batch\n")
    assert (report.verdicts[0].cause, ranks(report)) == ("exception", [VICTIM])


def test_a_stopped_rank_has_no_beat_while_the_others_have() -> None:
    with job("stop") as stopped:
        stopped.until(lambda: waiting(stopped))
        found = stopped.ranks()
    last = {rank: ring.beat.mono_ns for rank, ring in found.items() if ring.beat}
    assert min(last[rank] for rank in last if rank != VICTIM) - last[VICTIM] > 1e9


def test_a_rank_that_keeps_the_gil_still_has_its_phase_told() -> None:
    with job("gil") as busy:
        busy.until(lambda: waiting(busy))
        ring = busy.ranks()[VICTIM]
        now = max(found.last_ns for found in busy.ranks().values())
    assert ring.state is not None and ring.beat is not None
    assert (ring.state.phase, ring.state.step) == ("compute", 25)
    assert now - ring.beat.mono_ns > 1e9


def test_a_rank_that_waits_for_storage_is_the_one_that_a_diagnosis_names() -> None:
    """And Flight Recorder's records come from all ranks while their main threads hang."""
    with job("load") as hung:
        hung.until(lambda: waiting(hung) and VICTIM in hung.ranks() and since(hung.ranks()[VICTIM]) > 2)
        (hung.run / "ask.part").write_text("1", encoding="ascii")
        (hung.run / "ask.part").rename(hung.run / "ask")
        hung.until(lambda: all(ring.beat and ring.beat.answered == 1 for ring in hung.ranks().values()))
        found = hung.ranks()
        dumps = sorted(path.name for path in (hung.run / "dumps").iterdir())
        whole = diagnose([str(hung.run)])
        alone = diagnose([str(hung.run / "ring")])
    state = found[VICTIM].state
    assert state is not None
    assert (state.phase, state.op, state.outer) == ("checkpoint", "torch.load", None)
    sample = found[VICTIM].samples[-1]
    assert sample.times >= 2
    assert any(frame.startswith("happen ") for frame in sample.frames)
    assert dumps == [f"nccl_trace_rank_{rank}" for rank in range(4)]
    for report in (whole, alone):
        assert ranks(report) == [VICTIM], report.verdicts[0]


def test_compiled_functions_trace_as_without_it() -> None:
    """Graphs, operations and graph breaks of compiled collectives, DDP, optimizers and evaluations are the same."""
    words = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(COMPILED)]
    with tempfile.TemporaryDirectory(prefix="whichrank-test-") as folder:
        run = Path(folder) / "run"
        told = environment(run, Path(__file__).parents[2] / "src", OMP_NUM_THREADS="1")
        plain = {name: value for name, value in told.items() if name != "WHICHRANK_RUN"}
        answers = [
            subprocess.run(words, env=how, capture_output=True, text=True, timeout=300, check=True).stdout
            for how in (plain, told)
        ]
        found = rings(run)
    assert "ddp" in answers[0]
    assert answers[0] == answers[1]
    assert len(found) == 2
    assert all(ring.state and ring.state.step > 0 for ring in found.values())
