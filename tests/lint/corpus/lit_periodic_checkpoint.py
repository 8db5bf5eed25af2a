"""Callback: a checkpoint every few epochs, for a report to the cluster's front end."""

import os
import tempfile

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only


class PeriodicCheckpoint(pl.Callback):
    def __init__(self, every, upload):
        self.every = every
        self.upload = upload

    def on_train_epoch_end(self, trainer, pl_module):
        if (trainer.current_epoch + 1) % self.every == 0:
            self._save(trainer)

    @rank_zero_only
    def _save(self, trainer):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ckpt.pt")
            trainer.save_checkpoint(path, weights_only=False)
            self.upload(path)
