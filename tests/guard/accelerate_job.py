"""Accelerate, small: WHAT plain|guarded FOLDER. Run by test_guard_trainers.py."""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

import whichrank
from whichrank import guard

WHAT, GUARDED, FOLDER = sys.argv[1], sys.argv[2] == "guarded", Path(sys.argv[3])
RANK = int(os.environ["RANK"])


def say(what: str, **more: Any) -> None:
    os.write(1, f"{json.dumps({'rank': RANK, 'what': what, **more})}\n".encode())


if os.environ.get("WHICHRANK_RUN"):
    whichrank.watch()
limit = 3 if WHAT == "first" else 100
accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=limit))])
if GUARDED:
    from whichrank.guard.accelerate import guarded

    accelerator = guarded(accelerator)
with guard.process_group() if GUARDED else accelerator.autocast():
    if WHAT == "first":
        with accelerator.main_process_first():
            if not (FOLDER / "cache").exists():
                time.sleep(6)
                (FOLDER / "cache").write_text(str(RANK))
    model = torch.nn.Linear(4, 8 if WHAT == "model" and RANK == 1 else 4)
    data = torch.utils.data.DataLoader([torch.randn(4) for _ in range(21)], batch_size=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for batch in data:
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
    accelerator.save_state(str(FOLDER / "state"))
    say("end", batches=len(data))
accelerator.end_training()
