"""How long a collective takes: bandwidth of the slower level, plus latency that grows with the ring.

Source: NCCL 2.27, src/graph/tuning.cc (ring steps, latencies of the Simple protocol, efficiency of in-switch reduction).
"""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.plan.catalog import Book
from whichrank.plan.hardware import Gpu

ACTIVATION_LATENCY = 20e-6  # seconds of an all-reduce of activations inside a node, besides moving bytes


@dataclass(frozen=True, slots=True)
class Links:
    """What joins the ranks of a group. Bytes/s each way, seconds."""

    gpu: Gpu
    nic: float  # per GPU
    inside: float  # bus bandwidth of a ring inside a node
    switch: float  # algorithm bandwidth of a reduction in the switch; 0 without
    base: float
    hop: float
    network_hop: float
    switch_latency: float
    across: float  # share of the slower level that two levels together reach


def links(gpu: Gpu, book: Book, nic: float | None = None) -> Links:
    """The links of a GPU kind, with `nic` bytes/s of network per GPU (400 Gb/s by default)."""
    at = "network.nccl"
    efficiency = "in_switch_efficiency_blackwell" if gpu.generation == "blackwell" else "in_switch_efficiency"
    switch = gpu.link * book.number(f"{at}.link_share") * book.number(f"{at}.{efficiency}") if gpu.in_switch else 0.0
    return Links(
        gpu=gpu,
        nic=(nic or book.number("network.fabric.nic")) * book.number("network.fabric.nic_efficiency"),
        inside=gpu.bus,
        switch=switch,
        base=book.number(f"{at}.base"),
        hop=book.number(f"{at}.hop"),
        network_hop=book.number(f"{at}.network_hop"),
        switch_latency=book.number(f"{at}.in_switch"),
        across=book.number(f"{at}.across_nodes"),
    )


def all_reduce(size: float, ranks: int, per_node: int, on: Links) -> float:
    """Seconds for `size` bytes over `ranks`, `per_node` of them in each node (or NVLink domain)."""
    if ranks <= 1:
        return 0.0
    inside = min(ranks, per_node)
    nodes = -(-ranks // per_node)
    ring = 2 * (inside - 1) / inside * size / on.inside + on.base + 2 * (inside - 1) * on.hop if inside > 1 else 0.0
    if on.switch and inside > 2:
        # in the switch: each GPU sends all of it once and receives the sum of its part, and the other way round
        ring = min(ring, size * (1 + 1 / inside) / on.switch + on.switch_latency)
    if nodes == 1:
        return ring
    if on.switch:
        return max(ring, _over_nodes(size, nodes, inside, on)) / on.across
    flat = 2 * (ranks - 1) / ranks * size / (on.nic * inside)
    return max(flat + (ranks - nodes) * 2 * on.hop + nodes * 2 * on.network_hop, ring)


def _over_nodes(size: float, nodes: int, inside: int, on: Links) -> float:
    """Between the nodes, every GPU with its own card carrying its share."""
    return 2 * (nodes - 1) / nodes * size / (on.nic * inside) + 2 * (nodes - 1) * on.network_hop


def all_gather(size: float, ranks: int, per_node: int, on: Links) -> float:
    """Seconds until every rank has `size` bytes in total; a reduce-scatter takes as long."""
    if ranks <= 1:
        return 0.0
    inside = min(ranks, per_node)
    nodes = -(-ranks // per_node)
    bandwidth = on.inside if nodes == 1 else min(on.inside, on.nic * inside)
    latency = on.base + (ranks - nodes) * on.hop + (nodes - 1) * on.network_hop
    return (ranks - 1) / ranks * size / bandwidth + latency


def tensor_group(tensor: int, on: Links) -> tuple[float, float]:
    """Latency in seconds and bus bandwidth of a tensor-parallel group, whose collectives are some tens of MB.

    Beyond a node the ring crosses the network with one card per GPU, and pays its latency at every step.
    """
    node = max(on.gpu.node, on.gpu.domain)
    if tensor <= node:
        return ACTIVATION_LATENCY, on.inside
    nodes = -(-tensor // node)
    latency = on.base + 2 * (tensor - nodes) * on.hop + 2 * nodes * on.network_hop
    return max(latency, ACTIVATION_LATENCY), min(on.inside, on.nic * min(node, tensor)) * on.across


def point_to_point(size: float, same_node: bool, on: Links) -> float:
    """Seconds to hand `size` bytes to a neighbour."""
    return size / (on.inside if same_node else on.nic) + (on.hop if same_node else on.network_hop)


def bus_bandwidth(size: float, ranks: int, seconds: float) -> float:
    """What nccl-tests prints as busbw for an all-reduce, bytes/s."""
    return 2 * (ranks - 1) / ranks * size / seconds
