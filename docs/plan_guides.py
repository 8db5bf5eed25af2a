"""Three guides, written from the calculators' own output: every number in them is computed when the pages are built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from whichrank.plan import cost, finetune, job, memory, pipeline, storage, tensor, timeout
from whichrank.plan.catalog import Catalog
from whichrank.plan.quantities import Range, digits, gib, money, parse, percent, seconds, si


def guides(figures: Catalog) -> Iterator[tuple[str, str]]:
    """File name and Markdown of each guide; the first line is its title."""
    yield "guide-networking-and-storage.md", networking(figures)
    yield "guide-parallelism.md", parallelism(figures)
    yield "guide-on-premises.md", on_premises(figures)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| :-- |{' --: |' * (len(head) - 1)}"]
    lines += [f"| {' | '.join(cell.replace('$', chr(92) + '$') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def dollars(value: float) -> str:
    return money(value).replace("$", "\\$")


# --- networking and storage

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


# --- tensor or pipeline


def parallelism(figures: Catalog) -> str:
    return f"""# Tensor or pipeline parallelism, for serving and for training

Both split a model over GPUs. Tensor parallelism splits every layer and talks in every layer; pipeline parallelism splits the stack of layers, hardly talks, and idles. All numbers come from `whichrank plan tp`, `plan pipeline`, `plan memory` and `plan job`.

## Training: what tensor parallelism costs

Llama 3.1 8B on H100, microbatches of one sequence of 8,192 tokens:

{_training_scaling(figures)}

Efficiency falls for two reasons: communication, and matrices that become too narrow to keep a GPU busy. Past the node (t = 16) every layer's all-reduce crosses the network as well.

## Training: what a pipeline costs

The bubble of 1F1B, simulated with transfers, by stages and microbatches in a step:

{_bubbles(figures)}

Interleaving divides it, zero-bubble schedules nearly remove it:

{_schedules(figures)}

{_needed(figures)}

## Training: the same GPUs, split differently

Llama 3.1 70B on 64 H100 with 128 sequences of 8,192 tokens in a step:

{_layouts(figures)}

The order is a rule of thumb worth keeping: tensor parallelism up to what memory asks for and never beyond the node, then a pipeline with at least four microbatches per stage, then data parallelism with all the rest.

## Serving: tensor parallelism buys room for the cache

Llama 3.1 70B in FP8, 128 tokens in and 2,048 out, as many requests as fit:

{_serving(figures)}

{_serving_words(figures)}

## Serving: latency

One request at a time, Llama 3.1 8B in bf16 on H100, 512 tokens in and 128 out:

{_latency(figures)}

For latency t = 2 or 4 helps; past that, launching kernels and small all-reduces dominate. A pipeline does nothing for the latency of a single request: its stages work one after the other. It helps throughput where the links between GPUs are slow (PCIe cards), because it hardly uses them.
"""


def _training_scaling(figures: Catalog) -> str:
    found = tensor.plan(
        tensor.Inputs(sequence=8192, recompute="op", data=8, states="fsdp", sizes=(1, 2, 4, 8, 16)), figures
    )
    rows = [
        (str(r.tensor), digits(r.per_gpu.likely), percent(r.efficiency), percent(r.communication), gib(r.memory), r.fits)
        for r in found.rows
    ]  # fmt: skip
    return table(("t", "tokens/s/GPU", "efficiency", "communication", "memory/GPU", ""), rows)


def _bubbles(figures: Catalog) -> str:
    rows = []
    for stages in (4, 8, 16):
        cells = []
        for factor in (1, 2, 4, 8):
            found = pipeline.plan(pipeline.Inputs(stages=stages, microbatches=factor * stages), figures)
            cells.append(percent(found.rows[0].simulated))
        rows.append((str(stages), *cells))
    return table(("stages", "m = p", "m = 2p", "m = 4p", "m = 8p"), rows)


def _schedules(figures: Catalog) -> str:
    found = pipeline.plan(pipeline.Inputs(stages=8, microbatches=32, chunks=4), figures)
    rows = [
        (row.schedule, percent(row.of_total), percent(row.simulated), f"{row.speed.likely:.2f}x", digits(row.held))
        for row in found.rows
    ]
    return table(("8 stages, 32 microbatches", "closed form", "simulated", "against 1F1B", "microbatches held"), rows)


def _needed(figures: Catalog) -> str:
    rows = pipeline.plan(pipeline.Inputs(stages=8, microbatches=32, target=Range.exactly(0.05)), figures).rows
    told = ", ".join(f"{row.schedule} {row.needed or 'never'}" for row in rows)
    return f"Microbatches that 8 stages need for a bubble below 5 %: {told}."


def _layouts(figures: Catalog) -> str:
    rows = []
    for t, p, d in ((8, 1, 8), (8, 2, 4), (4, 4, 4), (4, 2, 8), (2, 8, 4), (8, 8, 1)):
        inputs = job.Inputs(
            model="llama-3.1-70b", tensor=t, pipeline=p, data=d, microbatches=128 // d, recompute="selective"
        )
        found = job.plan(inputs, figures)
        rows.append(
            (f"t{t} p{p} d{d}", str(128 // d), percent(found.bubble), seconds(found.step.likely), percent(found.mfu),
             gib(found.parts.total), found.verdict)
        )  # fmt: skip
    return table(("layout", "microbatches", "bubble", "step", "MFU", "memory/GPU", ""), rows)


def _served(figures: Catalog, kind: str) -> tensor.TensorPlan:
    return tensor.plan(
        tensor.Inputs(
            model="llama-3.1-70b", gpu=kind, mode="serving", precision="fp8", input_tokens=128, output_tokens=2048
        ),
        figures,
    )


def _serving(figures: Catalog) -> str:
    rows = []
    for kind in ("h100", "h200"):
        for row in _served(figures, kind).rows:
            cells = (
                f"{row.sequences:,.0f}",
                digits(row.throughput.likely),
                digits(row.per_gpu.likely),
                f"{row.speedup:.1f}x",
            )
            rows.append((f"{kind}, t = {row.tensor}", *cells))
    return table(("GPU", "sequences", "tokens/s", "per GPU", "against t = 1"), rows)


def _serving_words(figures: Catalog) -> str:
    small, large = _served(figures, "h100"), _served(figures, "h200")
    one, two = small.rows[0], small.rows[1]
    return (
        f"On an 80 GB card the weights leave room for {one.sequences:.0f} sequences; a second card makes it "
        f"{two.sequences:.0f}, and throughput grows {two.speedup:.1f}-fold. On the 141 GB card t = 1 already has room, "
        f"and t = {large.cheapest} is best per GPU. Measured: 745 and 5,822 tokens/s (H100, t = 1 and 2), "
        "4,351, 8,450 and 13,439 (H200, t = 1, 2, 4). So: the smallest t at which the cache has room."
    )


def _latency(figures: Catalog) -> str:
    found = tensor.plan(
        tensor.Inputs(mode="serving", input_tokens=512, output_tokens=128, batch=1, sizes=(1, 2, 4, 8)), figures
    )
    rows = [
        (str(r.tensor), seconds(r.latency), seconds(r.seconds.likely), percent(r.communication)) for r in found.rows
    ]
    return table(("t", "request", "per token", "communication"), rows)


# --- on premises


def on_premises(figures: Catalog) -> str:
    return f"""# Sizing an on-premises cluster

How many nodes, which fabric, how much storage, power and money. All numbers come from `whichrank plan cost`, `plan finetune`, `plan memory` and `plan job`; prices are dated list prices, not quotes ([where they come from](cost.md#assumptions)).

## 1. How many GPUs

From the work. A run needs tokens times FLOP, divided by what a GPU keeps up:

{_work(figures)}

Add what fails: at published rates, and if every interruption took a node away for a week, one node in {_one_in(figures)} would be missing at any time. Keep spare nodes accordingly.

## 2. What it costs to build

{_builds(figures)}

Servers are {_server_share(figures)} of it. The fabric is the next largest part, and the one with a choice: [networking and storage](guide-networking-and-storage.md).

## 3. Racks and power

{_racks(figures)}

A rack with four eight-GPU servers exceeds what air cooling and most halls provide (10 to 20 kW): fewer servers per rack, or liquid cooling. If the hall has to be built, it is the second largest item of all:

{_halls(figures)}

## 4. Storage

Capacity follows the data; bandwidth follows the checkpoints. For a synchronous checkpoint of a 70B model in a minute:

{_bandwidths(figures)}

## 5. Owning against renting

Capital written off over four years, electricity, support and staff, per GPU-hour in use:

{_hours(figures)}

{_hours_words(figures)}

## 6. What a GPU of it can hold

{_holds(figures)}
"""


def _work(figures: Catalog) -> str:
    rows = []
    for model, tokens, gpus in (("llama-3.1-8b", "1T", 64), ("llama-3.1-8b", "15T", 512), ("llama-3.1-70b", "2T", 512)):
        inputs = finetune.Inputs(
            model=model, tokens=parse(tokens, "count"), gpus=gpus, sequence=8192, recompute="op", accumulate=4,
            kinds="h100",
        )  # fmt: skip
        found = finetune.plan(inputs, figures).methods[0]
        rows.append(
            (
                f"{model}, {tokens} tokens",
                digits(found.gpu_hours.likely),
                str(gpus),
                seconds(3600 * found.wall_hours.likely),
            )
        )
    return table(("pre-training", "H100-hours", "on GPUs", "takes"), rows)


def _one_in(figures: Catalog) -> str:
    rate = figures.figures["reliability.failures.per_node_day"].number.likely
    return f"{1 / (rate * 7):.0f}"


SIZES = ((64, "h100"), (256, "h100"), (64, "b200"), (256, "b200"), (1024, "b200"))


def _built(figures: Catalog, nodes: int, kind: str, **more: str) -> cost.CostPlan:
    return cost.plan(cost.Inputs(gpus=8 * nodes, gpu=kind, **more), figures)


def _builds(figures: Catalog) -> str:
    rows = []
    for nodes, kind in SIZES:
        found = _built(figures, nodes, kind)
        fabric = f"{found.fabric.leaf} + {found.fabric.spine} + {found.fabric.core}"
        rows.append(
            (f"{nodes:,} nodes, {kind}", fabric, f"{sum(found.fabric.cables):,}", money(found.capital.likely),
             f"{money(found.per_gpu.low)} to {money(found.per_gpu.high)}")
        )  # fmt: skip
    return table(("cluster", "leaf + spine + core", "cables", "total", "per GPU"), rows)


def _server_share(figures: Catalog) -> str:
    found = _built(figures, 64, "h100")
    return percent(found.items[0].cost.likely / found.capital.likely)


def _racks(figures: Catalog) -> str:
    rows = []
    for nodes, kind in SIZES:
        found = _built(figures, nodes, kind)
        rows.append((f"{nodes:,} nodes, {kind}", si(found.it_power, "W"), str(found.racks), si(found.rack_power, "W")))
    return table(("cluster", "IT power", "racks of 4", "per rack"), rows)


def _halls(figures: Catalog) -> str:
    rows = []
    for place in ("frankfurt", "london", "silicon-valley", "tokyo"):
        found = _built(figures, 64, "h100", facility=place)
        rows.append((place, money(found.items[-1].cost.likely), money(found.per_gpu.likely)))
    return table(("64 nodes H100 in", "hall", "per GPU, all in"), rows)


def _bandwidths(figures: Catalog) -> str:
    rows = []
    for model in ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"):
        size = job.plan(job.Inputs(model=model, pipeline=1 if model.endswith("8b") else 2), figures).checkpoint.size
        rows.append((model, si(size, "B"), si(size / 60, "B/s"), si(size / 600, "B/s")))
    return table(("model", "checkpoint", "in a minute", "in ten minutes"), rows)


def _hours(figures: Catalog) -> str:
    rows = []
    for kind in ("h100", "b200"):
        for used in (0.4, 0.6, 0.8, 0.95):
            inputs = cost.Inputs(gpus=512, gpu=kind, utilisation=Range.exactly(used))
            found = cost.plan(inputs, figures)
            rent = f"{money(found.rent.low)} to {money(found.rent.high)}" if found.rent else "-"
            hour = found.per_gpu_hour
            rows.append(
                (
                    f"{kind}, {percent(used)} in use",
                    money(hour.likely),
                    f"{money(hour.low)} to {money(hour.high)}",
                    rent,
                )
            )
    return table(("512 GPUs", "owning", "range", "renting, list"), rows)


def _hours_words(figures: Catalog) -> str:
    found = cost.plan(cost.Inputs(gpus=512, utilisation=Range.exactly(1.0)), figures)
    assert found.rent
    even = found.per_gpu_hour.likely / found.rent.likely
    return (
        f"At the middle of both ranges, owning 512 H100 is cheaper than renting from {percent(even)} utilisation on. The "
        "ranges overlap widely: the price of the servers and how much they are used decide, not the electricity "
        f"({percent(found.yearly_energy.likely / (found.capital.likely / 4 + found.yearly_energy.likely + found.yearly_other.likely))} "
        "of the yearly cost)."
    )


def _holds(figures: Catalog) -> str:
    rows = []
    for model in ("llama-3.1-8b", "llama-3.1-70b"):
        for kind in ("h100", "h200", "b200"):
            cells = []
            for data in (8, 64):
                inputs = memory.Inputs(model=model, gpu=kind, data=data, sequence=8192, recompute="full")
                found = memory.plan(inputs, figures)
                cells.append(f"{gib(found.peak.likely)}, {found.verdict}")
            rows.append((f"{model} on {kind}", *cells))
    head = ("full training, FSDP, 8,192 tokens", "over 8 GPUs", "over 64 GPUs")
    return table(head, rows)
