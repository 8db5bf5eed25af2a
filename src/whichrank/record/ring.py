"""The ring file: what one rank does, in memory that outlives it.

Fixed size, little-endian, version 1. A header names the regions; a region is a row of slots of one size, and a slot
holds its checksum, the length of what it holds, and a number that grows with each writing. What is rewritten over and
over has two slots in turn, so that a process killed in the middle of one leaves the other. A reader takes the sound slot
with the highest number, and needs no lock: docs/record.md has the layout.

On memory (tmpfs) the file itself is mapped: a store into it cannot block, and survives any death of the process. On a
disk a store into a mapped file may wait for the disk, so there the process writes to memory of its own, and the sampler
thread carries it to the file: up to a second old after a SIGKILL, and the training never waits.

Runs inside the training: standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from zlib import crc32

MAGIC = b"WRRING\0\1"
VERSION = 1
HEADER = struct.Struct("<8sIIQ")  # magic, version, number of regions, size of the file
REGION = struct.Struct("<4sIII")  # name, offset, size of a slot, number of slots
SLOT = struct.Struct("<IIQ")  # checksum of all that follows, length of the content, number
_REST = struct.Struct("<IQ")  # a slot without its checksum
START = 512  # where the first region begins

# Order is the code in the file.
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
# since, outer's since, step, batches, step's begin, sequence number (-1: not known), phase, outer phase; then texts:
# the operation (or an own phase's name), the group's name, its description, each ended by a zero byte.
NOW = struct.Struct("<qqQQqqBB")
# last sign of life, wall clock and monotonic clock at one moment, processor time of the main thread and of the sampler,
# cost of one change of phase, number of the last request answered, 1 once the interpreter has begun to exit
BEAT = struct.Struct("<qqqqqqQB")
STEP = struct.Struct("<Qq%dI" % len(PHASES))  # number, end, microseconds in each phase
RAISED = struct.Struct("<qB")  # wall clock, 1 if in the main thread; then the thread's name, a zero byte, the text
# number of the sample, first and last time, how often, step, processor time of the main thread at first and last, phase
SAMPLE = struct.Struct("<QqqQQqqB")

LAYOUT = (
    (b"IDEN", 8192, 2),
    (b"NOW ", 320, 2),
    (b"BEAT", 128, 2),
    (b"STEP", 80, 512),
    (b"EXCP", 8448, 2),
    (b"SHDR", 96, 128),
    (b"STXT", 4096, 64),
)
SAMPLES = 64
STEPS = 512
MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def places() -> tuple[dict[bytes, tuple[int, int, int]], int]:
    """Each region's (offset, size of a slot, number of slots), and the size of the file."""
    found = {}
    at = START
    for name, size, count in LAYOUT:
        found[name] = (at, size, count)
        at += size * count
    return found, (at + 4095) // 4096 * 4096


PLACES, SIZE = places()
_NOW = struct.Struct("<IQ" + NOW.format[1:])  # with the slot's length and number: the phase changes often
_NOW_AT = (PLACES[b"NOW "][0], PLACES[b"NOW "][0] + PLACES[b"NOW "][1])


def header() -> bytes:
    data = HEADER.pack(MAGIC, VERSION, len(LAYOUT), SIZE)
    for name, _, _ in LAYOUT:
        data += REGION.pack(name, *PLACES[name])
    return data + struct.pack("<I", crc32(data))


class Ring:
    """Writes one rank's file, once `attach` has given it one; until then, and on a disk, into memory of the process."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, SIZE)
        self.memory[:START] = header().ljust(START, b"\0")
        self.fd = -1
        self.path = ""
        self.direct = False
        self.dirty: list[tuple[int, int]] = []  # (offset, length) that the file does not have yet
        self.changes = 0  # of the phase
        self._beats = 0
        self._texts = 0
        self._marks = 0
        self._identities = 0

    def attach(self, path: str, direct: bool | None = None) -> None:
        """Make the file, with all that was written so far. Raises OSError where it cannot be made.

        direct: map the file itself; None: where it lies in memory.
        """
        part = os.path.join(os.path.dirname(path), "." + os.path.basename(path) + ".part")
        _unlink(part)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(part, flags, 0o600)
        try:
            # All of it now: a store into a hole of a full disk would kill the process.
            os.posix_fallocate(fd, 0, SIZE)
            if direct is None:
                direct = in_memory(fd)
            if direct:
                self._move(mmap.mmap(fd, SIZE))
            else:
                self.dirty = []
                os.pwrite(fd, self.memory[:], 0)
            os.rename(part, path)
        except BaseException:
            os.close(fd)
            _unlink(part)
            raise
        self.path = path
        if direct:
            os.close(fd)
        else:
            self.fd = fd

    def _move(self, memory: mmap.mmap) -> None:
        """Into the mapped file. The main thread may write meanwhile: its last slots are carried over again."""
        before = self.memory
        memory[:] = before[:]
        self.direct = True
        self.memory = memory
        for name in (b"NOW ", b"EXCP", b"IDEN"):
            at, size, count = PLACES[name]
            for place in range(at, at + size * count, size):
                if SLOT.unpack_from(before, place)[2] > SLOT.unpack_from(memory, place)[2]:
                    memory[place : place + size] = before[place : place + size]

    def rename(self, path: str) -> None:
        """The rank is known only now."""
        if self.path and path != self.path:
            os.rename(self.path, path)
            self.path = path

    def close(self) -> None:
        """Of a forked child: let go of the parent's file."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.memory.close()

    def put(self, at: int, number: int, content: bytes) -> None:
        """Fill the slot at this offset. The caller sees to it that it fits."""
        rest = _REST.pack(len(content), number) + content
        end = at + 4 + len(rest)
        self.memory[at:end] = crc32(rest).to_bytes(4, "little") + rest
        if not self.direct:
            self._dirty(at, end - at)

    def _dirty(self, at: int, length: int) -> None:
        self.dirty.append((at, length))
        if len(self.dirty) > 20_000:  # the sampler stands still: it waits for the disk, or for the GIL
            del self.dirty[:10_000]

    def flush(self) -> None:
        """Carry to the file what it does not have. The sampler's work: it may wait for the disk."""
        if self.fd < 0:
            return
        dirty, self.dirty = self.dirty, []
        wanted: dict[int, int] = {}
        for at, length in dirty:
            wanted[at] = max(length, wanted.get(at, 0))
        for at, length in wanted.items():
            os.pwrite(self.fd, self.memory[at : at + length], at)

    def identify(self, identity: dict[str, object]) -> None:
        """Who this is, as JSON. Lists are cut where all is too long."""
        at, size, _ = PLACES[b"IDEN"]
        content = json.dumps(identity, separators=(",", ":"), default=str).encode("utf-8", "replace")
        if len(content) > size - SLOT.size:
            short = {key: value for key, value in identity.items() if not isinstance(value, (list, dict))}
            short = {key: value[:200] if isinstance(value, str) else value for key, value in short.items()}
            content = json.dumps(short, separators=(",", ":"), default=str).encode("utf-8", "replace")
            if len(content) > size - SLOT.size:
                return
        self._identities += 1
        self.put(at + size * (self._identities & 1), self._identities, content)

    def now(
        self,
        phase: int,
        since: int,
        step: int,
        batches: int,
        step_began: int,
        outer: int = 0,
        outer_since: int = 0,
        seq: int = -1,
        texts: bytes = b"",
    ) -> None:
        """The main thread's phase has changed. `texts` has at most 230 bytes."""
        self.changes = number = self.changes + 1
        length = NOW.size + len(texts)
        rest = _NOW.pack(length, number, since, outer_since, step, batches, step_began, seq, phase, outer) + texts
        at = _NOW_AT[number & 1]
        end = at + SLOT.size + length
        self.memory[at:end] = crc32(rest).to_bytes(4, "little") + rest
        if not self.direct:
            self._dirty(at, end - at)

    def step(self, number: int, end: int, nanoseconds: list[int]) -> None:
        """A step has ended; how long each phase took of it."""
        at, size, count = PLACES[b"STEP"]
        spent = [value // 1000 for value in nanoseconds]
        if max(spent) > 0xFFFFFFFF:  # more than an hour
            spent = [min(value, 0xFFFFFFFF) for value in spent]
        self.put(at + size * (number % count), number, STEP.pack(number, end, *spent))

    def raised(self, wall_ns: int, main: bool, thread: str, text: str) -> None:
        """An exception that nobody caught. Of a long text the beginning and, above all, the end stay."""
        at, size, _ = PLACES[b"EXCP"]
        content = text.encode("utf-8", "replace")
        name = thread.encode("utf-8", "replace").replace(b"\0", b"")[:100]
        room = size - SLOT.size - RAISED.size - len(name) - 8
        if len(content) > room:
            content = content[: room // 4] + b"\n...\n" + content[-(room - room // 4 - 5) :]
        body = RAISED.pack(wall_ns, 1 if main else 0) + name + b"\0" + content
        self.put(at + size * (0 if main else 1), wall_ns, body)

    def beat(
        self, now: int, wall: int, mono: int, main_cpu: int, own_cpu: int, cost: int, answered: int, exiting: bool
    ) -> None:
        at, size, _ = PLACES[b"BEAT"]
        self._beats += 1
        body = BEAT.pack(now, wall, mono, main_cpu, own_cpu, cost, answered, 1 if exiting else 0)
        self.put(at + size * (self._beats & 1), self._beats, body)

    def sample(self, text: bytes) -> int:
        """A new stack, innermost frame first, a frame a line. Returns its number, for `mark`."""
        at, size, count = PLACES[b"STXT"]
        self._texts += 1
        self.put(at + size * (self._texts % count), self._texts, text[: size - SLOT.size])
        return self._texts

    def mark(self, sample: int, first: int, last: int, times: int, step: int, cpu: tuple[int, int], phase: int) -> None:
        """When that stack was seen, up to now."""
        at, size, _ = PLACES[b"SHDR"]
        self._marks += 1
        slot = 2 * (sample % SAMPLES) + (times & 1)
        body = SAMPLE.pack(sample, first, last, times, step, cpu[0], cpu[1], phase)
        self.put(at + size * slot, self._marks, body)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def in_memory(fd: int) -> bool:
    """Does this file lie in memory, so that a store into it cannot wait for a device? False where that is not known."""
    try:
        device = os.fstat(fd).st_dev
        wanted = "%d:%d" % (os.major(device), os.minor(device))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                parts = line.split()
                if parts[2] == wanted:
                    return parts[parts.index("-") + 1] in MEMORY
    except (OSError, ValueError, IndexError):
        pass
    return False
