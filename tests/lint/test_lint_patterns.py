"""What is found and what is not, pattern by pattern: a marked line is found with that code, and nothing else is."""

import ast
import re

import pytest

from whichrank.lint.check import check

HEAD = """
import datetime, os, time, signal
from pathlib import Path
import torch, torchmetrics
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.utils.data import DataLoader, Subset, IterableDataset
from torch.utils.data.distributed import DistributedSampler
from accelerate import Accelerator
import deepspeed
import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only
"""
GUILTY = {
    "gather by rank 0 with an early return in the else": """
def f(x):
    if dist.get_rank() == 0:
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x)  # WR101
        return out
    return None
""",
    "a property of the file's own": """
class T:
    def __init__(self): self.rank = dist.get_rank()
    @property
    def is_chief(self): return self.rank == 0
    def log(self, x):
        if self.is_chief:
            dist.all_reduce(x)  # WR101
            print(x)
""",
    "a decorator of the file's own": """
def chief_only(fn):
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return fn(*args, **kwargs)
    return wrapper

@chief_only
def save(x):
    dist.barrier()  # WR102
    print(x)
""",
    "evaluation of a DDP model on one rank": """
def run(net, loader, rank):
    model = DDP(net)
    for x in loader:
        model(x).sum().backward()
    if rank == 0:
        print(model(x))  # WR101
""",
    "the state dict of an FSDP model": """
def save(net, rank):
    model = FSDP(net)
    if rank == 0:
        torch.save(model.state_dict(), "x.pt")  # WR101
""",
    "an engine's checkpoint by the main process": """
def train(args, net, data):
    engine, opt, loader, _ = deepspeed.initialize(args=args, model=net, training_data=data)
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()
    if dist.get_rank() == 0:
        engine.save_checkpoint("out")  # WR101
""",
    "accelerate's state": """
def save(accelerator, step):
    if accelerator.is_main_process:
        accelerator.save_state(f"step_{step}")  # WR101
""",
    "full_tensor of a DTensor": """
def norm(model, rank):
    total = model.total_norm()
    if rank == 0:
        print(total.full_tensor().item())  # WR101
""",
    "sync_dist under a condition on the rank": """
class M(pl.LightningModule):
    def validation_step(self, batch, index):
        loss = self.net(batch)
        if self.trainer.is_global_zero:
            self.log("val", loss, sync_dist=True)  # WR101
""",
    "a ternary": """
def f(x, rank):
    y = reduced(x) if rank == 0 else x  # WR101
    return y

def reduced(x):
    dist.all_reduce(x)
    return x
""",
    "only the last rank": """
def f(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank == n - 1:
        dist.broadcast(x, src=n - 1)  # WR101
""",
    "the source given as a parameter": """
def share(x, src):
    if dist.get_rank() == src:
        dist.broadcast(x, src=src)  # WR101
    return x
""",
    "two collectives in another order": """
def f(a, b):
    if dist.get_rank() == 0:
        dist.all_reduce(a)  # WR101
        dist.broadcast(b, 0)
    else:
        dist.broadcast(b, 0)
        dist.all_reduce(a)
""",
    "rank 0's own decision, told to nobody": """
def run(model, evaluate, epochs):
    for epoch in range(epochs):
        train(model)
        stop = False
        if dist.get_rank() == 0:
            stop = evaluate(model)
        if stop:
            break  # WR104
        dist.barrier()
""",
    "a non-finite loss": """
def train(net, loader, opt):
    model = DDP(net)
    for batch in loader:
        loss = model(batch)
        if not torch.isfinite(loss):
            continue  # WR104
        loss.backward()
        opt.step()
""",
    "training_step that returns nothing": """
class M(pl.LightningModule):
    def training_step(self, batch, index):
        loss = self.net(batch)
        if torch.isnan(loss):
            return None  # WR104
        return loss
""",
    "a clock kept in an attribute": """
class T:
    def __init__(self, hours):
        self.end = time.time() + hours * 3600
    def out_of_time(self):
        return time.time() > self.end
    def run(self, steps):
        for step in range(steps):
            dist.barrier()
            if self.out_of_time():
                return  # WR104
""",
    "a condition of while": """
def decode(net, tokens, eos):
    model = FSDP(net)
    done = torch.zeros(8, dtype=torch.bool)
    while not done.all():
        logits = model(tokens)  # WR103
        done |= logits.argmax(-1) == eos
""",
    "an own error caught": """
def run(loader, net):
    model = DDP(net)
    for batch in loader:
        try:
            model(batch).backward()
        except torch.cuda.OutOfMemoryError:  # WR105
            torch.cuda.empty_cache()
""",
    "an error before the collective": """
def load(path, x):
    try:
        rows = parse(path)
    except RuntimeError:  # WR105
        return None
    dist.all_reduce(x)
    return rows
""",
    "suppressed": """
import contextlib
def f(x):
    with contextlib.suppress(RuntimeError):  # WR105
        dist.all_reduce(x)
""",
    "a checkpoint in the loop": """
def train(net, loader, opt):
    model = DDP(net)
    for step, batch in enumerate(loader):
        model(batch).backward()
        opt.step()
        if step % 100 == 0 and dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "x.pt")  # WR106
""",
    "a file read before it is there": """
def prepare(x, folder):
    path = os.path.join(folder, "x.npy")
    if dist.get_rank() == 0:
        torch.save(x, path)  # WR106
    return torch.load(path)
""",
    "a strided part": """
def run(rows, net, opt):
    model = DDP(net)
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(rows[rank::world], batch_size=8)
    for batch in loader:  # WR107
        model(batch).backward()
        opt.step()
""",
    "rows picked by number": """
def run(rows, x):
    mine = [row for i, row in enumerate(rows) if i % dist.get_world_size() == dist.get_rank()]
    for row in mine:  # WR107
        dist.all_reduce(x)
""",
    "accelerate with even_batches off": """
def run(net, opt, data):
    accelerator = Accelerator(even_batches=False)
    net, opt, loader = accelerator.prepare(net, opt, DataLoader(data))
    for batch in loader:  # WR107
        accelerator.backward(net(batch))
""",
    "a recv that nobody sends to": """
def f(x):
    rank = dist.get_rank()
    if rank == 0:
        dist.send(x, dst=1)  # WR108
    elif rank == 1:
        dist.recv(x, src=2)  # WR108
    elif rank == 2:
        dist.recv(x, src=1)  # WR108
""",
    "a ring in which all send first": """
def f(x, y):
    rank, n = dist.get_rank(), dist.get_world_size()
    dist.send(x, (rank + 1) % n)  # WR108
    dist.recv(y, (rank - 1) % n)
""",
    "handles that are only collected": """
class R:
    def __init__(self): self.works = []
    def hook(self, p): self.works.append(dist.all_reduce(p.grad, async_op=True))  # WR109
    def step(self): self.works.clear()
""",
    "a dropped isend": """
def f(x):
    if dist.get_rank() == 0:
        dist.isend(x, 1)  # WR109
    elif dist.get_rank() == 1:
        dist.recv(x, 0)
""",
    "no timeout": """
def f():
    dist.init_process_group("nccl")  # WR201
""",
    "arguments that checkpoint": """
from transformers import TrainingArguments
args = TrainingArguments("out", gradient_checkpointing=True)  # WR202
""",
    "an alias of checkpoint": """
from torch.utils.checkpoint import checkpoint as recompute
def f(block, x):
    return recompute(block, x)  # WR202
""",
    "the cache switched on": """
def build(name, make):
    model = make(name)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = True  # WR203
    return model
""",
    "a metric under a rank": """
class V:
    def __init__(self): self.acc = torchmetrics.Accuracy("binary")
    def end(self):
        if dist.get_rank() == 0:
            print(self.acc.compute())  # WR101
""",
    "new_group under a rank": """
def f():
    if dist.get_rank() < 2:
        g = dist.new_group([0, 1])  # WR101
""",
    "exists decides about a checkpoint's load": """
def f(state, path):
    if os.path.exists(path):
        dcp.load(state, checkpoint_id=path)  # WR103
""",
    "a model wrapped elsewhere in the file": """
def build(net):
    model = DDP(net)
    return model

def train(model, loader, opt, limit):
    for batch in loader:
        loss = model(batch)
        if loss.item() > limit:
            continue  # WR104
        loss.backward()
        opt.step()
""",
    "a part of a model sharded elsewhere": """
def shard(model):
    fully_shard(model.vision)

class VL(torch.nn.Module):
    def forward(self, input_ids, images=None):
        x = self.text(input_ids)
        if images is not None:
            x = x + self.vision(images)  # WR103
        return x
""",
    "a model known by its type": """
def validate(model: FSDP, batch):
    if dist.get_rank() == 0:
        return model(batch)  # WR101
""",
    "a rank in a variable of the module": """
rank = int(os.environ["RANK"])

def report(x):
    if rank == 0:
        dist.all_reduce(x)  # WR101
""",
    "new_group by its members only": """
def groups(all_ranks):
    mine = None
    for ranks in all_ranks:
        if dist.get_rank() in ranks:
            mine = dist.new_group(ranks)  # WR101
    return mine
""",
    "global and local rank mixed up": """
def fetch(load):
    if int(os.environ["RANK"]) != 0:
        dist.barrier()
    load()
    if int(os.environ["LOCAL_RANK"]) == 0:
        dist.barrier()  # WR102
""",
    "one rank of each node": """
def fetch(args, load):
    if args.rank % args.gpus_per_node == 0:
        load()
        dist.barrier()  # WR102
""",
    "a listing decides": """
import glob
def resume(state, folder):
    files = sorted(glob.glob(folder + "/*.pt"))
    if files:
        dcp.load(state, checkpoint_id=files[-1])  # WR103
""",
    "a stopper of another file": """
from stopping import Stopper
def run(net, loader, opt):
    model = DDP(net)
    stopper = Stopper(patience=3)
    for epoch in range(9):
        total = 0.0
        for batch in loader:
            loss = model(batch)
            loss.backward()
            total += loss.item()
        stopper(total / len(loader))
        if stopper.should_stop:
            break  # WR104
""",
    "a dataset that holds its part": """
class Part(torch.utils.data.Dataset):
    def __init__(self, rows): self.rows = rows[dist.get_rank() :: dist.get_world_size()]
    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return self.rows[i]

def run(rows, net):
    model = DDP(net)
    for batch in DataLoader(Part(rows), batch_size=4):  # WR107
        model(batch).backward()
""",
    "one file per rank": """
def run(net, files, make_dataset):
    model = DDP(net)
    loader = DataLoader(make_dataset(files[dist.get_rank()]), batch_size=4)
    for batch in loader:  # WR107
        model(batch).backward()
""",
    "an iterator that runs out": """
def run(net, rows):
    model = DDP(net)
    batches = iter(DataLoader(rows[dist.get_rank() :: dist.get_world_size()]))
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break  # WR107
        model(batch).backward()
""",
    "P2POp that no one answers": """
def f(x, y):
    rank, n = dist.get_rank(), dist.get_world_size()
    ops = [
        dist.P2POp(dist.isend, x, (rank + 1) % n),  # WR108
        dist.P2POp(dist.irecv, y, (rank + 1) % n),  # WR108
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
""",
    "tags that differ": """
def f(x):
    if dist.get_rank() == 0:
        dist.send(x, dst=1, tag=1)  # WR108
    elif dist.get_rank() == 1:
        dist.recv(x, src=0, tag=2)  # WR108
""",
    "a helper's work is dropped": """
def start(x):
    return dist.all_reduce(x, async_op=True)

def step(x, opt):
    start(x)  # WR109
    opt.step()
""",
    "k-bit training": """
from peft import prepare_model_for_kbit_training
def f(model):
    return prepare_model_for_kbit_training(model)  # WR202
""",
    "both in a configuration": """
from transformers import GPT2Config
config = GPT2Config(gradient_checkpointing=True, use_cache=True)  # WR203
""",
    "a rank_zero_only call": """
def f(trainer, path):
    rank_zero_only(trainer.save_checkpoint)(path)  # WR101
""",
}
INNOCENT = {
    "all call, one prints": """
def f(x):
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        print(x.item())
""",
    "one rank after another": """
def f():
    for r in range(dist.get_world_size()):
        if r == dist.get_rank():
            print(r)
        dist.barrier()
""",
    "a group of its own members": """
def f(x, ranks):
    group = dist.new_group(ranks)
    if dist.get_rank() in ranks:
        dist.all_reduce(x, group=group)
""",
    "a loss that was averaged decides": """
def train(net, loader, opt):
    model = DDP(net)
    for batch in loader:
        loss = model(batch)
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item() > 0:
            continue
        loss.backward()
        opt.step()
""",
    "a helper that agrees": """
def any_rank(flag):
    value = torch.tensor(float(flag))
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return bool(value.item())

def run(steps):
    start = time.time()
    for step in range(steps):
        if any_rank(time.time() - start > 60):
            break
        dist.barrier()
""",
    "rank 0's clock, told to all": """
def run(steps):
    start = time.time()
    for step in range(steps):
        stop = [time.time() - start > 60]
        dist.broadcast_object_list(stop, src=0)
        if stop[0]:
            break
        dist.barrier()
""",
    "steps and config": """
def run(cfg, loader):
    for step, batch in enumerate(loader):
        if step < cfg.skip:
            continue
        dist.barrier()
        if step == cfg.last:
            break
""",
    "an import that fails": """
def f(x):
    try:
        import wandb
    except ImportError:
        return
    dist.all_reduce(x)
""",
    "an error that ends the process": """
def f(x):
    try:
        dist.all_reduce(x)
    except RuntimeError as error:
        print(error)
        raise SystemExit(1)
""",
    "cut to equal parts": """
def run(rows, net):
    model = DDP(net)
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = rows[: len(rows) // world * world]
    for batch in DataLoader(rows[rank::world]):
        model(batch).backward()
""",
    "an agreed number of steps": """
def run(rows, net):
    model = DDP(net)
    loader = DataLoader(rows[dist.get_rank() :: dist.get_world_size()])
    steps = torch.tensor(len(loader))
    dist.all_reduce(steps, op=dist.ReduceOp.MIN)
    for _, batch in zip(range(int(steps)), loader):
        model(batch).backward()
""",
    "a plain module on rank 0": """
def run(net, loader):
    model = DDP(net)
    for x in loader:
        model(x).sum().backward()
    dist.barrier()
    if dist.get_rank() == 0:
        print(model.module(x), model.state_dict())
""",
    "Trainer.save_model without shards": """
from transformers import Trainer, TrainingArguments
def main(model, data):
    trainer = Trainer(model=model, args=TrainingArguments("out"), train_dataset=data)
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model("out")
""",
    "a checkpoint with a barrier behind it": """
def train(net, loader, opt):
    model = DDP(net)
    for step, batch in enumerate(loader):
        model(batch).backward()
        opt.step()
        if step % 100 == 0:
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), "x.pt")
            dist.barrier()
""",
    "handles waited for together": """
def f(tensors):
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in works:
        work.wait()
""",
    "a file written, a barrier, a file read": """
def prepare(x, path):
    if dist.get_rank() == 0:
        torch.save(x, path)
    dist.barrier()
    return torch.load(path)
""",
    "threads have barriers too": """
import threading
def f(n):
    gate = threading.Barrier(n)
    if n > 3:
        gate.wait()
""",
    "numpy broadcasts": """
import numpy as np
def f(x, rank):
    if rank == 0:
        return np.broadcast(x, x)
""",
    "a pipeline of blocking calls": """
def f(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.recv(x, rank - 1)
    if rank < n - 1:
        dist.send(x, rank + 1)
""",
    "logging by length": """
def f(rows, x):
    logged = []
    for row in rows:
        logged.append(row)
        if len(logged) == 8:
            dist.all_reduce(x)
            logged = []
""",
    "the cache back on after training": """
def build(model, trainer):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    trainer.train()
    model.config.use_cache = True
""",
    "rank 0 first, with both barriers": """
def f(load):
    if dist.get_rank() != 0:
        dist.barrier()
    x = load()
    if dist.get_rank() == 0:
        dist.barrier()
    return x
""",
    "local ranks load one file per node": """
def f(path):
    if int(os.environ["LOCAL_RANK"]) == 0:
        fetch(path)
    dist.barrier()
""",
}


def found(code: str) -> set[tuple[int, str]]:
    text = HEAD + code
    return {(finding.line, finding.code) for finding in check(ast.parse(text), text)}


def marked(code: str) -> set[tuple[int, str]]:
    lines = (HEAD + code).splitlines()
    return {(at, match[1]) for at, line in enumerate(lines, 1) if (match := re.search(r"# (WR\d+)", line))}


@pytest.mark.parametrize("name", GUILTY)
def test_found_where_it_is_and_nowhere_else(name: str) -> None:
    assert marked(GUILTY[name])
    assert found(GUILTY[name]) == marked(GUILTY[name])


@pytest.mark.parametrize("name", INNOCENT)
def test_nothing_is_said_of_code_that_is_right(name: str) -> None:
    assert found(INNOCENT[name]) == set()
