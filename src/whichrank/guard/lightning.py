"""Guards for Lightning (2.6): `Trainer(callbacks=[…, GuardCallback()])`, as the last one."""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from .flags import PATIENCE, agree
from .place import Phases
from .same import same_everywhere
from .shards import check_shards
from .together import Together

SETTINGS = (
    "max_epochs", "max_steps", "min_epochs", "min_steps", "accumulate_grad_batches", "gradient_clip_val", "precision",
    "check_val_every_n_epoch", "val_check_interval", "log_every_n_steps", "num_sanity_val_steps", "world_size",
)  # fmt: skip


class GuardCallback(Callback):  # type: ignore[misc]
    """Before the training: the same settings and shapes on all ranks; before each epoch as many batches; after each
    batch, validation and epoch one decision on `trainer.should_stop`. An exception on one rank ends all at once, and the
    others raise it as PeerFailed.

    What sets should_stop must come before: a callback before this one, `training_step`. The module's own hook
    `on_train_batch_end` comes after all callbacks.
    """

    def __init__(self, *, uneven: str = "raise", timeout: float = PATIENCE, grace: float | None = 30.0) -> None:
        self.uneven = uneven
        self.timeout = timeout
        self.grace = grace
        self._phases = Phases()
        self._together: Together | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        import torch.distributed as dist

        if self._together is None and dist.is_available() and dist.is_initialized():
            self._together = Together(grace=self.grace)
            self._together.__enter__()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        settings = {name: getattr(trainer, name, None) for name in SETTINGS}
        settings["seed"] = os.environ.get("PL_GLOBAL_SEED")
        same_everywhere(settings, "Trainer", timeout=self.timeout)
        same_everywhere(pl_module, "module", timeout=self.timeout)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        import torch

        loader, batches = trainer.train_dataloader, trainer.num_training_batches
        whole = isinstance(loader, torch.utils.data.DataLoader)
        if isinstance(batches, int) and not (whole and len(loader) == batches):
            loader = batches  # limit_train_batches, several loaders
        check_shards(loader, uneven=self.uneven, timeout=self.timeout)

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._agree(trainer, "batch")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.now("validate")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.now()
        self._agree(trainer, "validation")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._agree(trainer, "epoch")

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.now("test")

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.now()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._phases.now()
        together, self._together = self._together, None
        if together is not None:
            together.__exit__(type(exception), exception, exception.__traceback__)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._phases.now()
        together, self._together = self._together, None
        if together is not None:
            together.__exit__(None, None, None)

    def _agree(self, trainer: Any, name: str) -> None:
        trainer.should_stop = agree(trainer.should_stop, name=f"should_stop after {name}", timeout=self.timeout)
