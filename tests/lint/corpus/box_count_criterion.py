"""Set criterion whose losses are normalised by the number of boxes on all ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


class SetCriterion(torch.nn.Module):
    def __init__(self, matcher, weights):
        super().__init__()
        self.matcher = matcher
        self.weights = weights

    def forward(self, outputs, targets):
        count = sum(len(t["boxes"]) for t in targets)
        if count == 0:
            return {"loss_bbox": outputs["boxes"].sum() * 0.0}
        num_boxes = torch.tensor([float(count)], device=outputs["boxes"].device)
        dist.all_reduce(num_boxes)
        num_boxes = (num_boxes / dist.get_world_size()).clamp(min=1).item()
        rows = self.matcher(outputs, targets)
        source = torch.cat([o[r] for o, (r, _) in zip(outputs["boxes"], rows)])
        target = torch.cat([t["boxes"][c] for t, (_, c) in zip(targets, rows)])
        return {"loss_bbox": self.weights["bbox"] * F.l1_loss(source, target, reduction="sum") / num_boxes}
