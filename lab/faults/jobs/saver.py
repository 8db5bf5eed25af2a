"""Checkpoints of rank 0: a file, an archive, or an upload to an object store."""

import http.client
import io
import lzma
import time
from pathlib import Path

import progress
import torch
import torch.distributed as dist


def save(how, target, state, step, rank, say):
    """All ranks come here; rank 0 writes, the others wait for it."""
    progress.report(step, "save")
    if rank == 0:
        began = time.monotonic()
        say(f"saving checkpoint at step {step}")
        {"file": to_file, "archive": to_archive, "upload": to_store}[how](target, state, step)
        say(f"checkpoint of step {step} saved in {time.monotonic() - began:.1f} s")
    dist.barrier()


def to_file(folder, state, step):
    path = Path(folder) / f"step{step}.pt"
    with path.open("wb") as out:
        torch.save(state, out)


def to_archive(folder, state, step):
    with lzma.open(Path(folder) / f"step{step}.pt.xz", "wb") as out:
        torch.save(state, out)


def to_store(address, state, step):
    packed = io.BytesIO()
    torch.save(state, packed)
    connection = http.client.HTTPConnection(address)
    connection.request("PUT", f"/checkpoints/step{step}.pt", body=packed.getvalue())
    answer = connection.getresponse()
    if answer.status != 200:
        raise OSError(f"PUT step{step}.pt: {answer.status} {answer.reason}")
