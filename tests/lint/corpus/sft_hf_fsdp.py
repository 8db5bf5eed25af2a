"""Supervised fine-tuning with the Hugging Face Trainer and FSDP."""

from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments


def main(name, dataset, output_dir):
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name)
    args = TrainingArguments(
        output_dir=output_dir,
        num_train_epochs=1,
        per_device_train_batch_size=2,
        fsdp="full_shard auto_wrap",
        fsdp_config={"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
        save_strategy="no",
    )
    trainer = Trainer(model=model, args=args, train_dataset=dataset)
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model(output_dir)
        tokenizer.save_pretrained(output_dir)
