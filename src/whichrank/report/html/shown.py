"""What a recorded call is called on a page: its operation, its sizes, its line of code.

All ranks of a job make mostly the same calls, so each different one is named once and then referred to by number.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from datetime import datetime, timezone

import numpy as np
import numpy.typing as npt

from whichrank.dump import Dump, Frame, Signature
from whichrank.findings.dumps.calls import key_of, written
from whichrank.findings.dumps.calls import operation as called
from whichrank.job.collectives import Collectives, Group, Ring
from whichrank.report.condense import operation
from whichrank.report.printable import cut, printable

Ints = npt.NDArray[np.int64]
LONGEST = 160  # characters of a name or path that comes from a dump
FRAMES = 24  # of a stack
_HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{16,}\b")

_SHORT = {
    "BFloat16": "bf16",
    "Half": "fp16",
    "Float": "fp32",
    "Double": "fp64",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "Float8_e4m3fn": "fp8 e4m3",
    "Float8_e5m2": "fp8 e5m2",
}


def text(value: str) -> str:
    """A name or path out of a dump, fit for a page."""
    return cut(printable(value), LONGEST)


def title(group: Group) -> str:
    """A group's name; one that is a hash by its beginning, which is enough to tell groups apart."""
    return _HASH.sub(r"\1…", text(group.title))


def place(frame: Frame | None) -> str:
    """ "train.py:88 step", "" without a frame."""
    return "" if frame is None else text(f"{frame.file}:{frame.line} {frame.function}".strip())


def stack(frames: tuple[Frame, ...]) -> list[str]:
    """A stack as lines, innermost first."""
    return [place(frame) for frame in frames[:FRAMES]] + (["…"] if len(frames) > FRAMES else [])


def sizes(passed: Signature) -> str:
    """What goes in and comes out, once where both are alike.

    >>> sizes(Signature(((4096, 1024),), ((4096, 1024),), ("BFloat16",), ("BFloat16",)))
    '[4096, 1024] bf16'
    >>> sizes(Signature(((8,),), ((64,),), ("Float",), ("Float",)))
    '[8] fp32 → [64] fp32'
    """
    given = _tensors(passed.inputs, passed.input_dtypes)
    taken = _tensors(passed.outputs, passed.output_dtypes)
    return given if given == taken or not taken else f"{given or 'nothing'} → {taken}"


def _tensors(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]) -> str:
    names = [_SHORT.get(name, text(name)) for name in dtypes]
    shown: list[str] = []
    for number, shape in enumerate(shapes):
        dtype = names[number] if number < len(names) else names[-1] if names else ""
        shown.append(f"[{', '.join(map(str, shape[:8]))}{', …' if len(shape) > 8 else ''}] {dtype}".rstrip())
    if len(shown) > 1 and len(set(shown)) == 1:
        return f"{len(shown)} x {shown[0]}"
    return ", ".join(shown[:4]) + (f" … ({len(shown)} tensors)" if len(shown) > 4 else "")


def when(ns: int) -> str:
    """A time of a dump as ISO 8601 in UTC, "" where it is not known."""
    if ns <= 0:
        return ""
    try:
        seconds, rest = divmod(ns, 1_000_000_000)
        at = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return ""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"


def call(table: Collectives, ring: Ring, at: int, with_group: bool = True) -> str:
    """ "all_reduce #1842 in default_pg"."""
    group = title(table.groups[int(ring.group[at])]) if with_group else None
    seq = int(ring.dump.seq[at]) if not ring.dump.kind[at] else None
    return operation(text(called(ring, at)), seq, group)


class Book:
    """All different calls of a job, numbered as they are met.

    entries: (operation, sizes, place in the code) of each number. `keys` number what must be equal among the members of
    a group: two calls with the same key may still come from different lines.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, str]] = []
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[Hashable, int] = {}
        self._of: dict[int, tuple[Ints, Ints]] = {}

    def codes(self, ring: Ring) -> tuple[Ints, Ints]:
        """For each entry of a ring, the numbers of its call and of its key."""
        if ring.rank not in self._of:
            self._of[ring.rank] = self._coded(ring)
        return self._of[ring.rank]

    def _coded(self, ring: Ring) -> tuple[Ints, Ints]:
        dump = ring.dump
        if not len(dump):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        mixed = (dump.name.astype(np.int64) * len(dump.signatures) + dump.signature) * len(dump.sites) + dump.site
        _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
        pairs = [self._number(ring, dump, int(at)) for at in first]
        calls, keys = np.array(pairs, np.int64).reshape(-1, 2).T
        return calls[inverse], keys[inverse]

    def _number(self, ring: Ring, dump: Dump, at: int) -> tuple[int, int]:
        name, passed = dump.names[int(dump.name[at])], dump.signatures[int(dump.signature[at])]
        frame = written(ring, at)
        number = self._numbers.setdefault((name, passed, frame), len(self.entries))
        if number == len(self.entries):
            self.entries.append((text(name), sizes(passed), place(frame)))
        return number, self._keys.setdefault(key_of(dump, at), len(self._keys))
