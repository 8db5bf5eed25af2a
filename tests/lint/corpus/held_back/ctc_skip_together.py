"""CTC speech recognition: batches with a bad loss on any rank are left out on all."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def any_rank(flag, device):
    value = torch.tensor([int(flag)], device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return bool(value.item())


def fit(encoder, ctc_loss, optimizer, loader, device):
    model = DistributedDataParallel(encoder.to(device), device_ids=[device.index])
    for audio, audio_len, text, text_len in loader:
        optimizer.zero_grad(set_to_none=True)
        log_probs, out_len = model(audio.to(device), audio_len.to(device))
        loss = ctc_loss(log_probs, text.to(device), out_len, text_len)
        if any_rank(not torch.isfinite(loss), device):
            continue
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
