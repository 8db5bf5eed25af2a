"""LoRA on a multimodal model."""

from peft import LoraConfig, get_peft_model
from transformers import AutoModelForVision2Seq, Trainer, TrainingArguments


def build(name):
    model = AutoModelForVision2Seq.from_pretrained(name)
    model.config.use_cache = True
    return get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"]))


def main(name, dataset, collate, out):
    args = TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        dataloader_drop_last=True,
    )
    trainer = Trainer(model=build(name), args=args, train_dataset=dataset, data_collator=collate)
    trainer.train()
