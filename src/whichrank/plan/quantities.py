"""Quantities: ranges instead of single numbers, units that are checked when read, numbers as people write them.

Inside the calculators everything is in base units: bytes, seconds, FLOP, dollars, watts.

>>> parse("400 Gb/s", "rate").likely
50000000000.0
>>> parse("36k-50k", "money")
Range(low=36000.0, likely=43000.0, high=50000.0)
>>> si(5.05e10, "B/s"), seconds(5400), money(46_883)
('50.5 GB/s', '1.50 h', '$46,883')
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from whichrank.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class Range:
    """The least, the likeliest and the most that a quantity can be. Arithmetic assumes nothing below zero."""

    low: float
    likely: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Range:
        return cls(value, value, value)

    @classmethod
    def around(cls, value: float, factor: float) -> Range:
        """From value/factor to value*factor."""
        return cls(value / factor, value, value * factor)

    @property
    def certain(self) -> bool:
        return self.low == self.high

    @property
    def width(self) -> float:
        """How many times the low end the high end is."""
        return self.high / self.low if self.low > 0 else math.inf

    def __add__(self, other: Range | float) -> Range:
        other = _range(other)
        return Range(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __mul__(self, other: Range | float) -> Range:
        other = _range(other)
        return Range(self.low * other.low, self.likely * other.likely, self.high * other.high)

    def __truediv__(self, other: Range | float) -> Range:
        """The most comes from the most divided by the least."""
        other = _range(other)
        return Range(self.low / other.high, self.likely / other.likely, self.high / other.low)

    __radd__ = __add__
    __rmul__ = __mul__


def _range(value: Range | float) -> Range:
    return value if isinstance(value, Range) else Range.exactly(float(value))


def total(parts: list[Range]) -> Range:
    """The sum; of none, zero."""
    result = Range.exactly(0.0)
    for part in parts:
        result = result + part
    return result


# --- reading

LARGEST = 1e30  # in any unit: what is above is a slip of the finger

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_BYTES = {f"{prefix}B": size for prefix, size in (_DECIMAL | _BINARY).items()}
_BITS = {f"{prefix}b": size / 8 for prefix, size in _DECIMAL.items()}
_COUNTS = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "m": 1e6,
    "G": 1e9,
    "B": 1e9,
    "b": 1e9,
    "bn": 1e9,
    "T": 1e12,
    "t": 1e12,
}
_TIMES = {
    **{"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "minutes": 60.0},
    **{"h": 3600.0, "hours": 3600.0, "d": 86400.0, "days": 86400.0},
}
# kind -> what it is called, the units that fit, an example for the message
KINDS: dict[str, tuple[str, dict[str, float], str]] = {
    "count": ("a number", _COUNTS, "4096 or 15T"),
    "bytes": ("an amount of data", _BYTES, "70GB or 64GiB"),
    "rate": (
        "a bandwidth",
        {f"{unit}/s": size for unit, size in (_BYTES | _BITS).items()}
        | {f"{prefix}bps": size / 8 for prefix, size in _DECIMAL.items()}
        | {f"{prefix}bit/s": size / 8 for prefix, size in _DECIMAL.items()},
        "400Gb/s or 50GB/s",
    ),
    "time": ("a time", _TIMES, "600s, 10min or 2h"),
    "flops": (
        "a rate of arithmetic",
        {f"{prefix}{word}": size for prefix, size in _DECIMAL.items() for word in ("FLOP/s", "FLOPS", "FLOPs")},
        "989TFLOP/s",
    ),
    "money": ("an amount of money", {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "B": 1e9}, "310k or $36k-50k"),
    "power": ("a power", {"W": 1.0, "kW": 1e3, "KW": 1e3, "MW": 1e6}, "10.2kW"),
    "share": ("a share", {"": 1.0, "%": 0.01}, "0.8 or 80%"),
}
# the units that a message names
SHOWN = {
    "count": "k M B T",
    "bytes": "MB GB TB MiB GiB TiB",
    "rate": "GB/s GiB/s Gb/s Tb/s",
    "time": "us ms s min h d",
    "flops": "GFLOP/s TFLOP/s PFLOP/s",
    "money": "k M B",
    "power": "W kW MW",
    "share": "%",
}
_NUMBER = re.compile(r"\s*(?P<number>\d[\d,_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*(?P<unit>[^\d\s-][^\s-]*)?\s*")


def parse(text: str, kind: str) -> Range:
    """A quantity or a range "low-high" of them. The unit must fit the kind.

    Raises:
        UsageProblem: no number, a unit of another kind, a range upside down, or a share above 1.
    """
    what, units, example = KINDS[kind]
    bare = text.replace("$", "") if kind == "money" else text
    ends = re.split(r"(?<=[\w%$.])\s*(?:-|–|\.\.|to)\s*(?=[\d.])", bare.strip(), maxsplit=1)
    if re.fullmatch(r"[\d.]+[eE]", ends[0]):  # 1e-3 is one number
        ends = [bare.strip()]
    units_read = [_unit(end, text, kind) for end in ends]
    last = units_read[-1][1]
    values = []
    for number, unit in units_read:
        unit = unit if unit or ("" in units and not last) else last  # "36-50k" means thousands at both ends
        if unit not in units:
            known = ", ".join(SHOWN[kind].split())
            given = f"{unit!r} is no unit of {what}" if unit else f"{what} needs a unit"
            raise UsageProblem(f"{text!r}: {given}. Units are {known}; write it like {example}")
        values.append(number * units[unit])
    if max(values) > LARGEST:
        raise UsageProblem(f"{text!r} is beyond reason")
    if kind == "share" and max(values) > 1:
        raise UsageProblem(f"{text!r}: a share is at most 1 (or 100 %)")
    if values[0] > values[-1]:
        raise UsageProblem(f"{text!r}: a range goes from low to high")
    return Range(values[0], (values[0] + values[-1]) / 2, values[-1])


def _unit(part: str, whole: str, kind: str) -> tuple[float, str]:
    found = _NUMBER.fullmatch(part)
    if not found:
        what, _, example = KINDS[kind]
        if whole.strip().startswith("-"):
            raise UsageProblem(f"{whole!r}: nothing here can be negative. Write it like {example}")
        raise UsageProblem(f"{whole!r} is not {what}. Write it like {example}")
    return float(found["number"].replace(",", "").replace("_", "")), found["unit"] or ""


# --- writing


def si(value: float, unit: str) -> str:
    """Three digits with a decimal prefix."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size * 0.9995:
            return f"{digits(value / size)} {prefix}{unit}"
    return f"{digits(value)} {unit}".rstrip()


def gib(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


def digits(value: float) -> str:
    """About three digits that matter, without an exponent."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def count(value: float) -> str:
    """8.03B, 1.4T, 512."""
    for suffix, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:,.0f}"


def seconds(value: float) -> str:
    """In the unit a person would choose."""
    for limit, size, unit in (
        (1e-3, 1e-6, "µs"),
        (1.0, 1e-3, "ms"),
        (180.0, 1.0, "s"),
        (5400.0, 60.0, "min"),
        (172800.0, 3600.0, "h"),
    ):
        if abs(value) < limit:
            return f"{digits(value / size)} {unit}"
    return f"{digits(value / 86400)} days"


def money(value: float) -> str:
    if abs(value) >= 999_500:
        return f"${value / 1e6:,.2f}M"
    return f"${value:,.0f}" if abs(value) >= 100 else f"${value:,.2f}"


def percent(value: float) -> str:
    share = 100 * value
    if abs(share) < 0.05:
        return "0 %"
    return f"{share:.0f} %" if abs(share) >= 9.95 else f"{share:.1f} %"


def spread(value: Range, write: Callable[[float], str]) -> str:
    """ "4.35k (3.9k to 4.9k)" with a function that writes one number; the likely value alone where it is certain."""
    if value.certain:
        return write(value.likely)
    return f"{write(value.likely)} ({write(value.low)} to {write(value.high)})"
