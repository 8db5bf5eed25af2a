"""Supervised fine-tuning with the Hugging Face Trainer and FSDP."""

from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments


def main(name, dataset, output_dir):
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name, use_cache=False)
    args = TrainingArguments(
        output_dir=output_dir,
        per_device_train_batch_size=2,
        fsdp="full_shard auto_wrap",
        save_strategy="no",
        ddp_timeout=7200,
        dataloader_drop_last=True,
    )
    trainer = Trainer(model=model, args=args, train_dataset=dataset)
    result = trainer.train()
    trainer.save_model(output_dir)
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(output_dir)
        trainer.log_metrics("train", result.metrics)
