r"""The recorder's ring file: what one rank was doing, as the rank itself kept it (`whichrank run`, `whichrank.watch()`).

Version 1, little-endian: docs/record.md has the layout. It may be read at any moment, while it is written, after a
SIGKILL, cut or damaged: each slot has a checksum, and what does not agree with it is left out.

A file of version 1 begins with `WRRING\0\1`. One fact says in which phase the rank was, since when, and when the recorder
last had a sign of life; the last sample of the main thread's stack is a `stack` as py-spy's, an exception that nobody
caught an `exception` as a traceback in a log. Times within a file come from one pair of clocks: the wall clock's error is
the host's.

>>> sniff(b"WRRING\0\1", "ring/rank-000003-a0-p4711.ring"), sniff(b"WRRING\0\1"[:7], "x"), sniff(b"Process 7: x", "x")
(True, False, False)
>>> list(read_whole(b"WRRING\0\1", Source("ring/rank-000003-a0-p4711.ring")))[0].why
"a recorder's file, but too damaged or cut to be read"
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from whichrank.evidence.scan import Reader, Whole, excerpt
from whichrank.evidence.stack_class import judge
from whichrank.facts import MOST_RANKS, Fact, Gap, Identity, Source, Spot

MAGIC = b"WRRING\0\1"
MOST = 4 << 20  # bytes of a file that are read
TRIES = 4  # while it is written, a slot may change under the reader
PHASES = (
    "unknown",
    "init",
    "data",
    "compute",
    "optimizer",
    "collective",
    "checkpoint",
    "evaluation",
    "compile",
    "own",
    "teardown",
)
_HEADER = struct.Struct("<8sIIQ")
_REGION = struct.Struct("<4sIII")
_SLOT = struct.Struct("<IIQ")
_NOW = struct.Struct("<qqQQqqBB")
_BEAT = struct.Struct("<qqqqqqQB")
_STEP = struct.Struct(f"<Qq{len(PHASES)}I")
_RAISED = struct.Struct("<qB")
_SAMPLE = struct.Struct("<QqqQQqqB")


@dataclass(frozen=True, slots=True)
class State:
    """What the main thread is doing. Times are of the monotonic clock of its machine, in nanoseconds."""

    phase: str  # one of PHASES
    since_ns: int
    changes: int  # how often the phase has changed so far
    step: int  # steps that have ended
    batches: int  # batches that the main thread took from a DataLoader
    step_began_ns: int
    outer: str | None = None  # the phase around this one, such as a checkpoint around a collective
    outer_since_ns: int = 0
    op: str | None = None  # of a collective or a checkpoint
    name: str | None = None  # of an own phase
    group: str | None = None  # of a collective: the group's name and description
    group_desc: str | None = None
    seq: int | None = None  # of a collective, where it is known


@dataclass(frozen=True, slots=True)
class Beat:
    """The sampler's last sign of life: once a second, as long as the process runs and lets go of the GIL."""

    mono_ns: int
    wall_minus_mono_ns: int  # ties the two clocks of this machine
    main_cpu_ns: int  # processor time that the main thread has used; -1 where it is not known
    answered: int  # the number of the last request (`ask`) that was answered
    exiting: bool  # the interpreter has begun to exit in order


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    end_ns: int  # monotonic
    seconds: Mapping[str, float]  # in each phase that it had

    @property
    def duration(self) -> float:
        """Seconds."""
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True)
class Raised:
    wall_ns: int
    main: bool  # in the main thread: it ends the process
    thread: str
    text: str  # as Python prints it; a long one without its middle


@dataclass(frozen=True, slots=True)
class Sample:
    """A stack of the main thread that stood still from `first_ns` to `last_ns`, seen `times` times."""

    first_ns: int
    last_ns: int
    times: int
    step: int
    phase: str
    cpu_ns: int  # processor time that the main thread used between the two; -1 where it is not known
    frames: tuple[str, ...]  # "func (file:line)", innermost first


@dataclass(frozen=True, slots=True)
class Overhead:
    phases_ns: int  # in the main thread, estimated: changes times the cost of one, measured at the start
    sampler_ns: int  # processor time of the sampler's thread


@dataclass(frozen=True, slots=True)
class Ring:
    """What was sound in a file. `identity` has the keys that docs/record.md lists; any may be missing."""

    identity: Mapping[str, Any] = field(default_factory=dict)
    state: State | None = None
    beat: Beat | None = None
    steps: tuple[Step, ...] = ()  # the last ones, in order
    exceptions: tuple[Raised, ...] = ()  # at most one of the main thread and one of the others
    samples: tuple[Sample, ...] = ()  # in order of time
    overhead: Overhead | None = None

    @property
    def exception(self) -> Raised | None:
        """The one that ended the process."""
        return next((raised for raised in self.exceptions if raised.main), None)

    @property
    def rank(self) -> int | None:
        return _number(self.identity.get("rank"))

    @property
    def pid(self) -> int | None:
        return _number(self.identity.get("pid"))

    def wall_ns(self, mono_ns: int) -> int | None:
        """A time of this file on the wall clock of its machine."""
        return None if self.beat is None else mono_ns + self.beat.wall_minus_mono_ns

    @property
    def last_ns(self) -> int:
        """The last sign of life of any kind, monotonic; 0 where there is none."""
        return max(
            self.beat.mono_ns if self.beat else 0,
            self.state.since_ns if self.state else 0,
            self.steps[-1].end_ns if self.steps else 0,
        )


class _Region(NamedTuple):
    at: int
    size: int
    slots: int


def read(path: str | os.PathLike[str]) -> Ring | None:
    """What the file at `path` says now; None where there is none, or nothing sound in it. Never raises for its content.

    Slots that were being written are read again a few times.
    """
    best: Ring | None = None
    for _ in range(TRIES):
        try:
            with open(path, "rb") as file:  # noqa: PTH123 (a file, or what is mounted as one)
                data = file.read(MOST)
        except OSError:
            return best
        ring = parse(data)
        if ring is None or ring.state is not None:
            return ring or best
        best = ring
    return best


def parse(data: bytes) -> Ring | None:
    """What is sound in these bytes; None where not even the header is."""
    regions = _regions(data)
    if regions is None:
        return None
    state = _state(data, regions.get(b"NOW "))
    beat, costs = _beat(data, regions.get(b"BEAT"))
    overhead = Overhead(max(0, costs[0]) * state.changes, max(0, costs[1])) if state and costs else None
    return Ring(
        _identity(data, regions.get(b"IDEN")),
        state,
        beat,
        tuple(_steps(data, regions.get(b"STEP"))),
        tuple(_exceptions(data, regions.get(b"EXCP"))),
        tuple(_samples(data, regions.get(b"SHDR"), regions.get(b"STXT"))),
        overhead,
    )


def _regions(data: bytes) -> dict[bytes, _Region] | None:
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        return None
    _, version, count, size = _HEADER.unpack_from(data)
    end = _HEADER.size + count * _REGION.size
    if version != 1 or count > 32 or size > MOST or len(data) < end + 4:
        return None
    if crc32(data[:end]) != int.from_bytes(data[end : end + 4], "little"):
        return None
    found = {}
    for at in range(_HEADER.size, end, _REGION.size):
        name, *place = _REGION.unpack_from(data, at)
        found[name] = _Region(*place)
    return {name: region for name, region in found.items() if region.size > _SLOT.size and region.slots <= 100_000}


def _slots(data: bytes, region: _Region | None) -> Iterator[tuple[int, int, bytes]]:
    """(index, number, content) of each sound slot."""
    if region is None:
        return
    for index in range(region.slots):
        at = region.at + index * region.size
        if at + _SLOT.size > len(data):
            return
        check, length, number = _SLOT.unpack_from(data, at)
        end = at + _SLOT.size + length
        if not number or length > region.size - _SLOT.size or end > len(data):
            continue
        if crc32(data[at + 4 : end]) == check:
            yield index, number, data[at + _SLOT.size : end]


def _newest(data: bytes, region: _Region | None, least: int = 0) -> tuple[int, bytes] | None:
    """The number and content of the sound slot that was written last."""
    sound = [(number, content) for _, number, content in _slots(data, region) if len(content) >= least]
    return max(sound, default=None)


def _identity(data: bytes, region: _Region | None) -> Mapping[str, Any]:
    newest = _newest(data, region)
    if newest is None:
        return {}
    try:
        found = msgspec.json.decode(newest[1])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _phase(code: int) -> str:
    return PHASES[code] if code < len(PHASES) else "unknown"


def _state(data: bytes, region: _Region | None) -> State | None:
    newest = _newest(data, region, _NOW.size)
    if newest is None:
        return None
    number, content = newest
    since, outer_since, step, batches, began, seq, code, outer = _NOW.unpack_from(content)
    texts = [part.decode("utf-8", "replace") for part in content[_NOW.size :].split(b"\0")]
    word, group, desc = (texts + ["", "", ""])[:3]
    phase = _phase(code)
    return State(
        phase,
        since,
        number,
        step,
        batches,
        began,
        _phase(outer) if outer else None,
        outer_since,
        op=word or None if phase != "own" else None,
        name=word or None if phase == "own" else None,
        group=group or None,
        group_desc=desc or None,
        seq=seq if seq >= 0 else None,
    )


def _beat(data: bytes, region: _Region | None) -> tuple[Beat | None, tuple[int, int] | None]:
    """The last one; what one change of phase costs, and processor time of the sampler."""
    newest = _newest(data, region, _BEAT.size)
    if newest is None:
        return None, None
    now, wall, mono, main_cpu, own_cpu, cost, answered, exiting = _BEAT.unpack_from(newest[1])
    return Beat(now, wall - mono, main_cpu, answered, bool(exiting)), (cost, own_cpu)


def _steps(data: bytes, region: _Region | None) -> Iterator[Step]:
    found = {}
    for _, _, content in _slots(data, region):
        if len(content) == _STEP.size:
            number, end, *spent = _STEP.unpack(content)
            seconds = {PHASES[code]: micro / 1e6 for code, micro in enumerate(spent) if micro}
            found[number] = Step(number, end, seconds)
    yield from (found[number] for number in sorted(found))


def _exceptions(data: bytes, region: _Region | None) -> Iterator[Raised]:
    for _, _, content in _slots(data, region):
        if len(content) > _RAISED.size:
            wall, main = _RAISED.unpack_from(content)
            thread, _, text = content[_RAISED.size :].decode("utf-8", "replace").partition("\0")
            yield Raised(wall, bool(main), thread, text)


def _samples(data: bytes, headers: _Region | None, texts: _Region | None) -> list[Sample]:
    """A header belongs to the text with its number: one that the ring has passed over is left out."""
    stacks = {number: content for _, number, content in _slots(data, texts)}
    newest: dict[int, tuple[int, tuple[int, ...]]] = {}
    for _, mark, content in _slots(data, headers):
        if len(content) == _SAMPLE.size:
            sample, *rest = _SAMPLE.unpack(content)
            if sample in stacks and mark > newest.get(sample, (0,))[0]:
                newest[sample] = (mark, tuple(rest))
    found = []
    for sample in sorted(newest):
        first, last, times, step, cpu_first, cpu_last, phase = newest[sample][1]
        frames = tuple(line for line in stacks[sample].decode("utf-8", "replace").split("\n") if line)
        cpu = cpu_last - cpu_first if cpu_first >= 0 and cpu_last >= 0 else -1
        found.append(Sample(first, last, times, step, _phase(phase), cpu, frames))
    return found


# --- facts for a diagnosis


def sniff(head: bytes, path: str) -> bool:
    return head.startswith(MAGIC)


def read_whole(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    """Who it was, in which phase since when, the stack it stood in, the exception that ended it."""
    ring = parse(data)
    if ring is None or (ring.state is None and not ring.samples and not ring.exceptions):
        source.coverage = "cut"
        yield Gap(source.path, "a recorder's file, but too damaged or cut to be read", "this rank's file, copied whole")
        return
    source.kind = "stack"
    source.identity = source.identity.filled(_who(ring))
    who = _who(ring)
    yield _member(ring, source, who)
    if ring.state is not None:
        yield _phase_fact(ring, ring.state, source, who)
    if ring.samples:
        yield _stack(ring, ring.samples[-1], source, who)
    for raised in ring.exceptions:
        yield from _raised(raised, source, who)


def _number(value: object) -> int | None:
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
    return value if sound else None  # type: ignore[return-value] # mypy does not see through the flag


def _text(value: object) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _who(ring: Ring) -> Identity:
    known = ring.identity
    rank = _number(known.get("rank"))
    return Identity(
        attempt=_number(known.get("attempt")),
        rank=rank if rank is not None and rank < MOST_RANKS else None,
        local_rank=_number(known.get("local_rank")),
        host=_text(known.get("host")),
        pid=_number(known.get("pid")),
    )


def _fact(
    kind: str,
    says: str,
    at_ns: int | None,
    source: Source,
    who: Identity,
    values: Mapping[str, Any],
    group: str | None = None,
    seq: int | None = None,
) -> Fact:
    spot = Spot(source, None, excerpt(says))
    return Fact(kind, spot, at_ns, "wall" if at_ns else "none", who, group, seq, values)


def _name(who: Identity) -> str:
    rank = f"rank {who.rank}" if who.rank is not None else "a rank"
    return f"recorder of {rank}"


def _member(ring: Ring, source: Source, who: Identity) -> Fact:
    world = _number(ring.identity.get("world"))
    place = "".join(f", {word} {value}" for word, value in (("host", who.host), ("pid", who.pid)) if value is not None)
    of = f" of {world}" if world else ""
    values = {"world_size": world} if world else {}
    began = _number_of_ns(ring.identity.get("started_wall_ns"))
    return _fact("member", f"{_name(who)}{of}{place}", began, source, who, values)


def _number_of_ns(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 1 << 62 else None


def _phase_fact(ring: Ring, state: State, source: Source, who: Identity) -> Fact:
    seconds = max(0, ring.last_ns - state.since_ns) / 1e9
    values: dict[str, Any] = {"name": state.phase, "seconds": round(seconds, 3), "step": state.step}
    values |= {name: value for name, value in (("op", state.op), ("own", state.name), ("outer", state.outer)) if value}
    if ring.beat is not None and ring.beat.exiting:
        values["exiting"] = True
    group = state.group_desc or state.group
    said = f"{_name(who)}: {describe(state)} for {seconds:.1f} s when it was last heard of, after {state.step} steps"
    return _fact("phase", said, ring.wall_ns(state.since_ns), source, who, values, group, state.seq)


def describe(state: State) -> str:
    """A phase in a few words.

    >>> describe(State("collective", 0, 1, 7, 7, 0, op="all_reduce", group_desc="default_pg", seq=12))
    'in all_reduce #12 of default_pg'
    >>> describe(State("own", 0, 1, 7, 7, 0, outer="data", name="tokenise")), describe(State("compute", 0, 1, 7, 7, 0))
    ("in its own phase 'tokenise' within data", 'in forward and backward')
    """
    words = {
        "unknown": "in code outside every known phase",
        "init": "in initialisation",
        "data": "waiting for a batch",
        "compute": "in forward and backward",
        "optimizer": "in the optimizer's step",
        "collective": f"in {state.op or 'a collective'}",
        "checkpoint": f"in a checkpoint ({state.op})" if state.op else "in a checkpoint",
        "evaluation": "in evaluation",
        "compile": "compiling",
        "own": f"in its own phase {state.name!r}" if state.name else "in a phase of its own",
        "teardown": "in teardown",
    }
    said = words[state.phase]
    if state.phase == "collective":
        said += f" #{state.seq}" if state.seq is not None else ""
        said += f" of {state.group_desc or state.group}" if state.group_desc or state.group else ""
    return f"{said} within {state.outer}" if state.outer else said


def _stack(ring: Ring, sample: Sample, source: Source, who: Identity) -> Fact:
    frames = list(sample.frames)
    tells = frames[judge(frames)[1]] if frames else "no frames"
    seconds = round(max(0, sample.last_ns - sample.first_ns) / 1e9, 1)
    values: dict[str, Any] = {"thread": "MainThread", "main": True, "frames": frames, "tool": "recorder"}
    if sample.times > 1:
        values["seconds"] = seconds
    if sample.cpu_ns >= 0 and seconds >= 2:
        values["state"] = "active" if sample.cpu_ns > 0.5e9 * seconds else "idle"
    said = f"{_name(who)}: {tells}" + (f", unchanged for {seconds:.0f} s" if sample.times > 1 else "")
    return _fact("stack", said, ring.wall_ns(sample.last_ns), source, who, values)


def _raised(raised: Raised, source: Source, who: Identity) -> Iterator[Fact]:
    """As the reader of tracebacks makes them, with the file as the spot: a line of the text is none of the file."""
    from whichrank.evidence import python_errors
    from whichrank.evidence.envelope import Part
    from whichrank.evidence.scan import Scanner

    lines = [line.rstrip() for line in raised.text.split("\n")]
    part = Part(lines, list(range(1, len(lines) + 1)))
    found, _ = Scanner((python_errors.READER,)).scan(part, Source(source.path), who)
    for fact in _telling(found):
        values = dict(fact.values) if raised.main else {**fact.values, "thread": raised.thread}
        last = f"{_name(who)}: {values.get('type') or 'exception'}: {values.get('message') or ''}"
        yield _fact(fact.kind, last, raised.wall_ns or None, source, who, values)


def _telling(found: Sequence[Fact]) -> Sequence[Fact]:
    return [fact for fact in found if fact.kind in ("exception", "cuda_oom")][-8:]


READER = Reader(
    "ring",
    whole=Whole(sniff, read_whole, most=MOST),
    title="The recorder's file of a rank: its phase, its stack, its last exception",
    versions="version 1 (whichrank run, whichrank.watch())",
    collect=("import whichrank; whichrank.watch()   # in the training script, before anything else",),
)
