"""Which wrappings a file has, and its lines without them: up to four, one within the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from whichrank.evidence.envelope import documents, journal, prefixes, records, tables
from whichrank.evidence.envelope.clock import local, zone_shift
from whichrank.evidence.envelope.part import Layer, Part, in_time_order
from whichrank.facts import NOBODY, Identity, Source

DEEPEST = 4
HEAD = 400  # lines of a file that decide
SAMPLE = 200


@dataclass(frozen=True, slots=True)
class Envelope:
    """The wrappings of one file, the outermost first. `shift`: the program's clock less the collector's, in ns."""

    layers: tuple[Layer, ...]
    shift: int = 0

    @property
    def exported(self) -> bool:
        """Is it the answer to a query, whose order is no evidence?"""
        return any(layer.exported for layer in self.layers)

    def unwrap(self, lines: Sequence[str], numbers: Sequence[int]) -> Part:
        """A run of consecutive lines of the file; `numbers` are theirs. Keeps nothing from one run to the next."""
        return self._through(Part(list(lines), list(numbers)), in_order=False)

    def _through(self, part: Part, in_order: bool) -> Part:
        """`in_order`: the part is a whole file, whose events are put in the order of their times."""
        for layer in self.layers:
            opened = layer.open(part.lines)
            places = [part.numbers[origin] for origin in opened.origins]
            times, whos = opened.times, opened.whos
            if part.times:
                times = [
                    part.times[origin] if at is None else at for at, origin in zip(times, opened.origins, strict=True)
                ]
                whos = _inner_first(whos, [part.whos[origin] for origin in opened.origins])
            part = Part(opened.lines, places, times, whos, part.reordered, part.cut or opened.cut)
            if in_order and layer.exported:
                part = in_time_order(part)
        if self.shift:
            part.times = [None if at is None else at + self.shift for at in part.times]
            part.lines = [local(line, self.shift) for line in part.lines]
        return part


def _inner_first(inner: list[Identity], outer: list[Identity]) -> list[Identity]:
    """What is said closer to the program counts first."""
    known: dict[tuple[Identity, Identity], Identity] = {}
    found = []
    for near, far in zip(inner, outer, strict=True):
        if near is NOBODY or far is NOBODY:
            found.append(far if near is NOBODY else near)
        else:
            if (near, far) not in known:
                known[near, far] = near.filled(far)
            found.append(known[near, far])
    return found


def envelope_of(head: Sequence[str]) -> Envelope | None:
    """The wrappings that a file's first lines show, or None. Without an envelope it costs some patterns a line."""
    layers: list[Layer] = []
    part = Part(list(head[:HEAD]), list(range(len(head[:HEAD]))))
    while len(layers) < DEEPEST and (layer := _layer_of(part.lines)) is not None:
        layers.append(layer)
        part = Envelope((layer,))._through(part, in_order=False)
    return Envelope(tuple(layers), zone_shift(part.lines, part.times)) if layers else None


def _layer_of(lines: Sequence[str]) -> Layer | None:
    sample = list(islice((line for line in lines if line.strip()), SAMPLE))
    if not sample:
        return None
    return (
        records.recognise(sample) or journal.recognise(sample) or tables.recognise(sample) or prefixes.recognise(sample)
    )


def peel(text: str, source: Source | None) -> Iterator[Part]:
    """The parts of a whole file; one part with all lines if there is no wrapping."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    envelope = envelope_of(lines[:HEAD])
    if envelope is None:
        yield Part(lines)
        return
    yield envelope._through(Part(lines, list(range(1, len(lines) + 1))), in_order=True)


def document(data: bytes) -> Part | None:
    """The lines of a document that holds many events, in time order, without what they are wrapped in; or None.

    Line numbers: see documents.py. Only whole files can be documents.
    """
    part = documents.events(data)
    if part is None:
        return None
    inner = envelope_of(part.lines[:HEAD])
    if inner is None:
        shift = zone_shift(part.lines[:HEAD], part.times[:HEAD])
        inner = Envelope((), shift)
    return inner._through(part, in_order=True)
