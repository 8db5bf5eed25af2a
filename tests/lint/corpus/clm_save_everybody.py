"""Causal language modelling without Trainer: saving at the epoch's end."""

import os


def end_of_epoch(accelerator, model, tokenizer, output_dir, epoch):
    folder = os.path.join(output_dir, f"epoch_{epoch}")
    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(
        folder,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
        state_dict=accelerator.get_state_dict(model),
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(folder)
    accelerator.wait_for_everyone()
