"""The training programs: what each rank's host thread calls, in order.

Three styles, all with tensor, pipeline and expert parallelism where the layout has them:
ddp (buckets of gradients all-reduced while the backward pass runs), fsdp (parameters gathered layer by layer,
gradients reduce-scattered) and zero (gradients reduce-scattered in buckets, parameters gathered after the step).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lab.simulate.layout import Group, Layout
from lab.simulate.ops import COLLECTIVE, COMPUTE, HOST, P2P, SYNC, WAIT, Op, Part
from lab.simulate.recorder import made_by

STYLES = ("ddp", "fsdp", "zero")
BYTES_PER_SECOND = 40e9


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the job does; seconds where not said otherwise."""

    style: str
    steps: int
    layers: int  # of one pipeline stage
    micro_batches: int
    hidden: int
    tokens: int
    layer_seconds: float
    jitter: float  # sigma of the logarithm of a compute kernel's time
    batched_p2p: bool
    sync_every: int
    eval_every: int  # steps; 0: never
    save_every: int
    save_seconds: float
    varied_buckets: bool
    barrier_name: str
    backend: str = "nccl"
    both_groups: bool = (
        False  # of two stages, unbatched: what the second sends goes over the default group (Megatron-LM)
    )


class Writer:
    """Writes the program of one rank."""

    def __init__(self, layout: Layout, recipe: Recipe, rank: int, rng: np.random.Generator, pace: np.ndarray) -> None:
        self.layout, self.recipe, self.rank, self.pace = layout, recipe, rank, pace
        self.stage, self.replica, self.shard = layout.place(rank)
        self.ops: list[Op] = []
        self.step = 0
        self._noise = rng.lognormal(0.0, recipe.jitter, 512).tolist()
        self._drawn = int(rng.integers(512))
        self._tokens = np.random.default_rng(int(rng.integers(1 << 31)))
        self._pending: list[Op] = []

    # ---- single calls

    def seconds(self, nominal: float) -> float:
        self._drawn = (self._drawn + 1) % 512
        return float(nominal * self._noise[self._drawn] * self.pace[self.step])

    def collective(
        self,
        site: str,
        role: str,
        name: str,
        inputs: list[list[int]],
        outputs: list[list[int]] | None = None,
        *,
        before: float = 0.0,
        root: int = -1,
        blocking: bool = True,
        dtype: str = "BFloat16",
        host: float = 30e-6,
    ) -> Op | None:
        """Nothing in a group of one: frameworks skip it."""
        group = self.layout.group(role, self.rank)
        if len(group.ranks) == 1:
            if before:
                self.compute(site, before)
            return None
        op = Op(COLLECTIVE, site, self.step, group, name, inputs, inputs if outputs is None else outputs, dtype)
        op.before, op.root, op.blocking, op.host = self.seconds(before) if before else 0.0, root, blocking, host
        op.takes = _transfer(name, inputs, len(group.ranks))
        self.ops.append(op)
        return op

    def compute(self, site: str, nominal: float) -> None:
        self.ops.append(Op(COMPUTE, site, self.step, before=self.seconds(nominal), host=20e-6))

    def host(self, site: str, seconds: float) -> None:
        self.ops.append(Op(HOST, site, self.step, host=seconds))

    def sync(self) -> None:
        self.ops.append(Op(SYNC, "item", self.step))

    def exchange(self, site: str, *parts: tuple[bool, int]) -> None:
        """Sends (True) and receives (False) with pipeline stages, as one batch or one by one."""
        shape = [self.recipe.tokens, 1, self.recipe.hidden]
        group = self.layout.group("pp", self.rank)
        made = [Part(s, self.layout.rank_at(stage, self.replica, self.shard), shape) for s, stage in parts]
        if self.recipe.batched_p2p:
            self._p2p(site, group, made, True)
            return
        for (sends, stage), part in zip(parts, made, strict=True):
            sender = self.stage if sends else stage
            other = self.recipe.both_groups and self.layout.pp == 2 and sender == 1
            self._p2p(site, self.layout.groups[0] if other else group, [part], False)

    def _p2p(self, site: str, group: Group, parts: list[Part], batched: bool) -> None:
        op = Op(P2P, site, self.step, group, parts=parts, batched=batched, host=40e-6)
        op.takes = 20e-6 + self.recipe.tokens * self.recipe.hidden * 2 / BYTES_PER_SECOND
        # A sender need not wait: only what arrives is needed for the next kernel.
        op.blocking = batched or not parts[0].sends or self.recipe.backend == "gloo"
        self.ops.append(op)

    # ---- parts of a step

    def start(self) -> None:
        self.host("init", 0.05 * self._noise[0])
        self.barrier("init_barrier")
        for layer in range(min(self.recipe.layers, 3)):
            size = self.bucket(layer)
            self.collective(
                "init_broadcast", "dp", "broadcast", [size], root=self.layout.group("dp", self.rank).ranks[0]
            )

    def barrier(self, site: str) -> None:
        gloo = self.recipe.backend == "gloo"
        shapes = [] if gloo else [[1]]
        dtype = "Byte" if self.recipe.barrier_name == "all_reduce" else "Float"
        name = "barrier" if gloo else self.recipe.barrier_name
        self.collective(site, "world", name, shapes, dtype=dtype)
        if not gloo:
            self.sync()  # dist.barrier() blocks the host

    def bucket(self, layer: int) -> list[int]:
        size = self.recipe.hidden * self.recipe.hidden // 8
        return [size + 4096 * layer if self.recipe.varied_buckets else size]

    def sharded(self, layer: int) -> tuple[list[int], list[int]]:
        """Shapes of a bucket that the replicas share evenly, and of the part of one."""
        part = self.bucket(layer)[0] // self.layout.dp
        return [part * self.layout.dp], [part]

    def load(self) -> None:
        """The data loader, and the first tensor rank's batch sent to its group."""
        self.host("data", 0.002 * self._noise[self._drawn])
        group = self.layout.group("tp", self.rank)
        if self.stage in (0, self.layout.pp - 1):
            for _ in range(2):
                self.collective(
                    "data_broadcast", "tp", "broadcast", [[1, self.recipe.tokens]], root=group.ranks[0], dtype="Long"
                )

    def layer(self, layer: int, backward: bool) -> None:
        recipe, n = self.recipe, self.layout.tp
        way = "backward" if backward else "forward"
        time = recipe.layer_seconds * (2 if backward else 1)
        full, part = [recipe.tokens, 1, recipe.hidden], [max(1, recipe.tokens // n), 1, recipe.hidden]
        if recipe.style == "fsdp":
            whole, own = self.sharded(layer)
            self.collective(f"fsdp_gather_{way}", "dp", "_all_gather_base", [own], [whole])
        if n > 1 and recipe.hidden % 512:
            self.collective(f"tp_reduce_{way}", "tp", "all_reduce", [full], before=time)
        else:
            self.collective(
                f"tp_gather_{way}", "tp", "_all_gather_base", [part], [[part[0] * n, *part[1:]]], before=time / 2
            )
            self.collective(
                f"tp_scatter_{way}", "tp", "_reduce_scatter_base", [[part[0] * n, *part[1:]]], [part], before=time / 2
            )
        if self.layout.ep > 1:
            self.experts(way)
        if backward and recipe.style == "fsdp":
            op = self.collective("fsdp_scatter", "dp", "_reduce_scatter_base", [whole], [own], blocking=False)
            self._pending += [op] if op else []

    def experts(self, way: str) -> None:
        """Tokens to the experts and back, with splits that change every time; the totals are what is recorded."""
        group = self.layout.group("ep", self.rank)
        at = group.ranks.index(self.rank)
        seed = [self.step, len(self.ops), group.index]  # the same on all members: they run the same program
        routed = np.random.default_rng(seed).multinomial(
            self.recipe.tokens, _shares(len(group.ranks), seed), len(group.ranks)
        )
        came = int(routed[:, at].sum())
        here, there = [self.recipe.tokens, self.recipe.hidden], [came, self.recipe.hidden]
        self.collective(f"experts_out_{way}", "ep", "all_to_all", [here], [there])
        self.collective(
            f"experts_back_{way}", "ep", "all_to_all", [there], [here], before=self.recipe.layer_seconds / 2
        )

    def forward(self) -> None:
        for layer in range(self.recipe.layers):
            self.layer(layer, False)
        if self.stage == self.layout.pp - 1:
            self.compute("loss", self.recipe.layer_seconds / 2)

    def backward(self, last: bool) -> None:
        for layer in reversed(range(self.recipe.layers)):
            self.layer(layer, True)
            if last and self.recipe.style != "fsdp":
                self.reduce_bucket(layer)

    def reduce_bucket(self, layer: int) -> None:
        if self.recipe.style == "ddp":
            size = self.bucket(layer)
            op = self.collective("ddp_bucket", "dp", "all_reduce", [size], blocking=False, dtype="Float")
        else:
            whole, own = self.sharded(layer)
            op = self.collective("zero_scatter", "dp", "_reduce_scatter_base", [whole], [own], blocking=False)
        self._pending += [op] if op else []

    def pipeline(self, train: bool = True) -> None:
        """One forward, one backward (1F1B): warm-up, steady state, cool-down. Evaluation runs forward only."""
        stage, last, many = self.stage, self.layout.pp - 1, self.recipe.micro_batches
        ahead = min(last - stage, many) if train else many
        before, after = stage - 1, stage + 1

        for _ in range(ahead):
            if stage:
                self.exchange("recv_forward", (False, before))
            self.forward()
            if stage < last:
                self.exchange("send_forward", (True, after))
        if not train:
            return
        steady = many - ahead
        if steady and stage:
            self.exchange("recv_forward", (False, before))
        for i in range(steady):
            self.forward()
            if stage < last:
                self.exchange("send_forward_recv_backward", (True, after), (False, after))
            self.backward(i == many - 1)
            if stage and i < steady - 1:
                # The lower stage sends first and then receives: this side takes the same order.
                self.exchange("send_backward_recv_forward", (False, before), (True, before))
            elif stage:
                self.exchange("send_backward", (True, before))
        for i in range(ahead):
            if stage < last:
                self.exchange("recv_backward", (False, after))
            self.backward(i == ahead - 1)
            if stage:
                self.exchange("send_backward", (True, before))

    def update(self) -> None:
        """Gradients in, norm, optimizer, parameters out, loss logged."""
        self.ops.append(Op(WAIT, "finish_gradients", self.step, waits=self._pending, host=20e-6))
        self._pending = []
        self.collective("gradient_norm", "mp", "all_reduce", [[1]], dtype="Float")
        self.compute("optimizer", self.recipe.layer_seconds / 3)
        if self.recipe.style == "zero":
            for layer in range(self.recipe.layers):
                whole, own = self.sharded(layer)
                self.collective("zero_gather", "dp", "_all_gather_base", [own], [whole])
        if self.stage == self.layout.pp - 1:
            self.collective("loss_mean", "dp", "all_reduce", [[1]], dtype="Float")
        self.collective("step_stats", "world", "all_reduce", [[4]], dtype="Float")
        if self.step % self.recipe.sync_every == 0:
            self.sync()

    def evaluate(self) -> None:
        self.pipeline(train=False)
        self.collective("eval_metric", "world", "all_reduce", [[8]], dtype="Double")
        self.sync()

    def save(self) -> None:
        """Shapes are gathered on rank 0, which writes while the others wait at the barrier."""
        n = self.layout.world
        self.collective("save_sizes", "world", "all_gather", [[1]], [[n, 1]], dtype="Long")
        self.sync()
        theirs = [[0]] if self.recipe.backend == "nccl" else []
        self.collective(
            "save_gather", "world", "gather", [[2048]], [[2048]] * n if not self.rank else theirs, root=0, dtype="Byte"
        )
        self.sync()
        self.host("save_write", self.recipe.save_seconds if not self.rank else 1e-3)
        self.barrier("save_barrier")


def _shares(n: int, seed: list[int]) -> np.ndarray:
    return np.random.default_rng([*seed, 1]).dirichlet([8.0] * n)


def _transfer(name: str, inputs: list[list[int]], members: int) -> float:
    """Seconds: a latency for every doubling of the members, and the bytes."""
    size = math.prod(inputs[0]) if inputs else 1
    return float(15e-6 * members.bit_length() + 2 * size * (2 if name == "all_reduce" else 1) / BYTES_PER_SECOND)


def write(layout: Layout, recipe: Recipe, rank: int, rng: np.random.Generator, pace: np.ndarray) -> list[Op]:
    """The whole program of a rank. pace: factor on its compute times, for each step (one more than there are)."""
    writer = Writer(layout, recipe, rank, rng, pace)
    writer.start()
    for step in range(recipe.steps):
        writer.step = step
        writer.load()
        writer.pipeline()
        writer.update()
        if recipe.eval_every and (step + 1) % recipe.eval_every == 0:
            writer.evaluate()
        if recipe.save_every and (step + 1) % recipe.save_every == 0:
            writer.save()
    writer.step = recipe.steps
    writer.barrier("final_barrier")
    return writer.ops


def operations_per_step(layout: Layout, recipe: Recipe, rng: np.random.Generator) -> float:
    """Recorded entries of an ordinary step, on the rank that has most."""
    one = replace(recipe, steps=1, eval_every=0, save_every=0)
    pace = np.ones(2)
    ranks = {layout.rank_at(stage, 0, 0) for stage in range(layout.pp)}
    return max(sum(made_by(op, "nccl") for op in write(layout, one, rank, rng, pace)) for rank in ranks)
