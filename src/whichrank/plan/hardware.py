"""A GPU, and the rates at which it really works: a peak times what matrix products of that kind keep up."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.errors import UsageProblem
from whichrank.plan.catalog import Book

PRECISIONS = ("bf16", "fp8", "fp4")


@dataclass(frozen=True, slots=True)
class Gpu:
    """Bytes, bytes/s, FLOP/s and watts. `best` is what one large matrix product reaches."""

    key: str
    name: str
    generation: str
    memory: float
    bandwidth: float
    link: float  # each way, to the other GPUs of its domain
    bus: float  # bus bandwidth of a large all-gather inside the node
    domain: int  # GPUs that the fast links join
    node: int  # GPUs in a server
    power: float
    in_switch: bool
    peak: float
    best: float
    precision: str


def gpu(key: str, book: Book, precision: str = "bf16") -> Gpu:
    """A GPU kind from the catalogue.

    Raises:
        UsageProblem: an unknown kind, or a precision that it has no units for.
    """
    known = book.catalog.names("gpus")
    key = key.lower()
    if key not in known:
        from difflib import get_close_matches

        near = get_close_matches(key, known, 2, 0.4)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UsageProblem(f"no GPU kind {key!r}.{hint} Known: {', '.join(known)}; add yours with --figures FILE")
    at = f"gpus.{key}"
    peak = book.maybe(f"{at}.{precision}")
    if peak is None:
        raise UsageProblem(f"{key} has no {precision} units in the catalogue; --set {at}.{precision}=… adds them")
    measured = book.maybe(f"{at}.best" if precision == "bf16" else f"{at}.best_{precision}")
    if measured is None and precision != "bf16" and (wide := book.maybe(f"{at}.best")):
        measured = peak * wide / book.number(f"{at}.bf16")  # as far below its peak as in 16 bits
    name = book.catalog.figures.get(f"{at}.name")
    switch = book.catalog.figures.get(f"{at}.in_switch")
    generation = book.catalog.figures.get(f"{at}.generation")
    return Gpu(
        key=key,
        name=str(name.value) if name else key,
        generation=str(generation.value) if generation else "hopper",
        memory=book.number(f"{at}.memory"),
        bandwidth=book.number(f"{at}.bandwidth"),
        link=book.maybe(f"{at}.link") or 0.0,
        bus=book.number(f"{at}.bus"),
        domain=int(book.maybe(f"{at}.domain") or 1),
        node=int(book.maybe(f"network.sizes.{key}") or 8),
        power=book.number(f"{at}.power"),
        in_switch=bool(switch and switch.value is True),
        peak=peak,
        best=measured or peak,
        precision=precision,
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """What a GPU keeps up in a transformer. `tile`: a product with n columns runs at n/(n + tile) of `matmul`."""

    matmul: float  # FLOP/s
    attention: float  # FLOP/s, fused
    memory: float  # bytes/s
    tile: float  # columns


def rates(of: Gpu, book: Book, *, serving: bool = False) -> Rates:
    """In training, or serving: engines for inference fuse what trainers do between products (casts to 8 bits above all)."""
    share = book.number("assumptions.serving.matmul" if serving else f"assumptions.matmul.{of.generation}")
    matmul = of.best * share
    wide = of if of.precision == "bf16" else gpu(of.key, book)  # attention stays in bf16
    attention = wide.best * share
    return Rates(
        matmul=matmul,
        attention=attention * book.number("assumptions.attention.share"),
        memory=of.bandwidth * book.number("assumptions.memory.share"),
        tile=book.number("assumptions.matmul.tile"),
    )
