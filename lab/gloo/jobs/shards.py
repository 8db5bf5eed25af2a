"""A data set in files, one a step and rank: what each record says decides what its rank does with it."""

from __future__ import annotations

import argparse
import json
import subprocess
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import flight
import torch
import torch.distributed as dist


@dataclass
class Record:
    rows: int
    labelled: int
    precision: str
    sync: str


class Shards:
    """Records of one rank. Some are decoded by another program, some prefetched by a thread, some come late."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = json.loads((folder / "index.json").read_text())
        self.cache: dict[str, str] = {}
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, item: int) -> Record:
        listed = self.index[item]
        if ahead := listed.get("prefetch"):
            ready = threading.Event()
            threading.Thread(target=self._fetch, args=(self.folder / ahead, ready), daemon=True).start()
            ready.wait()
        path = self.folder / listed["path"]
        while listed.get("arrives") and not path.exists():
            time.sleep(5)
        if decoder := listed.get("decoder"):
            text = subprocess.run([*decoder, path], check=True, capture_output=True, text=True).stdout
        else:
            with self.lock:
                text = self.cache.pop(listed["path"], None) or path.read_text()
        return Record(**json.loads(text))

    def _fetch(self, path: Path, ready: threading.Event) -> None:
        with self.lock:
            ready.set()
            self.cache[path.name] = path.read_text()


def arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser()
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--save", type=Path, required=True)
    made.add_argument("--state", type=Path, required=True)
    made.add_argument("--timeout", type=float, required=True)
    made.add_argument("--pace", type=float, default=0.0)
    made.add_argument("--frames", action="store_true")
    made.add_argument("--wait-for-peers", action="store_true")
    made.add_argument("--save-every", type=int, default=5)
    return made.parse_args()


def begin() -> tuple[argparse.Namespace, int, Shards]:
    """Reads the options, joins the group, and opens this rank's records."""
    given = arguments()
    flight.start(given.state, given.frames, given.wait_for_peers)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=given.timeout))
    rank = dist.get_rank()
    torch.manual_seed(0)
    say(f"rank {rank} of {dist.get_world_size()} is ready")
    return given, rank, Shards(given.data / f"rank{rank}")


def say(text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)


def at_step(given: argparse.Namespace, step: int) -> None:
    flight.STEP[0] = step
    say(f"step {step}")
    time.sleep(given.pace)


def finish(given: argparse.Namespace) -> None:
    """The job is done: its recorder is kept too."""
    dist.barrier()
    say("finished")
    flight.STEP[0] = 1 << 30
    flight.dump(given.state, dist.get_rank(), given.frames)
    dist.destroy_process_group()
