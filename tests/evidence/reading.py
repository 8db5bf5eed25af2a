"""What every reader's tests share: read a text, and prove that facts survive what happens to *other* lines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from whichrank.evidence import Evidence, read_piece
from whichrank.facts import Fact

NOISE = (
    "2026-11-30 05:12:44 [rank2] step 41184 loss 2.31",
    "  3%|▎         | 31/1024 [00:12<06:33,  2.52it/s]",
    "",
    "node-03:41203:41290 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via P2P/CUMEM/read",
    "[rank5]: broken \x1b[31m\xff\ufffd line",
    '{"loss": 1.0,',
    "W1130 05:12:44.000000 77 torch/distributed/run.py:774] *****",
)


def facts_of(text: str | bytes, name: str = "train.log") -> list[Fact]:
    evidence = Evidence()
    read_piece(name, text if isinstance(text, bytes) else text.encode(), evidence)
    return evidence.facts


def one(text: str, kind: str, name: str = "train.log") -> Fact:
    """The only fact of this kind in the text."""
    found = [fact for fact in facts_of(text, name) if fact.kind == kind]
    assert len(found) == 1, (kind, [(fact.kind, dict(fact.values)) for fact in facts_of(text, name)])
    return found[0]


def essence(fact: Fact) -> tuple[Any, ...]:
    """A fact without its place: what must survive."""
    return (
        fact.kind,
        fact.who.rank,
        fact.who.host,
        fact.who.pid,
        fact.group,
        fact.seq,
        repr(sorted(fact.values.items(), key=str)),
    )


def disturbed(lines: Sequence[str], seed: int) -> str:
    """The same lines in the same order, with others put between, before and after them."""
    rng = random.Random(seed)
    out: list[str] = []
    for line in lines:
        out.extend(rng.choice(NOISE) for _ in range(rng.randrange(3)))
        out.append(line)
    out.extend(rng.choice(NOISE) for _ in range(rng.randrange(3)))
    return "\n".join(out) + ("\n" if rng.random() < 0.8 else "")


def survivors(lines: Sequence[str], seed: int, rival: str = "[rank") -> set[str]:
    """The essences of all facts, when other lines stand between these: noise, and another rank's, doubled and torn.

    `rival`: which lines another rank prints too. What C++ prints without a label goes to whoever spoke last: there a
    rival is no fair test.
    """
    rng = random.Random(seed)
    out: list[str] = []
    for line in disturbed(lines, seed).split("\n"):
        out.append(line)
        if line.startswith(rival) and rng.random() < 0.3:
            other = "[rank99]" + line.partition("]")[2]
            torn = other[: rng.randrange(8, len(other) + 1)]
            damaged = "".join(rng.choice("\x07\ufffd#") if rng.random() < 0.1 else char for char in other[8:])
            out.extend(rng.choice((torn, "[rank99]" + damaged, other)) for _ in range(rng.randrange(1, 3)))
    return {repr(essence(fact)) for fact in facts_of("\n".join(out))}
