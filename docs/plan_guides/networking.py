"""Networking and storage for multi-node training."""

from __future__ import annotations

from dataclasses import replace

from plan_guides.words import dollars, table
from whichrank.plan import cost, job, storage, timeout
from whichrank.plan.catalog import Catalog
from whichrank.plan.quantities import digits, money, parse, percent, seconds, si

LAYOUT = job.Inputs(model="llama-3.1-70b", tensor=8, pipeline=4, data=16, microbatches=32)


def networking(figures: Catalog) -> str:
    return f"""# Networking and storage for multi-node training

Which network and which file system a training cluster needs, by what they cost in time. All numbers come from `whichrank plan job`, `plan cost` and `plan timeout`; change the inputs and they change.

## What a step sends

Llama 3.1 70B on 512 H100 (t8, p4, d16, 32 microbatches of 8,192 tokens):

{_traffic(figures)}

Tensor parallelism moves far more than everything else together, and every layer waits for it. That is why t stays inside a node: NVLink carries it, the network does not have to. What is left for the network is the gradients once a step, mostly hidden behind the backward pass, and small transfers between stages.

## How fast a network

The same layout, with the network bandwidth per GPU changed:

{_nics(figures)}

{_nic_words(figures)}

Data parallelism without a pipeline and with few microbatches is the case that needs more: then there is one reduction per step and little computing to hide it behind. Try your layout with `whichrank plan job --nic 200Gb/s`.

## Which fabric

For 512 and 2,048 H100, one 400 Gb/s card per GPU:

{_fabrics(figures)}

Rail-only joins GPUs of the same index in different nodes and nothing else; traffic between rails goes through NVLink first. It suits training jobs with a fixed layout and is the cheapest, up to one switch per rail. A full fat tree lets any job run anywhere. Dual-plane halves the damage of a dead switch and reaches further with two tiers, for twice the cables.

## How fast a file system

A checkpoint of the same model is {_checkpoint_size(figures)} (14 bytes per parameter). By bandwidth of the file system, training standing still meanwhile:

{_file_systems(figures)}

"Lost" is the share of the time that goes to checkpoints, work done again after failures, and restarts, at the interval that Daly's formula suggests. Beyond the point where it hardly falls any more, bandwidth buys nothing: writing asynchronously does more.

## How often it fails

Interruptions per week at published rates (2.3 to 6.5 per 1,000 node-days), with a checkpoint that takes a minute:

{_failures(figures)}

## Limits

{_limits(figures)}
"""


def _traffic(figures: Catalog) -> str:
    found = job.plan(LAYOUT, figures)
    rows = [
        (each.name, si(each.size, "B"), f"{each.times:,}", si(each.size * each.times, "B"), each.where, seconds(each.seconds * each.times))
        for each in found.collectives
    ]  # fmt: skip
    return table(("traffic", "size", "a step", "in all", "over", "time"), rows)


def _nics(figures: Catalog) -> str:
    rows = []
    for text in ("25Gb/s", "100Gb/s", "200Gb/s", "400Gb/s", "800Gb/s"):
        found = job.plan(replace(LAYOUT, nic=parse(text, "rate")), figures)
        network = sum(each.seconds * each.times for each in found.collectives if each.where == "network")
        rows.append((text, seconds(network), seconds(found.step.likely), digits(found.tokens_per_second.likely)))
    return table(("per GPU", "on the network", "step", "tokens/s"), rows)


def _nic_words(figures: Catalog) -> str:
    slow, fast, most = (
        job.plan(replace(LAYOUT, nic=parse(text, "rate")), figures).step.likely
        for text in ("100Gb/s", "400Gb/s", "800Gb/s")
    )
    return (
        f"From 100 to 400 Gb/s the step gains {percent(slow / fast - 1)}, from 400 to 800 Gb/s {percent(fast / most - 1)}. "
        "With tensor parallelism inside the node, the network is not what limits a job like this one."
    )


def _fabrics(figures: Catalog) -> str:
    rows = []
    for gpus in (512, 2048):
        for topology in ("rail-only", "fat-tree", "dual-plane"):
            if topology == "rail-only" and gpus > 512:
                continue
            found = cost.plan(cost.Inputs(gpus=gpus, topology=topology), figures)
            price = sum(item.cost.likely for item in found.items if item.name.startswith(("switch", "optics")))
            rows.append(
                (f"{gpus:,}, {topology}", str(found.fabric.switches), f"{sum(found.fabric.cables):,}", money(price), money(price / gpus))
            )  # fmt: skip
    return table(("GPUs, topology", "switches", "cables", "fabric", "per GPU"), rows)


def _checkpoint_size(figures: Catalog) -> str:
    return si(job.plan(LAYOUT, figures).checkpoint.size, "B")


def _file_systems(figures: Catalog) -> str:
    rows = []
    for text in ("2GB/s", "10GB/s", "50GB/s", "200GB/s"):
        found = job.plan(replace(LAYOUT, file_system=parse(text, "rate")), figures)
        rows.append(
            (text, seconds(found.checkpoint.seconds.likely), seconds(found.failures.daly), percent(found.failures.lost.likely))
        )  # fmt: skip
    return table(("file system", "checkpoint", "write every", "lost"), rows)


def _failures(figures: Catalog) -> str:
    rows = []
    for nodes in (8, 64, 256, 2048):
        found = storage.failures(nodes, 60.0, figures.book())
        week = found.per_week
        rows.append(
            (
                f"{nodes:,}",
                f"{digits(week.likely)} ({digits(week.low)} to {digits(week.high)})",
                seconds(found.between.likely),
                seconds(found.daly),
                percent(found.lost.likely),
            )
        )
    return table(("nodes", "a week", "one every", "checkpoint every", "lost"), rows)


def _limits(figures: Catalog) -> str:
    found = timeout.plan(timeout.Inputs(gpus=512, model="llama-3.1-70b", file_system=parse("50GB/s", "rate")), figures)
    wire = found.phases[0].expected.likely
    waiting = f" A hang costs {dollars(found.cost.likely)} of GPU time until it fires." if found.cost else ""
    return (
        f"On 512 GPUs the largest collective needs {seconds(wire)}. A limit of {seconds(found.steady)} after the first step "
        f"({seconds(found.first)} before) covers a synchronous checkpoint to a 50 GB/s file system as well.{waiting} "
        "`whichrank plan timeout` prints the code."
    )
