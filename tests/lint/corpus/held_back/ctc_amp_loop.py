"""CTC speech recognition with mixed precision."""

import logging

import torch
from torch.nn.parallel import DistributedDataParallel


def fit(encoder, ctc_loss, optimizer, loader, device, grad_clip):
    model = DistributedDataParallel(encoder.to(device), device_ids=[device.index])
    scaler = torch.amp.GradScaler()
    for step, (audio, audio_len, text, text_len) in enumerate(loader):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda"):
            log_probs, out_len = model(audio.to(device), audio_len.to(device))
        loss = ctc_loss(log_probs.float(), text.to(device), out_len, text_len)
        if torch.isnan(loss) or torch.isinf(loss):
            logging.warning("step %d: loss is NaN or inf, batch left out", step)
            continue
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        scaler.step(optimizer)
        scaler.update()
