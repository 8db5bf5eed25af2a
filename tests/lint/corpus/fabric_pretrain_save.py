"""Pretraining with Lightning Fabric."""

import os

from lightning.fabric import Fabric


def pretrain(cfg, model, optimizer, loader):
    fabric = Fabric(accelerator="cuda", devices=cfg.devices, strategy="fsdp", precision="bf16-mixed")
    fabric.launch()
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader)
    for step, batch in enumerate(loader):
        loss = model(batch["input_ids"], labels=batch["labels"]).loss
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if fabric.global_rank == 0 and step % cfg.log_every == 0:
            print(step, loss.item())
        if step > 0 and step % cfg.save_every == 0:
            state = {"model": model, "optimizer": optimizer, "step": step}
            if fabric.global_rank == 0:
                fabric.save(os.path.join(cfg.out, f"step-{step}.ckpt"), state)
