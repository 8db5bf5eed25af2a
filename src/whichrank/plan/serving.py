"""Serving with tensor parallelism: how many sequences fit, how long a step takes, tokens per second.

    sequences = (t * memory - weights - reserve) * share / (cache bytes per token * (input + output))
    step      = products of the batch (no faster than weights are read) + cache read + 2 L all-reduces of 2 b h bytes
                + host, per layer and per sequence
    tokens/s  = sequences / (step + prefill of the requests that come in)

Serving can scale more than linearly: where one GPU has no room left for the cache, a second one multiplies the batch.
All requests have the same length here, as in the published benchmarks, and a batch is kept full.
"""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.plan.catalog import Book
from whichrank.plan.collectives import Links, tensor_group
from whichrank.plan.hardware import Gpu, Rates
from whichrank.plan.models import Model

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.56}
MOST_SEQUENCES = 2048  # what servers admit at once by default


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the server. batch 0: as many as fit. requests 0: an endless queue."""

    input: int
    output: int
    batch: int
    requests: int
    cache_bytes: float  # per element of keys and values
    weight_bytes: float  # per parameter of the layers


@dataclass(frozen=True, slots=True)
class Step:
    """One decoding step in seconds, by part, and what it yields. `sequences` 0: the model does not fit."""

    sequences: float
    products: float
    cache: float
    communication: float
    host: float
    prefill: float  # of one request

    @property
    def seconds(self) -> float:
        return self.products + self.cache + self.communication + self.host


def weights(model: Model, load: Load) -> float:
    """Bytes; embedding and output layer stay in 16 bits."""
    return (model.parameters - model.embedding_parameters) * load.weight_bytes + 2 * model.embedding_parameters


def token_bytes(model: Model, load: Load, tensor: int) -> float:
    """Of a token's keys and values on all ranks together: where there are more ranks than heads of them, each rank keeps
    a whole head. Mixtures share attention by requests, not by heads (attention data parallelism), and copy nothing."""
    copies = tensor / model.kv_heads if tensor > model.kv_heads and model.experts == 1 and not model.latent else 1.0
    return model.kv_bytes(load.cache_bytes) * copies


def sequences_that_fit(model: Model, gpu: Gpu, tensor: int, load: Load, book: Book) -> int:
    """Whole sequences whose cache fits beside the weights; 0 where not even one does."""
    free = tensor * (gpu.memory - book.number("assumptions.serving.reserve")) - weights(model, load)
    free *= book.number("assumptions.serving.cache_share")
    return max(0, int(free / (token_bytes(model, load, tensor) * (load.input + load.output))))


def step(model: Model, gpu: Gpu, rates: Rates, tensor: int, load: Load, on: Links, book: Book) -> Step:
    """A step at the largest batch that fits, or at the one asked for."""
    fit = sequences_that_fit(model, gpu, tensor, load, book)
    batch = float(min(fit, load.batch or MOST_SEQUENCES))
    if fit and load.requests:
        batch = load.requests / -(-load.requests // int(batch))  # the last wave is not full
    if batch < 1:
        return Step(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    context = load.input + load.output / 2
    host = model.layers * book.number("assumptions.serving.per_layer")
    return Step(
        sequences=batch,
        products=products(model, batch, tensor, load, rates),
        cache=batch * context * token_bytes(model, load, tensor) / tensor / rates.memory,
        communication=all_reduces(model, batch, tensor, on, book),
        host=host + batch * book.number("assumptions.serving.per_sequence"),
        prefill=prefill(model, load, tensor, rates, on),
    )


def products(model: Model, tokens: float, tensor: int, load: Load, rates: Rates) -> float:
    """Seconds for every weight once: computing for `tokens`, or reading, whichever takes longer."""
    always = model.attention_parameters + model.shared_parameters
    each = model.sparse_share * model.expert_parameters
    layer = always / tensor, model.experts_active * each / tensor
    touched = min(model.experts, tokens * model.experts_active) if model.experts > 1 else 1
    read = (always + touched * each) / tensor * load.weight_bytes
    narrow = 1 + rates.tile / min(model.hidden, (2 if model.gated else 1) * model.ffn / tensor)
    compute = 2 * tokens * sum(layer) / rates.matmul * narrow
    head = max(2 * tokens * model.vocab * model.hidden / rates.matmul, 2.0 * model.vocab * model.hidden / rates.memory)
    return model.layers * max(compute, read / rates.memory) + head / tensor


def all_reduces(model: Model, tokens: float, tensor: int, on: Links, book: Book) -> float:
    if tensor == 1:
        return 0.0
    latency, bandwidth = tensor_group(tensor, on)
    if tensor <= on.gpu.domain:
        latency = book.number("network.nccl.small")
    each = latency + 2 * (tensor - 1) / tensor * 2 * tokens * model.hidden / bandwidth
    return 2 * model.layers * each


def prefill(model: Model, load: Load, tensor: int, rates: Rates, on: Links) -> float:
    """Seconds that one request's input costs, inputs being worked on together with others."""
    tokens = float(load.input)
    weight = 2 * tokens * (model.active_parameters - model.vocab * model.hidden) / tensor / rates.matmul
    attention = 2 * tokens**2 * model.query_width * model.layers / tensor / rates.attention
    _, bandwidth = tensor_group(tensor, on)
    sent = 2 * model.layers * 2 * (tensor - 1) / tensor * 2 * tokens * model.hidden / bandwidth
    narrow = 1 + rates.tile / min(model.hidden, model.ffn / tensor)
    return weight * narrow + attention + sent


def tokens_per_second(of: Step, load: Load) -> float:
    """Output tokens a second of the whole group; 0 where the model does not fit."""
    if not of.sequences:
        return 0.0
    return of.sequences / (of.seconds + of.sequences / load.output * of.prefill)


def latency(of: Step, load: Load) -> float:
    """Seconds from a batch's arrival to its last token, when all of it comes at once."""
    return of.sequences * of.prefill + load.output * of.seconds
