"""Box detector with torchmetrics in the validation epoch."""

import lightning.pytorch as pl
from torchmetrics.detection import IntersectionOverUnion, MeanAveragePrecision


class CrownDetector(pl.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.iou = IntersectionOverUnion()
        self.map = MeanAveragePrecision()

    def validation_step(self, batch, batch_idx):
        images, targets = batch
        predictions = self.model(images)
        kept = [(p, t) for p, t in zip(predictions, targets) if len(t["boxes"]) > 0]
        if kept:
            self.iou.update([p for p, _ in kept], [t for _, t in kept])
        self.map.update(predictions, targets)

    def on_validation_epoch_end(self):
        results = {}
        if len(self.iou.groundtruth_labels) > 0:
            results.update(self.iou.compute())
        results["map"] = self.map.compute()["map"]
        self.log_dict(results)
        self.iou.reset()
        self.map.reset()
