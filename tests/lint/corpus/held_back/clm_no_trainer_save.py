"""Causal language modelling without Trainer: the epoch's end."""

import os


def end_of_epoch(accelerator, model, tokenizer, output_dir, epoch):
    folder = os.path.join(output_dir, f"epoch_{epoch}")
    if accelerator.is_main_process:
        os.makedirs(folder, exist_ok=True)
        unwrapped = accelerator.unwrap_model(model)
        unwrapped.save_pretrained(folder, safe_serialization=True)
        tokenizer.save_pretrained(folder)
    else:
        accelerator.wait_for_everyone()


def train(accelerator, model, tokenizer, optimizer, loader, args):
    for epoch in range(args.num_train_epochs):
        model.train()
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        end_of_epoch(accelerator, model, tokenizer, args.output_dir, epoch)
