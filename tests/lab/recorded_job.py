"""A small training under torchrun: DDP, a DataLoader with workers, checkpoints, evaluation. FOLDER [EVENT RANK STEP].

At STEP, RANK does EVENT; a file in FOLDER says that it is about to. Run by test_record_jobs.py, where torch is installed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.full((16,), float(place % 7))


class Mount:
    """A file whose storage does not answer: nobody writes to this pipe."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR)

    def read(self, size: int = -1) -> bytes:
        return os.read(self.fd, 1)

    readline = seek = tell = read


def happen(event: str, folder: Path, rank: int) -> None:
    (folder / f"ready-{rank}").write_text(str(os.getpid()))
    if event == "raise":
        raise ValueError("bad batch")
    if event == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if event == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if event == "leave":
        os._exit(7)
    if event == "sleep":
        time.sleep(600)
    if event == "gil":
        sys.setswitchinterval(600)
        while True:
            pass
    if event == "load":
        torch.load(Mount(folder / "fifo"))  # type: ignore[arg-type]


def main(folder: Path, event: str, victim: int, at: int, steps: int) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for step, batch in enumerate(loader):
        if step == steps:
            break
        if step == at and rank == victim:
            happen(event, folder, rank)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(torch.ones(3))
        time.sleep(0.02)
        if step % 20 == 19:
            model.eval()
            with torch.no_grad():
                time.sleep(0.05)
                model(batch)
            model.train()
            if rank == 0:
                torch.save(model.state_dict(), folder / "model.pt")
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
