"""plan timeout: a deliberate limit for collectives, per phase, and the code that sets it. `whichrank timeout` uses this.

    T = safety * max(wire time, skew + operation), safety 2 to 3, and never below the slow end of what is expected
Wire time almost never justifies minutes: 16 GiB over 32 GPUs takes 0.4 s. What does is work that some ranks do while
the others wait: checkpoints, compilation, and rank-0-only work, which belongs on a gloo group with a limit of its own
(or before the group exists) rather than under a raised NCCL limit.
Floor: above the InfiniBand retry budget, or a link error is never seen as one. Ceiling: below whatever kills the job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from whichrank.errors import UsageProblem
from whichrank.plan import storage
from whichrank.plan.answer import Answer, Bars, Formula, Table, age_warnings
from whichrank.plan.catalog import Book, Catalog, Figure
from whichrank.plan.collectives import all_reduce, bus_bandwidth, links
from whichrank.plan.hardware import gpu
from whichrank.plan.inputs import ask
from whichrank.plan.models import preset_or_file
from whichrank.plan.quantities import Range, digits, money, seconds, si, spread

WIRE_SPREAD = 1.25  # a collective's time is known to within this factor
ROUND = 30.0  # seconds: limits are round numbers


@dataclass(frozen=True, slots=True)
class Inputs:
    """The job, and what takes long in it."""

    gpus: int = ask(64, "whole", "ranks", least=1)
    gpu: str = ask("h100", "text", "GPU kind")
    nic: Range | None = ask(None, "rate", "network bandwidth per GPU", least=1)
    all_reduce: Range = ask(Range.exactly(2.0**30), "bytes", "largest collective")
    model: str = ask("", "text", "preset or config.json: for the size of its checkpoint")
    checkpoint: Range | None = ask(None, "bytes", "size of a checkpoint, instead of --model")
    writers: int = ask(0, "whole", "ranks that write it (default: all)")
    writer: Range | None = ask(None, "rate", "bandwidth of one writer", least=1)
    file_system: Range | None = ask(None, "rate", "bandwidth of the file system", least=1)
    rank0: Range | None = ask(None, "time", "longest work that rank 0 does alone: tokenise, index, download, save")
    skew: Range | None = ask(None, "time", "how far ranks drift apart in a step")
    groups: int = ask(4, "whole", "process groups (communicators) per rank", least=1)
    compile: Range | None = ask(None, "time", "compilation and autotuning before the first step")
    safety: Range | None = ask(None, "count", "factor on what is expected", least=1)
    killed_after: Range | None = ask(None, "time", "the scheduler or a supervisor kills a silent job after this")
    price: Range | None = ask(None, "money", "dollars of a GPU-hour")
    torch: str = ask("2.4", "text", "version of PyTorch")


@dataclass(frozen=True, slots=True)
class Phase:
    """What ranks wait for. `when`: first (until the first step ends), steady, or alone (rank 0 only)."""

    name: str
    when: str
    expected: Range
    basis: str


@dataclass(frozen=True, slots=True)
class TimeoutPlan:
    """Seconds. `alone`: the limit of a separate gloo group; None without rank-0 work."""

    inputs: Inputs
    phases: tuple[Phase, ...]
    first: float
    steady: float
    alone: float | None
    raised: float | None  # what the NCCL limit would have to be, if rank 0's work stayed under it
    floor: float
    default: float
    cost: Range | None  # of waiting for the steady limit once, dollars
    code: str
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]
    formulas: tuple[Formula, ...]


def plan(inputs: Inputs, catalog: Catalog, measured: Mapping[str, Range] | None = None) -> TimeoutPlan:
    """Limits for the first step and after it. `measured`: seconds by phase name, from a run; they replace estimates."""
    book = catalog.book()
    phases = tuple(_with(phase, measured or {}) for phase in _phases(inputs, book))
    safety = inputs.safety or book.range("reliability.timeouts.safety")
    skew = inputs.skew or book.range("reliability.timeouts.skew")
    floor = _rounded(1.5 * book.number("reliability.timeouts.ib_retry"))
    first = _limit(phases, ("first", "steady"), safety, skew, floor)
    steady = _limit(phases, ("steady",), safety, skew, floor)
    alone = next((phase.expected for phase in phases if phase.when == "alone"), None)
    apart = _rounded(safety.likely * alone.high) if alone else None
    raised = max(first, apart) if apart is not None else None
    default = _default(inputs.torch, book)
    price = inputs.price or book.optional(f"prices.{inputs.gpu.lower()}.rent")
    cost = price * (inputs.gpus * steady / 3600) if price else None
    return TimeoutPlan(
        inputs,
        phases,
        first,
        steady,
        apart,
        raised,
        floor,
        default,
        cost,
        code(first, steady, apart, inputs.torch),
        (*_warnings(inputs, phases, first, steady, raised, default, book), *age_warnings(book)),
        tuple(book.used.values()),
        tuple(_formulas(phases, safety, skew, first, steady, price, inputs)),
    )


def _with(phase: Phase, measured: Mapping[str, Range]) -> Phase:
    found = measured.get(phase.name)
    return Phase(phase.name, phase.when, found, "measured in the run") if found else phase


def _phases(inputs: Inputs, book: Book) -> list[Phase]:
    kind = gpu(inputs.gpu, book)
    on = links(kind, book, inputs.nic.low if inputs.nic else None)
    size = inputs.all_reduce.high
    wire = all_reduce(size, inputs.gpus, kind.node, on)
    each = book.number("reliability.timeouts.init_per_group")
    compiling = inputs.compile or book.range("reliability.timeouts.compile")
    phases = [
        Phase("collective", "steady", Range.around(wire, WIRE_SPREAD), _bus(size, inputs.gpus, wire)),
        Phase(
            "first step",
            "first",
            compiling + each * inputs.groups,
            f"{inputs.groups} communicators at {seconds(each)}, then compile",
        ),
    ]
    if inputs.checkpoint or inputs.model:
        parameters = (
            inputs.checkpoint.likely / book.number("reliability.storage.bytes_per_parameter")
            if inputs.checkpoint
            else preset_or_file(inputs.model, book).parameters
        )
        writers = inputs.writers or inputs.gpus
        saved = storage.checkpoint(parameters, writers, book, inputs.writer, inputs.file_system)
        phases.append(
            Phase(
                "checkpoint",
                "steady",
                saved.seconds,
                f"{si(saved.size, 'B')}, {writers} writers, training waits",
            )
        )
    if inputs.rank0:
        phases.append(Phase("rank 0 alone", "alone", inputs.rank0, "all others wait for all of it"))
    return phases


@dataclass(frozen=True, slots=True)
class _Term:
    """What a phase asks of a limit, in seconds, and how that comes about."""

    seconds: float
    numbers: str


def _terms(phase: Phase, safety: Range, skew: Range) -> tuple[_Term, _Term]:
    """Safety times what is likely, and the slow end with the largest skew: a limit below either is too short."""
    likely, slow = phase.expected.likely, phase.expected.high
    return (
        _Term(
            safety.likely * (skew.likely + likely),
            f"{safety.likely:.2g} * ({seconds(skew.likely)} + {seconds(likely)})",
        ),
        _Term(skew.high + slow, f"{seconds(skew.high)} + {seconds(slow)}"),
    )


def _largest(phases: tuple[Phase, ...], when: tuple[str, ...], safety: Range, skew: Range) -> tuple[Phase, _Term]:
    found = [(phase, term) for phase in phases if phase.when in when for term in _terms(phase, safety, skew)]
    return max(found, key=lambda pair: pair[1].seconds)


def _bus(size: float, ranks: int, taken: float) -> str:
    """A collective in words, with the bandwidth that nccl-tests would print."""
    told = f"{si(size, 'B')} over {ranks} ranks"
    return f"{told}, {si(bus_bandwidth(size, ranks, taken), 'B/s')} busbw" if taken else told


def _limit(phases: tuple[Phase, ...], when: tuple[str, ...], safety: Range, skew: Range, floor: float) -> float:
    return max(floor, _rounded(_largest(phases, when, safety, skew)[1].seconds))


def _rounded(value: float) -> float:
    step = ROUND if value <= 1800 else 300.0
    return math.ceil(round(value / step, 6)) * step


def _version(text: str) -> tuple[int, int]:
    parts = text.split(".")
    try:
        return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    except ValueError:
        raise UsageProblem(f"--torch {text!r}: write a version like 2.4") from None


def _default(torch: str, book: Book) -> float:
    old = _version(torch) < (2, 2)
    return book.number("reliability.timeouts.nccl_default_old" if old else "reliability.timeouts.nccl_default")


def code(first: float, steady: float, alone: float | None, torch: str) -> str:
    """Python that sets the limits in this version of PyTorch."""
    lines = ["from datetime import timedelta", "import torch.distributed as dist", ""]
    lines.append(
        f'dist.init_process_group("nccl", timeout=timedelta(seconds={first:.0f}))  # until the first step is done'
    )
    lines.append("# groups made later do not inherit it: pass it to each, and to those a DeviceMesh flattens")
    lines.append(f"group = dist.new_group(ranks, timeout=timedelta(seconds={first:.0f}))")
    if alone:
        lines += [
            "",
            "# work of rank 0 alone: a gloo group of its own, so that NCCL's limit can stay short",
            f'waiting = dist.new_group(backend="gloo", timeout=timedelta(seconds={alone:.0f}))',
            "if dist.get_rank() == 0:",
            "    prepare()",
            "dist.barrier(group=waiting)",
        ]
    lines.append("")
    if _version(torch) >= (2, 1):
        lines += [
            "# after the first step, for the default group and every other one",
            "from torch.distributed.distributed_c10d import _set_pg_timeout",
            f"_set_pg_timeout(timedelta(seconds={steady:.0f}), group)",
        ]
    else:
        lines.append(
            f"# PyTorch before 2.1 cannot lower it afterwards; {steady:.0f} s would do from the second step on"
        )
    return "\n".join(lines)


def _warnings(
    inputs: Inputs,
    phases: tuple[Phase, ...],
    first: float,
    steady: float,
    raised: float | None,
    default: float,
    book: Book,
) -> list[str]:
    found = []
    if raised and raised > max(first, steady):
        found.append(
            f"raising the NCCL limit to {seconds(raised)} for rank 0's work would hide every real hang as long: "
            "move that work off the NCCL group, or before it exists"
        )
    if inputs.killed_after and max(first, steady) >= inputs.killed_after.low:
        found.append(
            f"something kills the job after {seconds(inputs.killed_after.low)}, before these limits: nobody would see "
            "the stacks and dumps. Raise that first"
        )
    heartbeat = book.number("reliability.timeouts.heartbeat")
    if steady > heartbeat:
        found.append(
            f"longer than the watchdog's heartbeat ({seconds(heartbeat)}): set TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC above it"
        )
    slow = next((phase for phase in phases if phase.name == "checkpoint"), None)
    if slow and slow.expected.likely > 120:
        found.append(
            f"a checkpoint that stops training for {seconds(slow.expected.likely)}: write it asynchronously instead of "
            "waiting for it in a collective"
        )
    if slow and slow.expected.width > 3:
        found.append("the checkpoint's time is little more than a guess: give --file-system and --writer")
    if steady < default:
        found.append(f"shorter than PyTorch's default ({seconds(default)}): a real hang is found earlier")
    return found


def _formulas(
    phases: tuple[Phase, ...],
    safety: Range,
    skew: Range,
    first: float,
    steady: float,
    price: Range | None,
    inputs: Inputs,
) -> list[Formula]:
    made = []
    for name, when, limit in (("first limit", ("first", "steady"), first), ("steady limit", ("steady",), steady)):
        phase, term = _largest(phases, when, safety, skew)
        symbols = "largest of safety * (skew + likely) and largest skew + slow end, rounded up, above the floor"
        made.append(Formula(f"{name} ({phase.name})", symbols, term.numbers, seconds(limit)))
    if price:
        made.append(
            Formula(
                "cost of waiting",
                "GPUs * T * $/GPU-h",
                f"{inputs.gpus} * {seconds(steady)} * {money(price.likely)}",
                money(price.likely * inputs.gpus * steady / 3600),
            )
        )
    return made


def answer(of: TimeoutPlan) -> Answer:
    says = [
        f"Until the first step is done: {seconds(of.first)}. After it: {seconds(of.steady)}.",
    ]
    if of.alone:
        says.append(f"Rank 0's own work: a gloo group with {seconds(of.alone)}, not a longer NCCL limit.")
    wire = of.phases[0].expected.likely
    says.append(f"The wire needs {seconds(wire)}: it is what ranks wait for that sets the limit.")
    if of.cost:
        says.append(f"A hang costs {spread(of.cost, money)} until the steady limit ends it.")
    rows = tuple((phase.name, phase.when, spread(phase.expected, seconds), phase.basis) for phase in of.phases)
    bars = tuple((phase.name, (("seconds", phase.expected.likely),)) for phase in of.phases)
    return Answer(
        "timeout",
        f"Timeouts: {of.inputs.gpus} ranks, PyTorch {of.inputs.torch}",
        tuple(says),
        (
            Table("What ranks wait for", ("phase", "when", "expected", "basis"), rows, left=(0, 1, 3)),
            Table(
                "Limits",
                ("", "limit", "PyTorch's default"),
                (
                    ("first step", seconds(of.first), seconds(of.default)),
                    ("steady", seconds(of.steady), seconds(of.default)),
                    *((("gloo, rank 0 alone", seconds(of.alone), seconds(1800.0)),) if of.alone else ()),
                ),
                note=f"floor {seconds(of.floor)}: above what InfiniBand retries take ({digits(34)} s)",
            ),
        ),
        (Bars("What ranks wait for, seconds", "s", bars, of.steady),),
        of.formulas,
        of.warnings,
        of.figures,
        of,
        of.code,
    )
