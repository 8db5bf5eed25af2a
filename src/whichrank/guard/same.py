"""same_everywhere(obj): whether all ranks hold the same, and if not, who has what."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from . import find
from .errors import RanksDiffer, named
from .flags import PATIENCE
from .flat import flat
from .meeting import meet
from .place import place

SHOWN = 8  # differences
PART = 256  # blocks of lines whose digests tell where the differences are


def same_everywhere(
    obj: Any, name: str = "", *, values: bool = False, group: Any = None, timeout: float = PATIENCE
) -> None:
    """Raises RanksDiffer, on all ranks, if `obj` is not the same on all: it says what differs, and on which.

    obj: a configuration (mappings, dataclasses, namespaces, what has fields), a module (names, order, shapes, types; with
    values=True what is in them, too, which reads all of it), a tensor or array (with its values), an optimizer's
    settings, a generator or a seed (the order of the data). Outside of a distributed job it does nothing.
    """
    call = f"same_everywhere({name!r}) at {place()}" if name else f"same_everywhere() at {place()}"
    around = find.find(group, call, timeout)
    if around is None:
        return
    lines = flat(obj, values)
    digest = hashlib.blake2b(repr(lines).encode("utf-8", "replace"), digest_size=16).digest()
    kind = f"same_everywhere {name}"
    if meet(around, kind, call, digest, lambda said: b"same" if len(set(said)) == 1 else b"", timeout) == b"same":
        return
    mine = json.dumps(_blocks(lines)).encode()
    odd = json.loads(meet(around, kind + ", where", call, mine, _odd_blocks, timeout))
    shown = [line for line in lines if _block(line[0]) in odd][:2000]
    ranks = around.ranks
    meet(around, kind + ", what", call, json.dumps(shown).encode(), lambda said: _tell(call, ranks, said), timeout)


def _block(path: str) -> int:
    return hashlib.blake2b(path.encode("utf-8", "replace"), digest_size=1).digest()[0]


def _blocks(lines: list[tuple[str, str]]) -> list[str]:
    """A digest for each block of paths: the same lines are in the same block everywhere."""
    sums = [hashlib.blake2b(digest_size=6) for _ in range(PART)]
    for path, value in lines:
        sums[_block(path)].update(f"{path}={value}\n".encode("utf-8", "replace"))
    return [made.hexdigest() for made in sums]


def _odd_blocks(said: list[bytes]) -> bytes:
    blocks = zip(*map(json.loads, said), strict=True)
    odd = [number for number, block in enumerate(blocks) if len(set(block)) > 1]
    return json.dumps(odd[:16]).encode()


def _tell(call: str, ranks: tuple[int, ...], said: list[bytes]) -> bytes:
    held = [dict(json.loads(data)) for data in said]
    paths = list(dict.fromkeys(path for lines in held for path in lines))
    differing = [path for path in paths if len({lines.get(path) for lines in held}) > 1]
    text = [f"{call}: not the same on all ranks:"]
    odd: set[int] = set()
    for path in differing:
        by_value: dict[str, list[int]] = {}
        for rank, lines in zip(ranks, held, strict=True):
            by_value.setdefault(lines.get(path, "(has none)"), []).append(rank)
        usual = Counter({value: len(members) for value, members in by_value.items()}).most_common(1)[0][0]
        odd.update(rank for value, members in by_value.items() if value != usual for rank in members)
        if len(text) <= SHOWN:
            parts = [f"{value} on {named(members)}" for value, members in list(by_value.items())[:4]]
            text.append(f"  {path.lstrip('.') or 'it'}: {'; '.join(parts)}")
    if len(differing) > SHOWN:
        text.append(f"  and {len(differing) - SHOWN} more")
    text.append(
        "Next: find where it comes from (a file, the environment, a random number, the node) and set it on all."
    )
    raise RanksDiffer("\n".join(text), tuple(sorted(odd)))
