"""A small real training job for tests of `whichrank run`: DDP on gloo, a DataLoader with workers, evaluation, checkpoints.

`torchrun --nproc-per-node N watched_job.py STEPS [RANK:STEP:WHAT]`, WHAT one of worker, stop, kill, raise, save, think.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

STEPS = int(sys.argv[1])
WHO, WHEN, WHAT = sys.argv[2].split(":") if len(sys.argv) > 2 else ("-1", "-1", "")
PACE = float(os.environ.get("PACE", "0.1"))
EVERY = int(os.environ.get("EVALUATE", "0"))


class Items(Dataset):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if WHAT == "worker" and self.rank == int(WHO) and index == int(WHEN) * 4:
            os.read(os.open(os.environ["PIPE"], os.O_RDONLY), 1)
        return torch.full((16,), float(index % 7))


def evaluate(model: torch.nn.Module) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            time.sleep(float(os.environ.get("PAUSE", "4")))
            model(torch.ones(4, 16))
    model.train()


def main() -> None:
    if os.environ.get("UNDUMPABLE"):
        import ctypes

        ctypes.CDLL(None).prctl(4, 0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(Items(rank), batch_size=4, num_workers=1))
    for step in range(STEPS):
        batch = next(batches)
        loss = model(batch).square().mean()
        time.sleep(PACE)
        if rank == int(WHO) and step == int(WHEN):
            act(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"[rank{rank}]: step {step} loss {loss.item():.3f}", flush=True)
        if EVERY and step % EVERY == EVERY - 1:
            evaluate(model)
            dist.barrier()
    dist.destroy_process_group()


def _unread() -> int:
    """A pipe that nobody reads: storage that takes a little, and then no more."""
    return os.pipe()[1]


def act(model: torch.nn.Module) -> None:
    if WHAT == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif WHAT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif WHAT == "raise":
        raise ValueError("labels out of range: 1001")
    elif WHAT == "save":
        with open(f"/proc/self/fd/{_unread()}", "wb", buffering=0) as file:  # noqa: PTH123
            torch.save({"state": torch.zeros(1 << 20)}, file)
    elif WHAT == "think":
        until = time.monotonic() + 1e6
        while time.monotonic() < until:
            sum(range(1000))


if __name__ == "__main__":
    main()
