"""CIFAR-10 with Accelerate."""

import torch
from accelerate import Accelerator
from torch import nn


def evaluate(accelerator: Accelerator, model, loader):
    model.eval()
    right = total = 0
    for images, labels in loader:
        with torch.no_grad():
            predicted = model(images).argmax(dim=-1)
        if accelerator.is_main_process:
            predicted, labels = accelerator.gather_for_metrics((predicted, labels))
            right += (predicted == labels).sum().item()
            total += len(labels)
    return right / max(total, 1)


def train(model, optimizer, train_loader, test_loader, epochs=10):
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        model.train()
        for images, labels in train_loader:
            with accelerator.accumulate(model):
                loss = loss_fn(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accuracy = evaluate(accelerator, model, test_loader)
        accelerator.print(f"epoch {epoch}: {accuracy:.3f}")
