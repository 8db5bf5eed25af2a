"""The folder that a job works in: its code, its settings and every rank's samples; sound, until a fault changes it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.faults.fault import Drawn, Fault
from lab.faults.fuse import Files
from lab.faults.store import Store

JOBS = Path(__file__).with_name("jobs")
RECORDER = Path(__file__).parents[1] / "gloo" / "jobs" / "flight.py"
LENGTH = 256  # tokens of a sample
SAMPLE = 8192  # tokens in its file


@dataclass(slots=True)
class Scene:
    """samples[epoch][rank] is what the rank's index will list; settings is the job's JSON file."""

    drawn: Drawn
    fault: Fault
    work: Path
    store: Store
    settings: dict[str, Any] = field(default_factory=dict)
    samples: list[list[list[dict[str, Any]]]] = field(default_factory=list)
    mount: Path | None = None  # of the file system that can hang, where the fault needs one
    files: Files | None = None  # its server
    launches: list[list[str]] = field(default_factory=list)  # of torchrun: what it is told, one list a node

    @property
    def job(self) -> Path:
        return self.work / "code" / f"{self.fault.job}.py"

    @property
    def data(self) -> Path:
        return self.work / "data"

    def victims_samples(self, epoch: int = 0) -> list[dict[str, Any]]:
        """Those of the victim's batch at fault."""
        drawn, batch = self.drawn, self.settings["batch"]
        return self.samples[epoch][drawn.victim][drawn.step * batch : (drawn.step + 1) * batch]

    def file_of(self, sample: dict[str, Any], epoch: int = 0) -> Path:
        return self.data / f"epoch{epoch}" / f"rank{self.drawn.victim}" / str(sample["path"])

    def upload(self, seconds: dict[int, float]) -> None:
        """Checkpoints go to the store; the n-th takes so long."""
        self.settings |= {"saver": "upload", "save": self.store.address}
        self.store.put_seconds = seconds

    def write(self) -> Path:
        """Everything onto the disk; returns the path of the settings."""
        for epoch, ranks in enumerate(self.samples):
            for rank, listed in enumerate(ranks):
                folder = self.data / f"epoch{epoch}" / f"rank{rank}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "index.json").write_text(json.dumps(listed))
        path = self.work / "settings.json"
        path.write_text(json.dumps(self.settings, indent=1))
        return path


def sound(drawn: Drawn, fault: Fault, work: Path, store: Store) -> Scene:
    """A job in which nothing is wrong."""
    scene = Scene(drawn, fault, work, store)
    scene.settings = {
        "data": str(work / "data"),
        "save": str(work / "checkpoints"),
        "progress": str(work / "progress"),
        "recorder": "" if drawn.watched else str(work / "recorder"),
        "frames": drawn.frames,
        "all_speak": drawn.all_speak,
        "timeout": drawn.timeout_s,
        "epochs": 1,
        "batch": 4,
        "workers": drawn.workers,
        "pace": drawn.pace_s,
        "jitter": 0.05,
        "vocabulary": 1000,
        "width": 64,
        "save_every": drawn.save_every,
        "evaluate_every": drawn.evaluate_every,
        "evaluation_batches": 2,
        "saver": "file",
        "full_at": [],
        "full_size": 0,
        "texts": {},
        "generated": {},
        "draws": {},
        "ports": {},
        "compiled": False,
    }
    shutil.copytree(JOBS, work / "code", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(RECORDER, work / "code")
    (work / "checkpoints").mkdir()
    for name in ("dumps", "json", "status"):
        (work / "recorder" / name).mkdir(parents=True)
    add_epoch(scene, drawn.steps)
    scene.launches = [one_node(drawn.world)]
    return scene


def add_epoch(scene: Scene, steps: int) -> None:
    """Samples for so many more steps of every rank. The ranks read one file: their indices decide, not its content."""
    epoch = len(scene.samples)
    tokens = bytearray(2 * SAMPLE)  # little-endian 16-bit numbers
    tokens[::2] = (bytes(range(200)) * (SAMPLE // 200 + 1))[:SAMPLE]
    ranks = []
    for rank in range(scene.drawn.world):
        folder = scene.data / f"epoch{epoch}" / f"rank{rank}"
        folder.mkdir(parents=True)
        plain = folder / "part-000.bin"
        plain.write_bytes(tokens)
        ranks.append([{"path": plain.name, "length": LENGTH} for _ in range(steps * scene.settings["batch"])])
    scene.samples.append(ranks)


def one_node(world: int) -> list[str]:
    return ["--standalone", "--nnodes", "1", "--nproc-per-node", str(world)]
