"""What a layout sends in a step: activations inside tensor groups and between stages, gradients, tokens to experts."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.plan import compute
from whichrank.plan.collectives import Links, all_gather, point_to_point, tensor_group
from whichrank.plan.hardware import Gpu
from whichrank.plan.memory import local_parameters
from whichrank.plan.models import Model

# of a layer and microbatch, forward and backward; sequence parallelism moves the same bytes in other collectives
ALL_REDUCES = {"none": 4, "selective": 4, "op": 5, "full": 6}


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees and batch. `overlapped`: the pipeline's schedule hides its transfers."""

    tensor: int
    pipeline: int
    data: int
    experts: int
    microbatches: int
    chunks: int
    work: compute.Work
    overlapped: bool


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of traffic. Bytes and seconds of one, how many in a step; `hidden`: at least mostly overlapped."""

    name: str
    size: float
    ranks: int
    where: str
    seconds: float
    times: int
    hidden: bool


def tensor_seconds(model: Model, work: compute.Work, on: Links) -> float:
    """Of a microbatch's all-reduces in a tensor-parallel group, in all layers."""
    if work.tensor == 1:
        return 0.0
    return ALL_REDUCES[work.recompute] * model.layers * _all_reduce(model, work, on)


def _all_reduce(model: Model, work: compute.Work, on: Links) -> float:
    latency, bandwidth = tensor_group(work.tensor, on)
    return latency + 2 * (work.tensor - 1) / work.tensor * activations(model, work) / bandwidth


def activations(model: Model, work: compute.Work) -> float:
    """Bytes of a microbatch's activations between two layers, in 16 bits."""
    return 2.0 * work.tokens * model.hidden


def handed_on(model: Model, work: compute.Work, stages: int, kind: Gpu, on: Links) -> tuple[float, bool, float]:
    """What a rank sends to the next stage for a microbatch: bytes, whether they stay inside a node, seconds."""
    size = activations(model, work) / work.tensor
    same_node = work.tensor * stages <= kind.node
    return size, same_node, point_to_point(size, same_node, on)


def in_a_step(model: Model, layout: Layout, kind: Gpu, on: Links) -> list[Collective]:
    """Every kind of traffic that the layout has."""
    return [*_tensor(model, layout, kind, on), *_stages(model, layout, kind, on), *_data(model, layout, kind, on),
            *_experts(model, layout, kind, on)]  # fmt: skip


def _tensor(model: Model, of: Layout, kind: Gpu, on: Links) -> list[Collective]:
    if of.tensor == 1:
        return []
    times = ALL_REDUCES[of.work.recompute] * -(-model.layers // of.pipeline) * of.microbatches
    where = "NVLink" if of.tensor <= kind.domain else "network"
    each = _all_reduce(model, of.work, on)
    return [Collective("activations, tensor", activations(model, of.work), of.tensor, where, each, times, False)]


def _stages(model: Model, of: Layout, kind: Gpu, on: Links) -> list[Collective]:
    if of.pipeline == 1:
        return []
    size, same_node, each = handed_on(model, of.work, of.pipeline, kind, on)
    where = "NVLink" if same_node else "network"
    sends = 2 * of.microbatches * of.chunks
    return [Collective("activations, pipeline", size, 2, where, each, sends, of.overlapped)]


def _data(model: Model, of: Layout, kind: Gpu, on: Links) -> list[Collective]:
    """Gradients in fp32, then weights in bf16: what a distributed optimizer moves once a step."""
    if of.data == 1:
        return []
    local = local_parameters(model, of.tensor, of.pipeline, of.experts)
    per_node = max(1, kind.node // of.tensor)
    where = "NVLink" if of.data <= per_node else "network"
    return [
        Collective(name, each * local, of.data, where, all_gather(each * local, of.data, per_node, on), 1, True)
        for name, each in (("gradients, reduce-scatter", 4), ("weights, all-gather", 2))
    ]


def _experts(model: Model, of: Layout, kind: Gpu, on: Links) -> list[Collective]:
    """Tokens to their experts and back, forward and backward, in every layer."""
    if of.experts == 1:
        return []
    size = activations(model, of.work) * model.experts_active / of.tensor
    inside = of.experts * of.tensor <= kind.node
    each = size / (on.inside if inside else on.nic)
    times = 4 * -(-model.layers // of.pipeline) * of.microbatches
    where = "NVLink" if inside else "network"
    return [Collective("tokens to experts", size, of.experts, where, each, times, False)]
