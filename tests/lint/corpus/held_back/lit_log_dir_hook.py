"""Writes the hyperparameters next to the logs when fitting starts."""

import json
import os

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import rank_zero_only


class Regressor(pl.LightningModule):
    def __init__(self, width, lr):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 2)

    @rank_zero_only
    def on_fit_start(self):
        os.makedirs(self.trainer.log_dir, exist_ok=True)
        with open(os.path.join("runs", "hparams.json"), "w") as out:
            json.dump(dict(self.hparams), out)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
