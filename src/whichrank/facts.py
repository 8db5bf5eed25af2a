"""The vocabulary that every layer speaks: who, where it stands, what was read, what is missing.

A reader turns bytes into `Fact`s; whatever it cannot read becomes a `Gap`. Every fact carries a `Spot`, the
line that proves it. Any part of an `Identity` may be unknown; it is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Coverage = Literal["complete", "cut", "rate_limited", "folded", "killed_early", "unknown"]
Clock = Literal["wall", "near", "boot", "day", "none"]
MOST_RANKS = 200_000  # no job is larger: a higher number of a rank is a damaged line


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a fact is about. `rank` is the global rank, `local_rank` the one on its node.

    `task` is the launcher's number for a stream that carries several ranks (srun -l before torchrun: one a node).
    """

    world: str | None = None
    attempt: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pod: str | None = None
    pid: int | None = None
    pid_namespace: str | None = None
    gpu: str | None = None
    task: int | None = None

    def filled(self, other: Identity) -> Identity:
        """This identity, its unknown parts taken from `other`."""
        gaps = {
            name: theirs
            for name in IDENTITY_PARTS
            if getattr(self, name) is None and (theirs := getattr(other, name)) is not None
        }
        return replace(self, **gaps) if gaps else self


IDENTITY_PARTS = ("world", "attempt", "rank", "local_rank", "host", "pod", "pid", "pid_namespace", "gpu", "task")
NOBODY = Identity()


MEMBER = "!"  # between an archive's name and its member's


def slashed(path: str) -> str:
    """A source's path with one sort of separator: a member lies in its archive as a file in a folder.

    >>> slashed("runs\\\\job.tar.gz!logs/rank3.log")
    'runs/job.tar.gz/logs/rank3.log'
    """
    return path.replace("\\", "/").replace(MEMBER, "/")


@dataclass(slots=True)
class Source:
    """One piece of evidence: a file, an archive member, a stream.

    `kind` says what such a source can know: `training` (what ranks and launchers print), `kernel`, `scheduler`,
    `stack`, `dump`, `metrics`, `note` (what a person wrote), `unknown`.
    """

    path: str
    kind: str = "unknown"
    readers: tuple[str, ...] = ()
    identity: Identity = NOBODY
    coverage: Coverage = "unknown"
    bytes: int = 0
    lines: int = 0
    ends_midline: bool = False
    trouble: list[str] = field(default_factory=list)  # lines that a reader could not take apart
    written_ns: int = 0  # when the file was last written, by its file system; 0 where not known. A copy is written anew
    left_out: dict[str, int] = field(default_factory=dict)  # kind -> facts that were too many, see evidence/fold.py
    headed: bool = False  # headings in it say which command's output follows
    digest: str = ""  # the digest that it came out of, and not from the file
    # Where its lines were sorted by their times when it was read: line -> its place in that order
    places: dict[int, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.path)


@dataclass(frozen=True, slots=True)
class Spot:
    """Printable proof: the line (counted from 1; None for binary evidence) and its text."""

    source: Source
    line: int | None
    excerpt: str

    @property
    def place(self) -> int:
        """What came first within its source: its line, or its place in the order of time; 0 where there are no lines."""
        return 0 if self.line is None else self.source.places.get(self.line, self.line)

    def __str__(self) -> str:
        return f"{self.source.path}:{self.line}" if self.line is not None else self.source.path


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that the evidence says.

    kind    what it is, e.g. "timeout", "oom_kill" (see docs/facts.md)
    spot    the line that proves it
    at_ns   when, in nanoseconds: since 1970 if clock is "wall" or "near" (the stamp of the line before it),
            since boot if "boot", since midnight if "day"
    who     about whom
    group   process group, by its description or id
    seq     sequence number within the group
    values  everything else that the line carries
    """

    kind: str
    spot: Spot
    at_ns: int | None = None
    clock: Clock = "none"
    who: Identity = NOBODY
    group: str | None = None
    seq: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    @property
    def rank(self) -> int | None:
        return self.who.rank

    @property
    def at(self) -> float | None:
        """Seconds on the fact's own clock."""
        return None if self.at_ns is None else self.at_ns / 1e9

    @property
    def order(self) -> tuple[str, int]:
        """Where it stands in its source: for evidence without stamps."""
        return (self.spot.source.path, self.spot.place)


@dataclass(frozen=True, slots=True)
class Gap:
    """Evidence that is missing, unreadable or incomplete, and what would help."""

    what: str
    why: str
    would_help: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """An ordinary line of output: who said it, when, and its shape (the text with its numbers taken out)."""

    spot: Spot
    who: Identity
    at_ns: int | None
    text: str
    shape: str
    index: int

    @property
    def rank(self) -> int | None:
        return self.who.rank

    @property
    def at(self) -> float | None:
        return None if self.at_ns is None else self.at_ns / 1e9
