"""Runs one job until its fault has shown, bare or under a wrapper, and leaves evidence/ and truth.json."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.faults import fuse, hosts, memory, store
from lab.faults.fault import Drawn, Fault
from lab.faults.kernel import KernelLog
from lab.faults.scene import Scene, sound
from lab.faults.truth import truth
from lab.gloo.drive import WentOtherwise

POLL = 0.05  # seconds
READY = 180.0  # until the job has come to the step at fault: eight imports of torch take their time
AFTER_BARE = 45.0  # for the timeout, and for torchrun to end the ranks (it waits 30 s for one that does not hear)
AFTER_WATCHED = 60.0  # for the watcher to notice and to answer
STILL = 3.0  # without a report of any rank: nobody gets on any more
SETTLED = 3.0  # a verdict may be followed by a better one
MARK = "JOB_FOLDER"  # in the environment of all that an incident starts
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Told:
    pid: int
    step: int
    at: str
    ns: int  # wall clock


class Incident:
    """A job that runs. What its ranks report comes through a pipe, so that nobody sleeps and hopes."""

    def __init__(self, scene: Scene, evidence: Path, commands: Sequence[list[str]]) -> None:
        self.scene, self.drawn, self.evidence = scene, scene.drawn, evidence
        self.hosts: hosts.Hosts | None = None
        self.began_ns = 0  # wall clock
        self.reports: list[tuple[int, Told]] = []
        self.news = threading.Condition()
        self.until = time.monotonic() + READY
        self.started_ns = time.time_ns()
        os.mkfifo(scene.settings["progress"])
        self.pipe = os.open(scene.settings["progress"], os.O_RDWR)  # also for writing: it never ends
        self.reader = threading.Thread(target=self._listen, daemon=True)
        self.reader.start()
        self.launchers = [self._launch(command, node) for node, command in enumerate(commands)]

    def _launch(self, command: list[str], node: int) -> subprocess.Popen[bytes]:
        folder = self.evidence if len(self.scene.launches) == 1 else self.evidence / hosts.NAMES[node]
        folder.mkdir(parents=True, exist_ok=True)
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "WHICHRANK", "TORCH", "PYTEST"))},
            "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", MARK: str(self.scene.work),
        }  # fmt: skip
        if self.drawn.watched:
            del environment["TORCH_FR_BUFFER_SIZE"]  # the wrapper's to set
            out = self.scene.work / f"terminal-{node}.log"
        else:
            out = folder / ("train.log" if self.drawn.merged else "launcher.log")
        if len(self.scene.launches) > 1:
            environment["GLOO_SOCKET_IFNAME"] = hosts.DEVICE if self.scene.fault.needs else "lo"
        with out.open("wb") as stream:
            return subprocess.Popen(
                command, env=environment, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True, cwd=self.scene.work,
            )  # fmt: skip

    def _listen(self) -> None:
        with os.fdopen(os.dup(self.pipe), "rb") as lines:
            for line in lines:
                if line == b"end\n":
                    return
                said = json.loads(line)
                with self.news:
                    self.reports.append((said["rank"], Told(said["pid"], said["step"], said["at"], said["ns"])))
                    self.news.notify_all()

    def alive(self) -> bool:
        return any(launcher.poll() is None for launcher in self.launchers)

    def reached(self, rank: int, step: int, at: str = "step") -> Told:
        """Waits for the rank to report this; or a step shortly before it, if nobody gets on from there: a worker
        that holds the interpreter's lock keeps back the batch that it has loaded already. WentOtherwise: the job ended, or takes too long."""
        seen = 0
        while True:
            with self.news:
                for who, told in self.reports[seen:]:
                    if (who, told.step, told.at) == (rank, step, at):
                        return told
                seen = len(self.reports)
                if seen and self.reports[-1][1].ns < time.time_ns() - STILL * 1e9 and step > 1:
                    last = [told for who, told in self.reports if (who, told.at) == (rank, at)][-1:]
                    if last and last[0].step >= step - max(1, self.drawn.workers):
                        return last[0]
                self.news.wait(POLL)
            if not self.alive() and seen == len(self.reports):
                raise WentOtherwise(f"ended before rank {rank} came to step {step}")
            if time.monotonic() > self.until:
                raise WentOtherwise(f"rank {rank} did not come to step {step} in {READY:.0f} s")

    def pid(self, rank: int) -> int:
        return next(told.pid for who, told in self.reports if who == rank)

    def begins(self) -> None:
        self.began_ns = time.time_ns()

    def wait(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Until the job has ended, or `over`, but not longer."""
        until = time.monotonic() + seconds
        while self.alive() and time.monotonic() < until and not over():
            time.sleep(POLL)

    def end(self) -> list[int]:
        """Ends what still runs, as a scheduler does, and returns the launchers' exit codes."""
        for launcher in self.launchers:
            if launcher.poll() is None:
                launcher.terminate()
        self.wait(25 if self.drawn.watched else 5)
        codes = []
        for launcher in self.launchers:
            if launcher.poll() is None:
                launcher.kill()
            codes.append(launcher.wait())
        _end_all(self.scene.work)
        os.write(self.pipe, b"end\n")
        self.reader.join(5)
        os.close(self.pipe)
        return codes


def _end_all(work: Path) -> None:
    """Whatever of the incident is left: workers are in sessions of their own."""
    wanted = f"{MARK}={work}".encode()
    for _ in range(100):
        found = False
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
        if not found:
            return
        time.sleep(POLL)


def command(
    scene: Scene, python: str, wrapper: Sequence[str], node: int, evidence: Path, prefix: list[str]
) -> list[str]:
    """What starts one node's ranks; `{dir}` in the wrapper is its run directory."""
    drawn, folder = scene.drawn, evidence if len(scene.launches) == 1 else evidence / hosts.NAMES[node]
    if drawn.watched:
        logs: list[str] = []
    elif drawn.merged:
        logs = ["--tee", "3", "--log-dir", str(scene.work / "logs")]
    else:
        logs = ["--redirects", "3", "--log-dir", str(folder / "logs")]
    wrap = [word.replace("{dir}", str(folder / "run")) for word in wrapper] if drawn.watched else []
    settings = str(scene.work / "settings.json")
    run = [python, "-m", "torch.distributed.run", *scene.launches[node], *logs, str(scene.job), settings]
    return [*prefix, *wrap, *run]


def run(
    fault: Fault, drawn: Drawn, folder: Path, python: str, wrapper: Sequence[str] = (), work: Path | None = None
) -> dict[str, Any]:
    """Fills folder with evidence/ and truth.json, and returns the truth. WentOtherwise: there is no truth.json."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    base = Path(tempfile.mkdtemp(prefix="job-", dir=work))
    evidence = base / "left"  # the incident's own folder says in its name what it is: the job never gets to see it
    evidence.mkdir()
    try:
        with KernelLog() as log, _laid_out(fault, drawn, base) as scene, _placed(scene) as (places, prefixes):
            commands = [command(scene, python, wrapper, n, evidence, prefix) for n, prefix in enumerate(prefixes)]
            codes, incident = _driven(scene, evidence, commands, places)
            _collect(scene, evidence, log.since())
            shutil.copytree(evidence, folder / "evidence")
            for terminal in base.glob("terminal-*.log"):
                shutil.copy(terminal, folder)
    finally:
        _end_all(base)
        shutil.rmtree(base, ignore_errors=True)
    if fault.healthy and any(codes):
        raise WentOtherwise(f"a sound job ended with {codes}")
    known = truth(fault, drawn, incident.began_ns, incident.started_ns) | {"codes": codes}
    (folder / "truth.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
    return known


@contextlib.contextmanager
def _laid_out(fault: Fault, drawn: Drawn, base: Path) -> Iterator[Scene]:
    """The job's folder, with its store and its mount."""
    with contextlib.ExitStack() as stack:
        scene = sound(drawn, fault, base, stack.enter_context(store.serving()))
        if "fuse" in fault.needs:
            scene.mount = base / "mnt"
            for path in (base / "export", scene.mount):
                path.mkdir()
            scene.files = stack.enter_context(fuse.mounted(base / "export", scene.mount))
        fault.lay_out(scene)
        scene.write()
        yield scene


@contextlib.contextmanager
def _placed(scene: Scene) -> Iterator[tuple[hosts.Hosts | None, list[list[str]]]]:
    """Hosts and limits, and what comes before each node's command to be there."""
    needs, nodes = scene.fault.needs, range(len(scene.launches))
    if "namespaces" in needs:
        with hosts.two_hosts() as places:
            yield places, [places.prefix(node) for node in nodes]
    elif "memory_cgroup" in needs:
        with memory.limited(int((0.5 + 0.45 * scene.drawn.world) * GIB)) as prefix:
            yield None, [prefix for _ in nodes]
    else:
        yield None, [[] for _ in nodes]


def _driven(
    scene: Scene, evidence: Path, commands: Sequence[list[str]], places: hosts.Hosts | None
) -> tuple[list[int], Incident]:
    """Runs until the fault has shown; the launchers' exit codes."""
    drawn, fault, incident = scene.drawn, scene.fault, Incident(scene, evidence, commands)
    incident.hosts = places
    codes: list[int] = []
    try:
        if fault.healthy:
            incident.wait(READY + drawn.steps * drawn.pace_s * 20)
            if incident.alive():
                raise WentOtherwise("a sound job does not end")
        elif drawn.at == "launch":
            incident.began_ns = incident.started_ns
        else:
            incident.began_ns = incident.reached(drawn.victim, -1 if drawn.at == "start" else drawn.step, drawn.at).ns
        if not fault.healthy:
            fault.during(incident)
            if drawn.watched and not fault.to_the_end:
                incident.wait(AFTER_WATCHED, _answered(evidence))
            elif drawn.watched:
                incident.wait(AFTER_WATCHED)
            else:
                incident.wait(AFTER_BARE)
    finally:
        codes = incident.end()
    return codes, incident


def _answered(evidence: Path) -> Callable[[], bool]:
    """True once a watcher's report is there and has not changed for a while."""

    def over() -> bool:
        reports = [path.stat().st_mtime for path in evidence.rglob("report.json")]
        return bool(reports) and time.time() - max(reports) > SETTLED

    return over


def _collect(scene: Scene, evidence: Path, kernel: str) -> None:
    if scene.drawn.watched:
        return
    dumps = [*(scene.work / "recorder" / "dumps").iterdir()]
    if dumps:
        shutil.copytree(scene.work / "recorder" / "dumps", evidence / "dumps")
    if kernel:
        (evidence / "dmesg.txt").write_text(kernel)
