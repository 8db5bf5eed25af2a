"""Guards for the Trainer of Hugging Face (transformers 5.24): `trainer.add_callback(GuardCallback())`, as the last one.

The Trainer asks flags that any callback may set, and each leads to collectives: to stop, to log, to save, to evaluate.
One rank that sets one by what only it sees leaves the others alone. Here they are agreed on after each step.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from .flags import PATIENCE, agree_all
from .place import Phases
from .same import same_everywhere
from .shards import check_shards

FLAGS = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")
SETTINGS = (
    "seed", "data_seed", "num_train_epochs", "max_steps", "per_device_train_batch_size", "per_device_eval_batch_size",
    "gradient_accumulation_steps", "learning_rate", "weight_decay", "warmup_steps", "lr_scheduler_type", "optim",
    "max_grad_norm", "bf16", "fp16", "gradient_checkpointing", "dataloader_drop_last", "dataloader_num_workers",
    "logging_strategy", "logging_steps", "eval_strategy", "eval_steps", "save_strategy", "save_steps",
    "load_best_model_at_end", "metric_for_best_model", "ddp_find_unused_parameters", "resume_from_checkpoint",
)  # fmt: skip


class GuardCallback(TrainerCallback):  # type: ignore[misc]
    """Before the training: the same settings and shapes on all ranks, as many batches. After each step: one decision.

    uneven: what check_shards does with different numbers of batches. timeout: seconds for which ranks wait for each
    other. Callbacks that come after this one are not heard.
    """

    def __init__(self, *, uneven: str = "raise", timeout: float = PATIENCE) -> None:
        self.uneven = uneven
        self.timeout = timeout
        self._phases = Phases()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        settings = {name: getattr(args, name, None) for name in SETTINGS}
        settings["steps of the whole training"] = state.max_steps
        settings["step to begin with"] = state.global_step
        same_everywhere(settings, "TrainingArguments", timeout=self.timeout)
        same_everywhere(kwargs.get("model"), "model", timeout=self.timeout)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if kwargs.get("train_dataloader") is not None:
            check_shards(kwargs["train_dataloader"], uneven=self.uneven, timeout=self.timeout)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._phases.now()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        return self._agree("step", control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        return self._agree("epoch", control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        return self._agree("evaluate", control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        return self._agree("save", control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._phases.now()

    def _agree(self, name: str, control: Any) -> Any:
        mine = [getattr(control, flag) for flag in FLAGS]
        for flag, value in zip(FLAGS, agree_all(mine, name=name, timeout=self.timeout), strict=True):
            setattr(control, flag, value)
        if control.should_evaluate and name in ("step", "epoch"):
            self._phases.now("evaluate")
        elif control.should_save and name != "save":
            self._phases.now("save")
        else:
            self._phases.now()
        return control
