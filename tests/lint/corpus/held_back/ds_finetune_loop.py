"""Fine-tuning under DeepSpeed."""

import deepspeed
import torch


def finetune(args, model, dataset):
    engine, _, loader, _ = deepspeed.initialize(args=args, model=model, training_data=dataset)
    rank = torch.distributed.get_rank()
    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            loss = engine(**{k: v.to(engine.device) for k, v in batch.items()}).loss
            engine.backward(loss)
            engine.step()
            step += 1
            if step % args.save_every == 0 and rank == 0:
                engine.save_checkpoint(args.output_dir, tag=f"step{step}")
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
