"""What a text says of where ranks run, before it becomes facts: a `Note` with a `Place` for each rank.

>>> numbers("0,1"), numbers("24..27"), numbers("0-2, 5 and 7")
([0, 1], [24, 25, 26, 27], [0, 1, 2, 5, 7])
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from whichrank.evidence.scan import excerpt
from whichrank.facts import MOST_RANKS, Fact, Identity, Source, Spot

NAME = r"[A-Za-z](?:[\w.-]*[\w])?"
# A bare word is a host only if it looks like one: a digit, a hyphen or a dot in it.
HOST = r"(?!(?i:ranks?|gpus?|step|epoch|local|global|node[_ -]?rank|world|pid)\b)(?:[A-Za-z][A-Za-z_]*[\d.-](?:[\w.-]*\w)?|(?:\d{1,3}\.){3}\d{1,3})"
FILE = re.compile(r"[^\s,;|\"']+\.(?:json|pickle|pkl|p|bin|pt|dump|trace|fr|out|data|gz|zst|xz)$", re.I)
MANY = 65_536


def numbers(text: str) -> list[int]:
    """Ranks of a list with ranges; empty if it stands for absurdly many."""
    found: list[int] = []
    for part in re.split(r"\s*(?:,|\band\b|&|\+)\s*", text.strip()):
        ends = [int(end) for end in re.findall(r"\d+", part)]
        if not ends or ends[-1] - ends[0] > MANY:
            return []
        found.extend(range(ends[0], ends[-1] + 1))
    return found


@dataclass(slots=True)
class Place:
    """What a note says of one rank. file: the name of what it left, a dump or a log."""

    rank: int
    host: str | None
    line: int
    local: int | None = None
    pid: int | None = None
    gpu: str | None = None
    index: int | None = None  # of its GPU on the host
    pod: str | None = None
    file: str | None = None


@dataclass(slots=True)
class Note:
    """given: the user says that it is a placement, so that less has to be asked of its form."""

    source: Source
    lines: list[tuple[int, str]]
    places: dict[int, Place] = field(default_factory=dict)
    children: list[tuple[int, int, int, str]] = field(default_factory=list)
    world: int | None = None
    given: bool = False

    def put(self, place: Place) -> None:
        if 0 <= place.rank < MOST_RANKS:
            self.places.setdefault(place.rank, place)

    def facts(self) -> Iterator[Fact]:
        text = dict(self.lines)
        for place in self.places.values():
            who = Identity(
                rank=place.rank, host=place.host, local_rank=place.local, pid=place.pid, gpu=place.gpu, pod=place.pod
            )
            known = (
                ("world_size", self.world),
                ("gpu_index", place.index),
                ("file", place.file),
                ("given", self.given or None),
            )
            values = {name: value for name, value in known if value is not None}
            yield Fact("member", Spot(self.source, place.line, excerpt(text[place.line])), who=who, values=values)
        for number, pid, parent, host in self.children:
            yield Fact(
                "process",
                Spot(self.source, number, excerpt(text[number])),
                who=Identity(pid=pid, host=host),
                values={"ppid": parent},
            )
