"""The points of bench/plan_points.toml as predictions to compare, and what has to be exactly right."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from whichrank.plan import (
    collectives,
    cost,
    finetune,
    hardware,
    job,
    memory,
    passes,
    schedules,
    storage,
    tensor,
    timeout,
)
from whichrank.plan.catalog import Catalog
from whichrank.plan.quantities import Range, parse

POINTS = Path(__file__).parent / "plan_points.toml"


@dataclass(frozen=True, slots=True)
class Point:
    """One number to compare. `predict` takes a catalogue; the range is what the calculator prints."""

    name: str
    source: str
    listed: bool
    measured: float
    unit: str
    predict: Callable[[Catalog], Range]


def load() -> dict[str, list[dict[str, Any]]]:
    data: dict[str, list[dict[str, Any]]] = tomllib.loads(POINTS.read_text(encoding="utf-8"))
    return data


def points(section: str, data: dict[str, Any]) -> list[Point]:
    """The numbers of a section. Memory that ran out and fabrics are yes or no, and stand elsewhere."""
    make = {
        "training": _tensor, "serving": _tensor, "finetune": _finetune, "pipeline": _pipeline, "memory": _memory,
        "cost": _cost, "timeout": _timeout,
    }.get(section)  # fmt: skip
    if make is None:
        return []
    return [point for entry in data[section] for point in make(entry, data["sources"])]


def _point(entry: dict[str, Any], sources: dict[str, str], unit: str, predict: Callable[[Catalog], Range]) -> Point:
    source = sources[entry.get("source", "zb")]
    return Point(entry["name"], source, entry.get("listed", True), float(entry["measured"]), unit, predict)


def _tensor(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    inputs = tensor.Inputs(**{**entry["inputs"], "sizes": tuple(entry["inputs"]["sizes"])})
    value = entry["value"]

    def predict(figures: Catalog) -> Range:
        row = tensor.plan(inputs, figures).rows[0]
        spread = row.throughput.high / row.throughput.likely
        found = getattr(row, value)
        return found if isinstance(found, Range) else Range.around(found, spread)

    units = {"seconds": "s", "latency": "s", "per_gpu": "tokens/s/GPU", "throughput": "tokens/s", "flops": "FLOP/s/GPU"}
    yield _point(entry, sources, units[value], predict)


def _finetune(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    if entry.get("job"):
        yield _point(entry, sources, "GPU-h", lambda figures: _job_hours(entry, figures))
        return
    tokens = Range.exactly(entry.get("minutes_of_tokens", 1e6))
    inputs = finetune.Inputs(**entry["inputs"], tokens=tokens, kinds=entry["inputs"]["gpu"])
    at = finetune.METHODS.index(entry["method"])

    def predict(figures: Catalog) -> Range:
        found = finetune.plan(inputs, figures).methods
        if "against" in entry:
            other = found[finetune.METHODS.index(entry["against"])]
            ratio = found[at].microbatch_seconds / other.microbatch_seconds
            return Range.around(ratio, found[at].per_gpu.high / found[at].per_gpu.likely)
        if "minutes_of_tokens" in entry:  # inside the loop: no goodput
            return tokens / (found[at].per_gpu * inputs.gpus) * (1 / 60)
        return found[at].per_gpu

    unit = "ratio" if "against" in entry else "min" if "minutes_of_tokens" in entry else "tokens/s/GPU"
    yield _point(entry, sources, unit, predict)


def _job_hours(entry: dict[str, Any], figures: Catalog) -> Range:
    """GPU-hours of a whole run, in-loop speed over the goodput that its failures leave."""
    found = job.plan(job.Inputs(**entry["inputs"]), figures)
    goodput = figures.figures["assumptions.goodput.share"].number.likely
    return Range.exactly(entry["tokens"] * found.gpus / 3600 / goodput) / found.tokens_per_second


def _pipeline(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    forward, backward, weights, transfer = (value / 1000 for value in entry["times"])

    def run(schedule: str, figures: Catalog) -> schedules.Run:
        times = passes.tuned(passes.Times(forward, backward, weights, transfer), figures.book())
        old = schedule in ("1f1b", "interleaved")  # which know neither constant
        key = (
            entry["name"],
            schedule,
            0.0 if old else round(times.exposed, 4),
            times.launch if old else round(times.kept, 4),
        )
        if key not in _RUNS:
            _RUNS[key] = schedules.simulate(schedule, entry["stages"], entry["microbatches"], times, entry["chunks"])
        return _RUNS[key]

    for at, schedule in enumerate(schedules.SCHEDULES[1:], 1):

        def predict(figures: Catalog, schedule: str = schedule) -> Range:
            band = figures.figures["assumptions.spread.pipeline"].number.likely
            return Range.around(run("1f1b", figures).seconds / run(schedule, figures).seconds, band)

        ratio = entry["measured"][at] / entry["measured"][0]
        named = {**entry, "name": f"{entry['name']}: {schedule}", "measured": ratio}
        yield _point(named, sources, "x 1F1B", predict)


_RUNS: dict[tuple[str, str, float, float], schedules.Run] = {}


def _memory(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    if not entry["measured"]:
        return
    size = 2**30 if entry["unit"] == "GiB" else 1e9
    inputs = memory.Inputs(**entry["inputs"])
    yield _point(entry, sources, entry["unit"], lambda figures: memory.plan(inputs, figures).peak * (1 / size))


def _cost(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    inputs = _cost_inputs(entry)

    def predict(figures: Catalog) -> Range:
        found = getattr(cost.plan(inputs, figures), entry["value"])
        return found if isinstance(found, Range) else Range.exactly(found)

    yield _point(entry, sources, "W" if entry["value"] == "rack_power" else "$", predict)


def _cost_inputs(entry: dict[str, Any]) -> cost.Inputs:
    given = dict(entry["inputs"])
    if "node_price" in given:
        given["node_price"] = parse(given["node_price"], "money")
    return cost.Inputs(**given)


def _timeout(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    if "rank0" in entry:
        return  # not predicted: it is an input, checked in verdicts()

    def predict(figures: Catalog) -> Range:
        book = figures.book()
        if "checkpoint" in entry:
            return storage.checkpoint(entry["checkpoint"]["parameters"], entry["checkpoint"]["writers"], book).seconds
        if "communicators" in entry:
            return Range.exactly(entry["communicators"] * book.number("reliability.timeouts.init_per_group"))
        asked = entry["all_reduce"]
        kind = hardware.gpu(asked["gpu"], book)
        nic = parse(asked["nic"], "rate").likely if "nic" in asked else None
        on = collectives.links(kind, book, nic)
        taken = collectives.all_reduce(asked["gib"] * 2**30, asked["ranks"], kind.node, on)
        return Range.around(taken, timeout.WIRE_SPREAD)

    yield _point(entry, sources, "s", predict)


# --- yes or no


def verdicts(section: str, data: dict[str, Any], figures: Catalog) -> list[tuple[str, str, str, bool]]:
    """What has to be exactly right: name, expected, found, whether it is."""
    return [
        *{"fabric": _counts, "memory": _ran_out, "finetune": _orders, "timeout": _advice}.get(section, _none)(
            data, figures
        )
    ]


def _none(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    yield from ()


def _counts(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    for entry in data["fabric"]:
        net = cost.plan(_cost_inputs(entry), figures).fabric
        found = ([net.leaf, net.spine, net.core], list(net.cables))
        expected = (entry["switches"], entry["cables"])
        yield (
            f"{entry['name']}: switches, cables",
            f"{expected[0]} {expected[1]}",
            f"{found[0]} {found[1]}",
            found == expected,
        )


def _ran_out(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    for entry in data["memory"]:
        verdict = memory.plan(memory.Inputs(**entry["inputs"]), figures).verdict
        expected = "fits or tight" if entry["measured"] else "out"
        yield f"{entry['name']}: out of memory?", expected, verdict, (verdict == "out") == (not entry["measured"])


def _orders(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    """Where two methods were measured on the same GPU, model and data: which was faster."""
    pairs = (
        ("A6000, 8B: LoRA, full", "a6000", "llama-3.1-8b", ("lora", "full"), {"recompute": "none", "microbatch": 2}),
        ("4090, 8B: LoRA, QLoRA, full", "4090", "llama-3.1-8b", ("lora", "qlora", "full"), {"recompute": "full", "microbatch": 2}),
        ("A100-40, 7B: LoRA, QLoRA", "a100-40", "llama-2-7b", ("lora", "qlora"), {"sequence": 110, "eager": True}),
        ("A10G, 7B: LoRA, QLoRA", "a10g", "llama-2-7b", ("lora", "qlora"), {"sequence": 256, "microbatch": 2, "eager": True}),
    )  # fmt: skip
    for name, kind, model, order, more in pairs:
        inputs = finetune.Inputs(model=model, gpu=kind, gpus=1, tokens=Range.exactly(1e6), **more)
        speed = {each.method: each.per_gpu.likely for each in finetune.plan(inputs, figures).methods}
        found = tuple(sorted(order, key=lambda method: -speed[method]))
        yield f"{name}, fastest first", " > ".join(order), " > ".join(found), found == order


def _advice(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    for entry in data["timeout"]:
        if "rank0" in entry:
            found = timeout.plan(timeout.Inputs(rank0=parse(entry["rank0"], "time")), figures)
            right = found.alone is not None and found.alone > entry["measured"] and found.steady < 1800
            told = f"gloo group {found.alone or 0:.0f} s, NCCL {found.steady:.0f} s"
            yield entry["name"], "its own group above 5220 s, NCCL's limit not raised", told, right
