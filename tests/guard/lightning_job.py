"""Lightning, small: WHAT plain|guarded FOLDER. Run by test_guard_trainers.py."""

import json
import os
import sys
from typing import Any

import lightning.pytorch as pl
import torch

import whichrank

WHAT, GUARDED, FOLDER = sys.argv[1], sys.argv[2] == "guarded", sys.argv[3]
RANK = int(os.environ["RANK"])


def say(what: str, **more: Any) -> None:
    os.write(1, f"{json.dumps({'rank': RANK, 'what': what, **more})}\n".encode())


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        say("batch", index=index)
        if WHAT == "error" and RANK == 1 and index == 3:
            raise ValueError("bad batch 17")
        return self.inner(batch).square().mean()

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        self.log("loss", self.inner(batch).square().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Own(pl.Callback):
    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if WHAT == "stop" and RANK == 1 and batch_idx == 3:
            trainer.should_stop = True


if os.environ.get("WHICHRANK_RUN"):
    whichrank.watch()
callbacks: list[Any] = [Own()]
if GUARDED:
    from whichrank.guard.lightning import GuardCallback

    callbacks.append(GuardCallback())
data = [torch.randn(4) for _ in range(40)]
trainer = pl.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, callbacks=callbacks, default_root_dir=FOLDER,
    logger=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
)  # fmt: skip
loaders = [torch.utils.data.DataLoader(part, batch_size=2) for part in (data, data[:8])]
trainer.fit(Module(), *loaders)
say("end", step=trainer.global_step, epoch=trainer.current_epoch)
