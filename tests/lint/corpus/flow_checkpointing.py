"""Training of a flow transformer; the weights that are trained are saved every so often."""

import os

import torch


def save_trainable(accelerator, dit, folder):
    unwrapped = accelerator.unwrap_model(dit)
    names = {n for n, p in unwrapped.named_parameters() if p.requires_grad}
    torch.save({k: v for k, v in unwrapped.state_dict().items() if k in names}, os.path.join(folder, "dit_lora.pt"))


def fit(accelerator, dit, optimizer, scheduler, loader, loss_of, args):
    global_step = 0
    for batch in loader:
        with accelerator.accumulate(dit):
            loss = loss_of(dit, batch)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            global_step += 1
        if accelerator.sync_gradients and accelerator.is_main_process and global_step % args.checkpointing_steps == 0:
            folder = os.path.join(args.project_dir, f"checkpoint-{global_step}")
            os.makedirs(folder, exist_ok=True)
            accelerator.wait_for_everyone()
            save_trainable(accelerator, dit, folder)
        if global_step >= args.max_steps:
            break
