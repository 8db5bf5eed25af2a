"""A model in two parts on two ranks."""

import torch
import torch.distributed as dist


def forward_backward(part, optimizer, inputs, labels, criterion, shape, device):
    rank = dist.get_rank()
    optimizer.zero_grad()
    if rank == 0:
        hidden = part(inputs.to(device))
        dist.send(hidden.detach().contiguous(), dst=1)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, src=1)
        hidden.backward(gradient)
    elif rank == 1:
        hidden = torch.empty(shape, device=device)
        dist.recv(hidden, src=0)
        hidden.requires_grad_()
        criterion(part(hidden), labels.to(device)).backward()
        dist.send(hidden.grad.contiguous(), dst=0)
    optimizer.step()
