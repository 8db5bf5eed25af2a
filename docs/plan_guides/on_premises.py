"""Sizing an on-premises cluster."""

from __future__ import annotations

from plan_guides.words import table
from whichrank.plan import cost, finetune, job, memory
from whichrank.plan.catalog import Catalog
from whichrank.plan.quantities import Range, digits, gib, money, parse, percent, seconds, si


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
