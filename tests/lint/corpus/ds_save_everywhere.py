"""Fine-tuning under DeepSpeed, with a note about the newest tag."""

import datetime
import json
import os

import deepspeed
import torch


def finetune(args, model, dataset):
    deepspeed.init_distributed(timeout=datetime.timedelta(minutes=40))
    engine, _, loader, _ = deepspeed.initialize(args=args, model=model, training_data=dataset)
    is_main = torch.distributed.get_rank() == 0
    for step, batch in enumerate(loader, start=1):
        loss = engine(**{k: v.to(engine.device) for k, v in batch.items()}).loss
        engine.backward(loss)
        engine.step()
        if step % args.save_every == 0:
            engine.save_checkpoint(args.output_dir, tag=f"step{step}", client_state={"step": step})
            if is_main:
                with open(os.path.join(args.output_dir, "state.json"), "w") as out:
                    json.dump({"tag": f"step{step}"}, out)
        if is_main and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")
