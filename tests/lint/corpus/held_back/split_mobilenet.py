"""A network split over two GPUs: the ends on the first, the middle on the second."""

import torch
import torch.distributed as dist


def first_and_last(front, back, images, device):
    outputs = []
    for chunk in images.chunk(2):
        hidden = front(chunk.to(device))
        dist.isend(hidden.detach(), 1)
        returned = torch.empty(len(chunk), 1280, 7, 7, device=device)
        dist.recv(returned, 1)
        outputs.append(back(returned.mean(dim=(2, 3))))
    return torch.cat(outputs)


def middle(body, chunks, shape, device):
    for _ in range(chunks):
        hidden = torch.empty(shape, device=device)
        dist.recv(hidden, 0)
        dist.send(body(hidden).contiguous(), 0)
