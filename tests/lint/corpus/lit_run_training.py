"""Fits a Lightning model and leaves the last checkpoint under a fixed name."""

from pathlib import Path

import lightning.pytorch as pl


def run_training(config, model, datamodule):
    trainer = pl.Trainer(
        max_epochs=config.max_epochs,
        accelerator="gpu",
        devices=config.devices,
        strategy="ddp",
        default_root_dir=config.workdir,
    )
    trainer.fit(model, datamodule=datamodule)
    target = Path(config.workdir) / "last.ckpt"
    if trainer.is_global_zero:
        trainer.save_checkpoint(target)
        print(f"saved {target}")
    trainer.strategy.barrier("checkpoint-alias")
    return trainer.test(model, datamodule=datamodule)
