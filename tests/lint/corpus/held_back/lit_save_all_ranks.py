"""Fits a Lightning model and leaves a link to the last checkpoint."""

from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only


@rank_zero_only
def link(target: Path, name: str):
    alias = target.with_name(name)
    if alias.is_symlink():
        alias.unlink()
    alias.symlink_to(target.name)


def run_training(config, model, datamodule):
    trainer = pl.Trainer(max_epochs=config.max_epochs, accelerator="gpu", devices=config.devices, strategy="ddp")
    trainer.fit(model, datamodule=datamodule)
    target = Path(config.workdir) / f"epoch-{trainer.current_epoch}.ckpt"
    trainer.save_checkpoint(target)
    link(target, "last.ckpt")
    if trainer.is_global_zero:
        print(f"saved {target}")
    return trainer.test(model, datamodule=datamodule)
