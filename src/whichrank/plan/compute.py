"""How long a GPU computes: the matrix products, attention and memory traffic of one microbatch.

    matmul  2 m k n / (rate * n/(n + tile)), but no faster than the weights can be read
    attention 4 s h FLOP per token and layer forward (half of it causal), 2.5 times that backward
    memory  bytes that normalisation, activation functions and residuals read and write / HBM

Narrow matrices are the reason why tensor parallelism scales worse than its communication says: at t ranks the n of a
product is n/t. What no rank shares (norms and residuals without sequence parallelism) does not shrink at all.
FLOP per layer as in Narayanan et al. 2021, "Efficient Large-Scale Language Model Training" (96 b s h^2 …).
"""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.plan.hardware import Rates
from whichrank.plan.models import Model

RECOMPUTE = ("none", "selective", "op", "full")
AGAIN = {"none": 0.0, "selective": 0.0, "op": 0.5, "full": 1.0}  # share of a layer's products done twice


@dataclass(frozen=True, slots=True)
class Work:
    """One microbatch on one rank. `method` full, lora or qlora; `fused`: compiled, or fused kernels;
    `flash`: attention without a score matrix in memory; `sequence_parallel`: norms and residuals are shared too."""

    microbatch: int
    sequence: int
    tensor: int = 1
    recompute: str = "none"
    method: str = "full"
    fused: bool = True
    flash: bool = True
    sequence_parallel: bool = True

    @property
    def tokens(self) -> int:
        return self.microbatch * self.sequence


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds on the GPU for one microbatch, forward and backward; `forward` is the share of the forward pass."""

    matmul: float
    attention: float
    memory: float
    head: float
    forward: float

    @property
    def total(self) -> float:
        return self.matmul + self.attention + self.memory + self.head


def training(model: Model, work: Work, rates: Rates, layers: int | None = None, head: bool = True) -> Time:
    """Seconds for `layers` of the model (all of them by default), with or without the output layer."""
    layers = model.layers if layers is None else layers
    again = AGAIN[work.recompute]
    weights = 1.0 if work.method == "full" else 0.03  # gradients of the adapters only
    once = layer_products(model, work.tokens, work.tensor, rates)
    attention_passes = 3.5 + again if work.flash else 3.0 + again
    if work.recompute == "op":
        attention_passes = 3.5  # its result is kept
    attention = attention_once(model, work, rates)
    memory = layer_bytes(model, work) * work.tokens / rates.memory
    out = output_layer(model, work, rates) if head else 0.0
    return Time(
        matmul=layers * once * (2 + weights + again),
        attention=layers * attention * attention_passes,
        memory=layers * memory * (3 + again),
        head=out * (2 + (1.0 if work.method == "full" else 0.0)),
        forward=(layers * (once + attention + memory) + out),
    )


def stage(model: Model, work: Work, rates: Rates, layers: int) -> tuple[float, float, float]:
    """Seconds of `layers` without the output layer: forward, backward for inputs, backward for weights."""
    time = training(model, work, rates, layers, head=False)
    weights = layers * layer_products(model, work.tokens, work.tensor, rates)
    return time.forward, time.total - time.forward - weights, weights


def product(m: float, k: float, n: float, rates: Rates) -> float:
    """Seconds for an m x k by k x n matrix product in 16 bits."""
    narrow = min(k, n)
    return max(2 * m * k * n / rates.matmul * (1 + rates.tile / narrow), 2 * k * n / rates.memory)


def layer_products(model: Model, tokens: int, tensor: int, rates: Rates) -> float:
    """Seconds for a layer's matrix products, once, on one of `tensor` ranks."""
    t = tensor
    kv = max(model.kv_width / t, model.head_size)
    queries = model.query_width / t
    attention = product(tokens, model.hidden, queries + 2 * kv, rates) + product(tokens, queries, model.hidden, rates)
    ffn = model.ffn / t
    inner = 2 * ffn if model.gated else ffn
    if model.experts == 1:
        return attention + product(tokens, model.hidden, inner, rates) + product(tokens, ffn, model.hidden, rates)
    each = max(1.0, tokens * model.experts_active / model.experts)
    expert = product(each, model.hidden, inner, rates) + product(each, ffn, model.hidden, rates)
    shared = 2 * tokens * model.shared_parameters / t / rates.matmul * (1 + rates.tile / min(model.hidden, inner))
    return attention + model.sparse_share * model.experts * expert + shared


def attention_once(model: Model, work: Work, rates: Rates) -> float:
    """Seconds for a layer's scores and their use, once."""
    flop = 4 * work.sequence * model.query_width / work.tensor * work.tokens
    if work.flash:
        return flop / 2 / rates.attention  # the causal half
    return flop / rates.matmul * (1 + rates.tile / model.head_size / 4)


def layer_bytes(model: Model, work: Work) -> float:
    """Bytes per token that a layer's other operations read and write in a forward pass, in 16 bits."""
    shared = work.tensor if work.sequence_parallel else 1
    norms = (12 if work.fused else 22) * model.hidden / shared
    heads = 2 * (model.query_width + 2 * model.kv_width) * (2 if work.fused else 3) / work.tensor
    wide = (model.ffn * model.experts_active + model.shared_ffn) / work.tensor
    if model.gated:
        act = (6 if work.fused else 10) * wide
    else:
        act = (4 if work.fused else 8) * wide
    scores = 4 * (model.query_width + model.kv_width) if work.flash else 9 * model.heads * work.sequence
    return norms + heads + act + scores / work.tensor


def output_layer(model: Model, work: Work, rates: Rates) -> float:
    """Seconds for the logits and the loss, a third of it forward."""
    width = model.vocab / work.tensor
    loss = (5 if work.fused else 8) * width * work.tokens / rates.memory
    return product(work.tokens, model.hidden, width, rates) + loss


def model_flop(model: Model, work: Work) -> float:
    """FLOP per token that the model needs by itself, without any recomputation: what MFU counts."""
    weights = 6 if work.method == "full" else 4
    return weights * model.active_parameters + 6 * model.layers * work.sequence * model.query_width


def counted_flop(model: Model, microbatch: int, sequence: int, recompute: bool) -> float:
    """FLOP of a step by Narayanan's formula, the one behind Megatron's figures."""
    b, s, h, layers, vocab = microbatch, sequence, model.hidden, model.layers, model.vocab
    return (96 if recompute else 72) * b * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
