"""CIFAR-10 with Accelerate; the metric is gathered from all processes."""

import torch
from accelerate import Accelerator


def evaluate(accelerator: Accelerator, model, loader):
    model.eval()
    right = total = 0
    for images, labels in loader:
        with torch.no_grad():
            predicted = model(images).argmax(dim=-1)
        predicted, labels = accelerator.gather_for_metrics((predicted, labels))
        right += (predicted == labels).sum().item()
        total += len(labels)
    return right / max(total, 1)


def report(accelerator, model, loader, epoch, tracker):
    value = evaluate(accelerator, model, loader)
    if accelerator.is_main_process:
        tracker.append((epoch, value))
        print(f"epoch {epoch}: {value:.3f}")
    accelerator.print("next epoch")
    return value
