"""One instruction of a rank's host thread, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.simulate.layout import Group

INF = float("inf")
HOST, COMPUTE, COLLECTIVE, P2P, WAIT, SYNC = range(6)
Shape = list[int]


@dataclass(slots=True)
class Part:
    """One send or recv: `peer` is a global rank."""

    sends: bool
    peer: int
    shape: Shape
    dtype: str = "BFloat16"


@dataclass(slots=True, eq=False)
class Op:
    """An instruction. Times are seconds since the job began; None = not (yet), inf = never.

    before: seconds of compute on the current stream ahead of it; host: seconds of host time before it is issued;
    blocking: the current stream waits for it (async_op=False, or .wait() at once); takes: its transfer once all are in.
    """

    kind: int
    site: str = ""
    step: int = 0
    group: Group | None = None
    name: str = ""
    inputs: list[Shape] = field(default_factory=list)
    outputs: list[Shape] = field(default_factory=list)
    dtype: str = "BFloat16"
    root: int = -1
    before: float = 0.0
    host: float = 0.0
    takes: float = 0.0
    blocking: bool = True
    parts: list[Part] = field(default_factory=list)
    batched: bool = False
    waits: list[Op] = field(default_factory=list)
    bad_peers: frozenset[int] = frozenset()  # of an all-to-all: the splits with these peers do not fit
    dies: bool = False  # the process ends here
    # what became of it
    created: float | None = None
    queued: bool = False
    ready: float = 0.0
    start: float | None = None
    end: float | None = None
    passed: float | None = None
    open_parts: int = 0
    unseen: bool = False  # it ended for its peers, while this rank's GPU never reported it

    @property
    def communicates(self) -> bool:
        return self.kind in (COLLECTIVE, P2P)

    def signature(self) -> tuple[object, ...]:
        """What the members of a collective must agree on; totals of an all-to-all may differ."""
        if self.name == "all_to_all":
            return (self.name, self.dtype)
        return (self.name, self.dtype, self.root, tuple(map(tuple, self.inputs)))
