"""What the jobs have in common: options, logging, the process group."""

import json
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import progress
import torch
import torch.distributed as dist


def begin():
    """The options (a JSON file), this rank, and its logger."""
    given = SimpleNamespace(**json.loads(Path(sys.argv[1]).read_text()))
    rank = int(os.environ["RANK"])
    progress.connect(given.progress)
    progress.report(-1, "start")
    if given.recorder:
        import flight

        flight.start(Path(given.recorder), given.frames, False)
    if str(rank) in given.ports:
        os.environ["MASTER_PORT"] = str(given.ports[str(rank)])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=given.timeout))
    say = logger(given, rank)
    say(f"rank {rank} of {dist.get_world_size()} is ready on {socket.gethostname()}", always=True)
    return given, rank, say


def logger(given, rank):
    """All ranks speak, or rank 0 alone but for what is marked `always`."""

    def say(text, always=False):
        if always or rank == 0 or given.all_speak:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S") + f",{time.time_ns() // 1_000_000 % 1000:03d}"
            print(f"{stamp} [rank {rank}] {text}", flush=True)

    return say


def finish(given, say):
    dist.barrier()
    say("training finished", always=True)
    if given.recorder:
        import flight

        flight.dump(Path(given.recorder), dist.get_rank(), given.frames)
    dist.destroy_process_group()
