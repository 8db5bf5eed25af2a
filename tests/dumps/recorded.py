"""Flight Recorder dumps of a few ranks, told call by call, so that a test reads like a story.

    job = Job(4)
    job.steps(5)
    job.call("all_reduce", but=[2], ended=False)
    verdict = job.verdict(tmp_path)

The recorder's bookkeeping is done here, after PyTorch's FlightRecorderDetail.hpp and ProcessGroupNCCL.cpp: record ids
over all groups of a process, counters for each group, numbers of groups local to a process, a batch's members that stay
scheduled for ever, one ring for everything.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from incident import sound

from whichrank.diagnosis import diagnose
from whichrank.model import Report, Verdict

VERSIONS = ("list", "1.4", "2.1", "2.4", "2.9", "2.10", "2.17")  # the last: a minor that does not exist yet
START_NS = 1_796_014_800_000_000_000  # 2026-11-30 05:00 UTC, as the stories of logs begin
SECOND = 1_000_000_000
WORLD = "world"  # the default group's key in these stories


@dataclass(frozen=True)
class Group:
    """A process group. number: in order of creation; it is the group's name, as in PyTorch."""

    number: int
    desc: str
    ranks: tuple[int, ...]

    @property
    def name(self) -> str:
        return str(self.number)


@dataclass
class Entry:
    """One call of one rank. Times in seconds of the story. whole: of a batch, what closes it."""

    group: str
    name: str
    inputs: list[list[int]]
    outputs: list[list[int]]
    dtype: str
    site: str | None
    created: float
    ended: bool
    started: bool = False
    seen: float = 0.0  # when the watchdog, or the dump, saw that it had ended or started
    p2p: bool = False
    part: bool = False
    record: int = 0
    seq: int = 0  # the only counter before format 2.1
    collective: int = 0
    p2p_seq: int = 0
    op: int = 0


@dataclass
class Counters:
    seq: int = 0
    collective: int = 0
    p2p: int = 0
    op: int = 0
    enqueued: int = -1
    completed: int = -1


@dataclass
class Rank:
    entries: list[Entry] = field(default_factory=list)
    counts: dict[str, Counters] = field(default_factory=lambda: defaultdict(Counters))


class Job:
    """N ranks in one default group.

    version     as written in the dump, or "list"
    as_json     JSON instead of a pickle: has no stacks
    frames      stacks at each call
    events      start events (TORCH_NCCL_ENABLE_TIMING)
    """

    def __init__(
        self,
        world: int = 4,
        *,
        version: str = "2.10",
        backend: str = "nccl",
        as_json: bool = False,
        frames: bool = True,
        events: bool = False,
        timeout_s: int = 600,
    ) -> None:
        self.world, self.version, self.backend, self.as_json = world, version, backend, as_json
        self.frames, self.events, self.timeout_s = frames, events, timeout_s
        self.groups = {WORLD: Group(0, "default_pg", tuple(range(world)))}
        self.ranks = [Rank() for _ in range(world)]
        self.now = 0.0

    def group(self, key: str, ranks: Iterable[int], desc: str = "undefined") -> str:
        self.groups[key] = Group(len(self.groups), desc, tuple(ranks))
        return key

    def parallel(self, tensor: int = 2) -> None:
        """Tensor groups tp0, tp1, … of neighbours, data groups dp0, dp1, … of ranks `tensor` apart."""
        for number in range(self.world // tensor):
            self.group(f"tp{number}", range(number * tensor, (number + 1) * tensor), "tensor")
        for number in range(tensor):
            self.group(f"dp{number}", range(number, self.world, tensor), "data")

    # ---- what happens

    def call(
        self,
        name: str,
        group: str = WORLD,
        *,
        only: Iterable[int] | None = None,
        but: Collection[int] = (),
        sizes: Sequence[Sequence[int]] = ((1024,),),
        outputs: Sequence[Sequence[int]] | None = None,
        dtype: str = "Float",
        at: str | None = "train.py:88",
        ended: bool | Collection[int] = True,
        started: bool | Collection[int] = False,
        seen: float | None = None,
    ) -> None:
        """A collective of the members (or of those given). ended, started: by all, by none, or by these ranks."""
        self.now += 0.1
        given = [list(shape) for shape in sizes]
        taken = [list(shape) for shape in (sizes if outputs is None else outputs)]
        for rank in self.groups[group].ranks if only is None else only:
            if rank in but:
                continue
            done = ended if isinstance(ended, bool) else rank in ended
            begun = started if isinstance(started, bool) else rank in started
            created = self.now + 0.001 * rank
            saw = created + 0.1 if seen is None else seen
            count = self.ranks[rank].counts[group]
            count.seq, count.collective, count.op = count.seq + 1, count.collective + 1, count.op + 1
            count.enqueued = count.collective
            count.completed = count.collective if done else count.completed
            entry = Entry(group, name, given, taken, dtype, at, created, done, done or begun, saw)
            self._record(rank, replace(entry))

    def step(self, at: str = "train.py:88") -> None:
        """What this job does at each step: its tensor groups reduce twice, then its data groups or all ranks."""
        for key in [key for key in self.groups if key.startswith("tp")]:
            self.call("all_reduce", key, sizes=[[4096]], at="layers.py:41")
            self.call("all_reduce", key, sizes=[[4096]], at="layers.py:77")
        data = [key for key in self.groups if key.startswith("dp")]
        for key in data or [WORLD]:
            self.call("all_reduce", key, at=at)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def transfer(self, source: int, to: int, group: str = WORLD, *, ended: bool = True, only: str = "both") -> None:
        """An unbatched send and its receive; only: "send" or "recv" if the other half is not called."""
        self.now += 0.1
        members = self.groups[group].ranks
        a, b = members.index(source), members.index(to)
        if only in ("both", "send"):
            self._single(source, group, f"send {a}->{b}", ended)
        if only in ("both", "recv"):
            self._single(to, group, f"recv {b}<-{a}", ended)

    def batch(self, rank: int, peers: Sequence[tuple[str, int]], group: str = WORLD, *, ended: bool = True) -> None:
        """batch_isend_irecv of one rank: its sends and receives, then what closes it and carries the state."""
        self.now += 0.1
        members = self.groups[group].ranks
        me = members.index(rank)
        count = self.ranks[rank].counts[group]
        count.seq, count.p2p = count.seq + 1, count.p2p + 1
        count.enqueued = count.p2p
        for what, peer in peers:
            count.op += 1
            arrow = "->" if what == "send" else "<-"
            name = f"{what} {me}{arrow}{members.index(peer)}"
            entry = Entry(group, name, [[64]], [[64]], "Half", "pipe.py:30", self.now, False, p2p=True, part=True)
            self._record(rank, entry)
        entry = Entry(group, "coalesced", [], [], "Half", "pipe.py:30", self.now, ended, ended, self.now + 0.1)
        self._record(rank, entry)

    def _single(self, rank: int, group: str, name: str, ended: bool) -> None:
        count = self.ranks[rank].counts[group]
        count.seq, count.p2p, count.op = count.seq + 1, count.p2p + 1, count.op + 1
        count.enqueued = count.p2p
        entry = Entry(
            group, name, [[64]], [[64]], "Half", "pipe.py:12", self.now, ended, ended, self.now + 0.1, p2p=True
        )
        self._record(rank, entry)

    def _record(self, rank: int, entry: Entry) -> None:
        count = self.ranks[rank].counts[entry.group]
        entry.record = len(self.ranks[rank].entries)
        entry.seq, entry.collective, entry.p2p_seq, entry.op = count.seq, count.collective, count.p2p, count.op
        self.ranks[rank].entries.append(entry)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    # ---- what is left of it

    def dump(self, rank: int, *, ring: int = 2000, only_active: bool = False, clock_s: float = 0.0) -> bytes:
        """The bytes that this rank's recorder would write. clock_s: how far its host's clock is off."""
        shown = self.ranks[rank].entries[-ring:]
        if only_active:
            shown = [entry for entry in shown if entry.part or not entry.ended]
        zero = START_NS + int(clock_s * SECOND)
        entries = [self._entry(rank, entry, zero) for entry in shown]
        if self.version == "list":
            return pickle.dumps(entries, protocol=2)
        used = [key for key in self.groups if key in self.ranks[rank].counts]
        content: dict[str, Any] = {"version": self.version, "pg_config": self._config(rank, used), "entries": entries}
        if self._since(2, 4):
            content["pg_status"] = self._status(rank, used)
        if self._since(2, 9):
            library = "2.27.3" if self.backend == "nccl" else ""
            content["comm_lib_version" if self._since(2, 10) else "nccl_version"] = library
        if self._since(2, 17):
            content["clock_source"] = "tsc"
        if not self.as_json:
            return pickle.dumps(content, protocol=2)
        if not entries:
            del content["entries"]
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    def _since(self, *version: int) -> bool:
        return self.version != "list" and tuple(map(int, self.version.split("."))) >= version

    def _pg_id(self, rank: int, group: str) -> int:
        """Counted by each process over the groups that it is in."""
        return [key for key, group in self.groups.items() if rank in group.ranks].index(group)

    def _config(self, rank: int, used: list[str]) -> dict[Any, Any]:
        if self.backend == "gloo":
            return {"": {"name": "", "desc": "", "ranks": "[]"}}
        groups = [self.groups[key] for key in used]
        if not self._since(2, 1):
            return {self._pg_id(rank, key): list(self.groups[key].ranks) for key in used}
        return {
            group.name: {"name": group.name, "desc": group.desc, "ranks": str(list(group.ranks))} for group in groups
        }

    def _status(self, rank: int, used: list[str]) -> dict[str, Any]:
        shown: Callable[[int], int | str] = str if self.as_json else int
        counts = self.ranks[rank].counts
        return {
            str(self._pg_id(rank, key)): {
                "last_enqueued_collective": shown(counts[key].enqueued),
                "last_started_collective": shown(-1),
                "last_completed_collective": shown(counts[key].completed),
            }
            for key in used
        }

    def _entry(self, rank: int, entry: Entry, zero: int) -> dict[str, Any]:
        group = self.groups[entry.group]
        gloo = self.backend == "gloo"
        unknown = 0 if self.as_json else None
        out: dict[str, Any] = {"pg_id": self._pg_id(rank, entry.group)}
        created = zero + int(entry.created * SECOND)
        ended = entry.ended and not entry.part and not gloo
        started = self.events and (entry.started or ended) and not entry.part and not gloo
        if self.version == "list":
            out |= {"seq_id": entry.seq, "time_created": created // 1000}
        else:
            out |= {
                "record_id": entry.record,
                "op_id": entry.op,
                "time_created_ns": created,
                "time_discovered_started_ns": zero + int(entry.seen * SECOND) if started else unknown,
                "time_discovered_completed_ns": zero + int(entry.seen * SECOND) if ended else unknown,
            }
        if self._since(2, 1):
            numbers = {"collective_seq_id": entry.collective, "p2p_seq_id": entry.p2p_seq, "is_p2p": entry.p2p}
            names = [group.name, group.desc]
            out |= {**numbers, "process_group": names if self.as_json else tuple(names)}
            out |= {"input_dtypes": [entry.dtype] * len(entry.inputs)}
            out |= {"output_dtypes": [entry.dtype] * len(entry.outputs)}
        elif self.version != "list":
            out["seq_id"] = entry.seq
        if self._since(2, 4):
            out["timeout_ms"] = self.timeout_s * 1000
        if self._since(2, 17):
            out["stream_id"] = 7
        out |= {
            "profiling_name": f"{self.backend}:{entry.name}",
            "input_sizes": entry.inputs,
            "output_sizes": entry.outputs,
            "state": "completed" if ended else "started" if started else "scheduled",
            "retired": entry.ended and not entry.part,
        }
        if not self.as_json:
            out["frames"] = _frames(entry.site) if self.frames else []
        return out

    def write(
        self,
        folder: Path,
        *,
        but: Collection[int] = (),
        names: str = "nccl_trace_rank_{rank}",
        order: Sequence[int] | None = None,
        ring: int = 2000,
        only_active: bool = False,
        clocks: Sequence[float] = (),
    ) -> list[str]:
        """A file for each rank but those without; the paths, in `order`."""
        paths = []
        for rank in order or range(self.world):
            if rank in but:
                continue
            path = folder / "job" / names.format(rank=rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            clock = clocks[rank] if clocks else 0.0
            path.write_bytes(self.dump(rank, ring=ring, only_active=only_active, clock_s=clock))
            paths.append(str(path))
        return paths

    def report(self, folder: Path, **how: Any) -> Report:
        return report_on(folder, self.write(folder, **how))

    def verdict(self, folder: Path, **how: Any) -> Verdict:
        return self.report(folder, **how).verdicts[0]


def report_on(folder: Path, paths: Sequence[str] | None = None) -> Report:
    """Of these files, or of all that the stories wrote below `folder`."""
    report = diagnose(paths or [str(folder / "job")])
    sound(report, folder)
    return report


def _frames(site: str | None) -> list[dict[str, Any]]:
    """Innermost first: PyTorch's own wrapper, the caller, what called that."""
    if site is None:
        return []
    file, _, line = site.partition(":")
    return [
        {
            "name": "wrapper",
            "filename": "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py",
            "line": 81,
        },
        {"name": file.removesuffix(".py"), "filename": f"/work/{file}", "line": int(line)},
        {"name": "main", "filename": "/work/train.py", "line": 200},
    ]
