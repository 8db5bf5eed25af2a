"""check_shards(loader): whether all ranks have the same number of batches ahead of them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

from . import find
from .errors import RanksDiffer, named
from .flags import PATIENCE
from .meeting import meet
from .place import place


@dataclass(frozen=True, slots=True)
class Shards:
    """What the ranks of the group have ahead of them, in the order of the group. None: not known."""

    batches: tuple[int | None, ...]
    tails: tuple[int | None, ...]  # samples in the last batch
    workers: tuple[int | None, ...]
    notes: tuple[str, ...] = ()

    @property
    def least(self) -> int | None:
        """As many batches as every rank has: `itertools.islice(loader, shards.least)`. None if one does not know."""
        known = [count for count in self.batches if count is not None]
        return min(known) if len(known) == len(self.batches) else None


def check_shards(loader: Any, *, uneven: str = "raise", group: Any = None, timeout: float = PATIENCE) -> Shards:
    """Before an epoch: raises RanksDiffer, on all ranks, if one would run out of batches before the others.

    loader: a DataLoader or anything with a length in batches; or this rank's number of batches itself. uneven: "raise",
    "warn", or "ignore" (then use `.least` of what it returns). Warns of last batches of different sizes, of worker
    counts that differ, and of lengths that nobody knows (an IterableDataset): there only agree() at each step helps.

    Outside of a distributed job: this rank's own numbers.
    """
    if uneven not in ("raise", "warn", "ignore"):
        raise ValueError(f"check_shards(uneven={uneven!r}): 'raise', 'warn' or 'ignore'")
    call, mine = f"check_shards() at {place()}", describe(loader)
    around = find.find(group, call, timeout)
    if around is None:
        return _shards([mine])
    held = meet(around, f"check_shards {uneven}", call, json.dumps(mine).encode(), _together, timeout)
    all_of_them: list[dict[str, Any]] = json.loads(held)
    problem, odd = _uneven(call, around.ranks, all_of_them)
    if problem and uneven == "raise":
        raise RanksDiffer(problem, odd)
    notes = _notes(around.ranks, all_of_them) + ([problem] if problem and uneven == "warn" else [])
    if around.me == 0:
        for note in notes:
            find.warn(f"whichrank.guard: {call}: {note}")
    return _shards(all_of_them, notes)


def _together(said: list[bytes]) -> bytes:
    return b"[" + b",".join(said) + b"]"


def _shards(held: list[dict[str, Any]], notes: list[str] | None = None) -> Shards:
    batches, tails, workers = (tuple(one[name] for one in held) for name in ("batches", "tail", "workers"))
    return Shards(batches, tails, workers, tuple(notes or ()))


def describe(loader: Any) -> dict[str, Any]:
    """This rank's batches, samples in the last one, workers, batch size; None where it is not known."""
    if isinstance(loader, int):
        return {"batches": loader, "tail": None, "workers": None, "size": None, "how": ""}
    found: dict[str, Any] = {"batches": _length(loader), "tail": None, "workers": None, "size": None}
    found["workers"] = getattr(loader, "num_workers", None)
    found["size"] = size = getattr(loader, "batch_size", None)
    sampler = getattr(loader, "sampler", None)
    found["how"] = type(sampler).__name__ if sampler is not None else type(loader).__name__
    if _is_iterable(loader):
        found["how"] = "IterableDataset"
        return found
    samples = _length(sampler)
    if size and samples is not None:
        found["tail"] = size if getattr(loader, "drop_last", False) or samples % size == 0 else samples % size
    return found


def _length(obj: object) -> int | None:
    try:
        return len(obj) if isinstance(obj, Sized) else None
    except (TypeError, NotImplementedError):  # an IterableDataset without a length
        return None


def _is_iterable(loader: Any) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(getattr(loader, "dataset", None), data.IterableDataset)


def _uneven(call: str, ranks: tuple[int, ...], held: list[dict[str, Any]]) -> tuple[str, tuple[int, ...]]:
    """What differs and would stop the epoch, and who has less or more than most."""
    by_count: dict[Any, list[int]] = {}
    for rank, one in zip(ranks, held, strict=True):
        by_count.setdefault(one["batches"], []).append(rank)
    known = sorted(count for count in by_count if count is not None)
    if len(known) < 2:
        return "", ()
    usual = Counter({count: len(by_count[count]) for count in known}).most_common(1)[0][0]
    parts = [f"{named(by_count[count])}: {count}" for count in known]
    lines = [f"{call}: the ranks do not have the same number of batches: {'; '.join(parts)}."]
    lines.append(f"After {known[0]} batches some would wait in a collective for those that have ended their epoch.")
    sizes = {one["size"] for one in held}
    if len(sizes) > 1:
        lines.append(f"Their batch sizes differ, too: {', '.join(map(str, sizes))}.")
    lines.append(
        "Next: DistributedSampler with drop_last=True (or without: it pads), loader with drop_last=True; or stop all"
    )
    lines.append(
        "at the shortest: itertools.islice(loader, check_shards(loader, uneven='ignore').least); or DDP's join()."
    )
    return "\n".join(lines), tuple(rank for count in known if count != usual for rank in by_count[count])


def _notes(ranks: tuple[int, ...], held: list[dict[str, Any]]) -> list[str]:
    notes = []
    unknown = [rank for rank, one in zip(ranks, held, strict=True) if one["batches"] is None]
    if unknown:
        text = (
            f"{named(unknown)} cannot know how many batches there are: let all agree() at each step whether one is out"
        )
        notes.append(text)
    told = [
        rank for rank, one in zip(ranks, held, strict=True) if one["how"] == "IterableDataset" and rank not in unknown
    ]
    if told:
        notes.append(f"{named(told)} read an IterableDataset: its length is what it says, not what will come")
    if len({one["tail"] for one in held}) > 1 and len({one["batches"] for one in held}) == 1:
        tails = ", ".join(str(one["tail"]) for one in held[:16])
        text = f"the last batches have different sizes ({tails}): gathering them needs padding, and averages over ranks are"
        notes.append(text + " not those over samples; drop_last=True avoids it")
    if len({one["workers"] for one in held}) > 1:
        counts = ", ".join(str(one["workers"]) for one in held[:16])
        notes.append(
            f"the ranks have different numbers of DataLoader workers ({counts}): the fewest may be the slowest"
        )
    return notes
