"""Recipe for a block draft model; batches that are too short are left out."""

import contextlib

from torch.nn.parallel import DistributedDataParallel as DDP


class NoValidAnchors(Exception):
    pass


class Recipe:
    def __init__(self, trainer_module, optimizer, scheduler, accumulate):
        self.model = DDP(trainer_module)
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.accumulate = accumulate

    def run(self, loader):
        for index, batch in enumerate(loader):
            last = (index + 1) % self.accumulate == 0
            context = contextlib.nullcontext() if last else self.model.no_sync()
            with context:
                try:
                    loss = self.model(batch)
                except NoValidAnchors:
                    continue
                (loss / self.accumulate).backward()
            if last:
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
