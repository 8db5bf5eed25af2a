"""The Trainer of Hugging Face, small: WHAT plain|guarded FOLDER. Run by test_guard_trainers.py."""

import json
import os
import sys
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import whichrank
from whichrank.guard import process_group

WHAT, GUARDED, FOLDER = sys.argv[1], sys.argv[2] == "guarded", sys.argv[3]
RANK = int(os.environ["RANK"])


def say(what: str, **more: Any) -> None:
    os.write(1, f"{json.dumps({'rank': RANK, 'what': what, **more})}\n".encode())


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 8 if WHAT == "model" and RANK == 1 else 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.inner(x).square().mean()}


class Own(TrainerCallback):
    """Flags that one rank sets by itself."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        say("step", step=state.global_step)
        if RANK == 1 and state.global_step == 3:
            if WHAT == "stop":
                control.should_training_stop = True
            if WHAT == "evaluate":
                control.should_evaluate = True
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        say("evaluated", step=state.global_step)


def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    if WHAT == "error" and RANK == 1 and seen.append(0) is None and len(seen) == 3:
        raise ValueError("bad batch 17")
    return {"x": torch.stack(rows)}


seen: list[int] = []


def main() -> None:
    args = TrainingArguments(
        output_dir=FOLDER, max_steps=8, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, use_cpu=True,
        save_strategy="steps", save_steps=4, eval_strategy="steps", eval_steps=6, logging_steps=2,
        remove_unused_columns=False, ddp_timeout=100,
    )  # fmt: skip
    data = [torch.randn(4) for _ in range(40)]
    trainer = Trainer(
        Model(), args, data_collator=collate, train_dataset=data, eval_dataset=data[:8], callbacks=[Own()]
    )
    if GUARDED:
        from whichrank.guard.hf import GuardCallback

        trainer.add_callback(GuardCallback())
    trainer.train()
    say("end", step=trainer.state.global_step)


if os.environ.get("WHICHRANK_RUN"):
    whichrank.watch()
if GUARDED:
    with process_group("gloo"):
        main()
else:
    main()
