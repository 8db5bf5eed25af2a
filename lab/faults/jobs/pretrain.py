"""Data parallel training of a small language model: evaluation and checkpoints now and then, in epochs."""

import corpus
import progress
import saver
import scores
import torch
import torch.distributed as dist
from device import Device
from session import begin, finish
from shards import batches_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Decoder(nn.Module):
    def __init__(self, vocabulary, width, device, seconds):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, 64)
        self.device, self.seconds = device, seconds

    def forward(self, tokens, scale):
        self.device.reserve(tokens.shape[1] ** 2 * 2e-5)
        hidden = self.embedding(tokens).mean(1)
        out = self.head(self.layers(hidden)) * scale[:, None]
        self.device.synchronize(self.seconds * tokens.shape[1] / 256)
        return out


def main():
    given, rank, say = begin()
    device = Device(rank, given.jitter)
    model = DistributedDataParallel(Decoder(given.vocabulary, given.width, device, given.pace))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = torch.compile(squared) if given.compiled else squared
    step = 0
    for epoch in range(given.epochs):
        if str(epoch) in given.texts:
            progress.report(step)
            corpus.prepare(given.texts[str(epoch)], rank, say)
        batches = iter(batches_of(f"{given.data}/epoch{epoch}/rank{rank}", given.batch, given.workers))
        while True:
            progress.report(step)
            batch = next(batches, None)
            if batch is None:
                break
            loss = loss_of(model(batch["tokens"], batch["scale"]))
            if torch.isfinite(loss):
                dist.all_reduce(mean := loss.detach().clone())
                say(f"epoch {epoch} step {step} loss {mean / dist.get_world_size():.4f}")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % given.evaluate_every == 0:
                evaluate(given, model.module, batch, step, rank, say)
            if step % given.save_every == 0:
                saver.save(given.saver, given.save, state_of(given, model, optimizer, step), step, rank, say)
        dist.barrier()
    finish(given, say)


def squared(out):
    return out.square().mean()


def state_of(given, model, optimizer, step):
    """Every so often the averaged weights and the sampler's table are kept too."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    if step in given.full_at:
        state["averaged"] = torch.randn(given.full_size)
    return state


def evaluate(given, model, batch, step, rank, say):
    progress.report(step, "evaluation")
    with torch.no_grad():
        for _ in range(given.evaluation_batches):
            out = model(batch["tokens"], batch["scale"])
    texts, wanted = given.generated.get(f"{step}/{rank}", "a b"), "a b"
    hits = scores.exact_matches([texts], [wanted])
    if draws := given.draws.get(f"{step}/{rank}"):
        hits += scores.ways(draws // 2, draws).bit_length() > 0
    everyone = [torch.empty_like(out.sum(0)) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, out.sum(0))
    say(f"evaluation at step {step}: score {torch.stack(everyone).mean():.4f}, exact {hits}")


if __name__ == "__main__":
    main()
