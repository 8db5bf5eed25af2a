"""Runs one job under torchrun until it has gone wrong and left its dumps."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from lab.gloo.plan import Plan, lay_out, sound

JOBS = Path(__file__).with_name("jobs")
POLL = 0.1  # seconds
STILL = 2.0  # seconds without a change on any rank: nobody gets on any more
LIMIT = 240.0  # seconds for all of it


class WentOtherwise(RuntimeError):
    """The job did not do what was planned: a machine under load, a port in use."""


@dataclass(frozen=True, slots=True)
class Left:
    """How it ended. exits: of the ranks of which the launcher tells it; negative is a signal."""

    status: int
    exits: dict[int, int]
    missing: list[int]  # ranks without a dump
    ring_short: bool  # a ring has lost its oldest entries


class Run:
    """One job: its folders, its launcher, and what its ranks tell."""

    def __init__(self, plan: Plan, folder: Path, work: Path, python: str) -> None:
        self.plan, self.folder, self.work = plan, folder, work
        self.state = work / "state"
        for name in ("dumps", "json", "status"):
            (self.state / name).mkdir(parents=True)
        lay_out(plan, work / "data", work / "save")
        command = [
            python, "-m", "torch.distributed.run", "--nnodes", "1", "--standalone", "--nproc-per-node", str(plan.world),
            "--redirects", "3", "--log-dir", str(folder / "logs"), str(JOBS / f"{plan.job}.py"),
            "--data", str(work / "data"), "--save", str(work / "save"), "--state", str(self.state),
            "--timeout", str(plan.timeout_s), "--save-every", str(plan.save_every), "--pace", str(plan.pace_s),
            *["--frames"] * plan.frames, *["--wait-for-peers"] * plan.wait_for_peers,
        ]  # fmt: skip
        environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": str(plan.ring), "OMP_NUM_THREADS": "1"}
        (folder / "logs").mkdir()
        self.until = time.monotonic() + LIMIT
        with (folder / "logs" / "launcher.log").open("wb") as out:
            self.launcher = subprocess.Popen(
                command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def alive(self) -> bool:
        if time.monotonic() > self.until:
            raise WentOtherwise(f"not done after {LIMIT} s")
        return self.launcher.poll() is None

    def told(self) -> dict[int, dict[str, object]]:
        return {int(path.stem): json.loads(path.read_text()) for path in (self.state / "status").glob("*.json")}

    def dumped(self) -> set[int]:
        return {int(path.name.rpartition("_")[2]) for path in (self.state / "dumps").iterdir()}

    def wait_until_still(self) -> None:
        """Until every rank is there, the one at fault has come to its step, and nobody gets on."""
        plan, before, since = self.plan, None, time.monotonic()
        while self.alive():
            now = self.told()
            if now != before:
                before, since = now, time.monotonic()
            reached = len(now) == plan.world and all(int(str(t["step"])) >= plan.step - 1 for t in now.values())
            if reached and time.monotonic() - since > STILL:
                return
            time.sleep(POLL)

    def open_pipe(self) -> int:
        """The other end of the pipe, once a rank has opened its own; -1 where the job ended before."""
        assert self.plan.pipe is not None
        path = self.work / "data" / self.plan.pipe
        while self.alive():
            with contextlib.suppress(OSError):
                return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            time.sleep(POLL)
        return -1

    def kill(self) -> None:
        """SIGKILL for the victim, standing at the pipe or waiting in a collective for the rank that does."""
        end = self.open_pipe()
        if end < 0:
            raise WentOtherwise("ended before the kill")
        try:
            if self.plan.holder is not None:
                self.wait_until_still()
            os.kill(int(str(self.told()[self.plan.victim or 0]["pid"])), signal.SIGKILL)
            if self.plan.holder is not None:
                os.write(end, json.dumps(sound()).encode())
        finally:
            os.close(end)

    def request(self) -> None:
        """Asks all ranks for their dumps and waits for them."""
        (self.state / "request").touch()
        while self.alive() and len(self.dumped()) < self.plan.world:
            time.sleep(POLL)

    def end(self) -> int:
        """Ends what still runs, the way a scheduler does, and returns the launcher's exit status."""
        if self.launcher.poll() is None:
            self.launcher.terminate()
        try:
            return self.launcher.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.launcher.pid, signal.SIGKILL)
            return self.launcher.wait()


def run(plan: Plan, folder: Path, work: Path, python: str = sys.executable) -> Left:
    """Fills folder with dumps/, json/ and logs/. WentOtherwise: nothing usable."""
    job = Run(plan, folder, work, python)
    end = -1
    try:
        if plan.fault == "kill":
            job.kill()
        elif plan.pipe:
            end = job.open_pipe()  # held open and never written to: whoever reads it waits
        if plan.variant == "running":
            while job.alive() and max((int(str(t["step"])) for t in job.told().values()), default=-1) < plan.step:
                time.sleep(0.01)
            job.request()
        elif plan.when == "request":
            job.wait_until_still()
            if job.alive():
                job.request()
        else:
            while job.alive():
                time.sleep(POLL)
    finally:
        status = job.end()
        if end >= 0:
            os.close(end)
    left = _left(plan, job, status)
    for name in ("dumps", "json"):
        shutil.copytree(job.state / name, folder / name)
    return left


def _left(plan: Plan, job: Run, status: int) -> Left:
    told = (job.folder / "logs" / "launcher.log").read_text(errors="replace")
    exits = {int(r): int(c) for r, c in re.findall(r"rank +: (\d+) \(local_rank: \d+\)\n +exitcode +: (-?\d+)", told)}
    missing = set(range(plan.world)) - job.dumped()
    # gloo ends a process at once where more arrives than it awaits: std::terminate in a thread of its own
    aborted = {r for r, code in exits.items() if code == -signal.SIGABRT and plan.fault in ("skip", "mismatch")}
    killed = {plan.victim} if plan.fault == "kill" else set()
    if missing - aborted - killed or killed - missing:
        raise WentOtherwise(f"no dump of {sorted(missing)}, exits {exits}")
    firsts = [_first_record(path) for path in (job.state / "dumps").iterdir()]
    return Left(status, exits, sorted(missing), any(first > 0 for first in firsts))


def _first_record(path: Path) -> int:
    entries = pickle.loads(path.read_bytes()).get("entries", [])  # written by a job of ours, a moment ago
    return entries[0]["record_id"] if entries else 0
