"""Loss of a draft model over sampled anchors, normalised over all ranks."""

import torch
import torch.distributed as dist


def anchor_candidates(loss_mask, block):
    valid = loss_mask[:, : loss_mask.shape[1] - block] > 0
    return valid.nonzero()


def sample(candidates, count):
    order = torch.randperm(len(candidates), device=candidates.device)[:count]
    return candidates[order]


def draft_loss(per_token, loss_mask, block, count):
    candidates = anchor_candidates(loss_mask, block)
    if len(candidates) == 0:
        raise ValueError("no valid anchor in this batch")
    rows, columns = sample(candidates, count).unbind(1)
    total = per_token[rows, columns].sum()
    denominator = torch.tensor(float(len(rows)), device=per_token.device)
    dist.all_reduce(denominator)
    return total * dist.get_world_size() / denominator
