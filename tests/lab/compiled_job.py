"""What torch.compile makes of functions that call what the recorder wraps: printed by rank 0, to be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.convert_frame
import torch._dynamo.testing
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._dynamo.utils import counters

from whichrank import phase

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
optimizers = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters(), lr=0.1)
x = torch.ones(4)


frames: list[str] = []
convert = torch._dynamo.convert_frame._compile


def _compile(code: Any, *args: Any, **kwargs: Any) -> Any:
    frames.append(f"{code.co_name}:{code.co_firstlineno}")
    return convert(code, *args, **kwargs)


torch._dynamo.convert_frame._compile = _compile


def say(*words: Any) -> None:
    if rank == 0:
        print(*words, flush=True)


def graphs(name: str, function: Callable[..., Any], *args: Any) -> None:
    torch._dynamo.reset()
    counters.clear()
    backend = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(function, backend=backend)
    compiled(*args)
    compiled(*args)
    say(name, frames, backend.frame_count, backend.op_count, len(counters["graph_break"]))
    frames.clear()


def reduces(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def gathers(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(4 * dist.get_world_size())
    dist.all_gather_into_tensor(out, x * 2)
    return out + 1


def waits(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.barrier()
    return y + 1


def sends(x: torch.Tensor) -> torch.Tensor:
    work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
    work.wait()
    return x + 1


def traces(x: torch.Tensor) -> torch.Tensor:
    return functional.wait_tensor(functional.all_reduce(x * 2, "sum", dist.group.WORLD)) + 1


def evaluates(x: torch.Tensor) -> torch.Tensor:
    model.eval()
    y = model(x)
    model.train()
    return y


def named(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    with phase("tokenise"):
        y = y + 1
    return y * 2


graphs("all_reduce", reduces, x)
graphs("all_gather_into_tensor", gathers, x)
graphs("barrier", waits, x)
graphs("isend", sends, x)
graphs("functional", traces, x)
graphs("evaluation", evaluates, torch.ones(2, 4))
graphs("phase", named, x)
model(torch.randn(3, 4)).sum().backward()
for optimizer in optimizers:
    graphs(type(optimizer).__name__, optimizer.step)
torch._dynamo.reset()
torch.compile(reduces, fullgraph=True, backend="aot_eager")(x)
say("fullgraph")
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
compiled = torch.compile(ddp, backend="aot_eager")
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
counters.clear()
for _ in range(5):
    compiled(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
say("ddp", frames, len(counters["graph_break"]))
mine = next(ddp.parameters()).detach()
all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
dist.all_gather(all_of_them, mine)
say(all(torch.equal(mine, theirs) for theirs in all_of_them))
dist.destroy_process_group()
