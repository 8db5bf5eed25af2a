"""Segmentation: the loss of the foreground is logged on its own."""

import lightning.pytorch as pl
import torch
import torch.nn.functional as F


class Segmenter(pl.LightningModule):
    def __init__(self, net, lr):
        super().__init__()
        self.net = net
        self.lr = lr

    def validation_step(self, batch, batch_idx):
        images, masks = batch
        losses = F.cross_entropy(self.net(images), masks, reduction="none")
        self.log("val/loss", losses.mean(), sync_dist=True)
        foreground = masks > 0
        if foreground.any():
            self.log("val/loss_foreground", losses[foreground].mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
