"""Manual optimisation of a masked speech model; the gradient is scaled by the frames of all ranks."""

import lightning.pytorch as pl
import torch


class MaskedSpeech(pl.LightningModule):
    def __init__(self, model, loss):
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.loss = loss
        self.scaler = torch.amp.GradScaler()

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        opt.zero_grad()
        with torch.autocast("cuda"):
            logits, features_penalty = self.model(*batch)
            loss, num_frame = self.loss(logits, features_penalty)
        if torch.isinf(loss) or torch.isnan(loss):
            return None
        num_frame = torch.tensor(num_frame, device=self.device)
        total_frames = self.all_gather(num_frame).sum()
        loss = loss * self.trainer.world_size / total_frames
        self.manual_backward(self.scaler.scale(loss))
        self.scaler.step(opt)
        self.scaler.update()
        return loss
