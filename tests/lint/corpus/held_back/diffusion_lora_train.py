"""LoRA training of a diffusion model with Accelerate and DeepSpeed."""

import os
import shutil

from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin


def keep_newest(folder, limit):
    kept = sorted((d for d in os.listdir(folder) if d.startswith("checkpoint")), key=lambda d: int(d.split("-")[1]))
    for old in kept[: max(0, len(kept) - limit)]:
        shutil.rmtree(os.path.join(folder, old))


def train(args, unet, optimizer, loader, compute_loss):
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
    global_step = 0
    for batch in loader:
        with accelerator.accumulate(unet):
            loss = compute_loss(unet, batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            global_step += 1
            if accelerator.is_main_process:
                if global_step % args.checkpointing_steps == 0:
                    keep_newest(args.output_dir, args.checkpoints_total_limit)
                    accelerator.save_state(os.path.join(args.output_dir, f"checkpoint-{global_step}"))
        accelerator.log({"loss": loss.detach().item()}, step=global_step)
