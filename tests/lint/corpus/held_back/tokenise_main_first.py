"""Tokenises with the main process first."""

from accelerate import Accelerator
from datasets import load_dataset


def prepared(accelerator: Accelerator, name, tokenizer, max_length):
    def tokenise(rows):
        return tokenizer(rows["text"], truncation=True, max_length=max_length)

    with accelerator.main_process_first():
        raw = load_dataset(name)
        tokenised = raw.map(tokenise, batched=True, remove_columns=["text"])
    if accelerator.is_main_process:
        print(tokenised)
    accelerator.wait_for_everyone()
    return tokenised["train"]
