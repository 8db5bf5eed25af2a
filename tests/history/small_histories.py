"""Small histories for tests, with one thing behind them."""

from __future__ import annotations

import random

from whichrank.history.incident import History, Incident, Run

WEEK = 7 * 86400.0


def runs(count: int, nodes: int, seed: int, each: int = 4, ranks: int = 8) -> list[Run]:
    """Runs on `each` of so many nodes, chosen anew each time, hours to days long."""
    dice = random.Random(seed)
    found = []
    at = 1.75e9
    for number in range(count):
        at += dice.uniform(3600, WEEK / 3)
        placed = tuple((f"gn{place:03}", ranks) for place in dice.sample(range(nodes), each))
        found.append(
            Run(f"run-{number:04}", f"job {number}", at, at + dice.uniform(7200, 40 * 3600), placed, each * ranks)
        )
    return found


def somebody(run: Run, dice: random.Random, **more: object) -> Incident:
    """An incident that blames anybody."""
    rank = dice.randrange(run.world_size)
    values: dict[str, object] = {
        "rank": rank,
        "host": run.host_of(rank),
        "step": dice.randrange(20_000),
        "cause": "killed",
        "family": "dead_rank",
    }
    return Incident(run.id, 0, **{"at": run.ended, **values, **more})  # type: ignore[arg-type]


def bad_node(hits: int, nodes: int, seed: int, others: int = 3) -> History:
    """gn001 is bad: in runs that held it, blamed on a rank of it; the other runs blame anybody."""
    dice = random.Random(seed)
    made = runs(hits * 12 + others, nodes, seed)
    found, left = [], others
    for run in made:
        held = [place for place, (host, _) in enumerate(run.placement) if host == "gn001"]
        if held and len(found) < hits + others:
            rank = held[0] * 8 + dice.randrange(8)
            found.append(somebody(run, dice, rank=rank, host="gn001"))
        elif left:
            left -= 1
            found.append(somebody(run, dice))
    return History.of(made, found)


def nobody(count: int, nodes: int, seed: int) -> History:
    """Bad luck only."""
    dice = random.Random(seed)
    made = runs(count, nodes, seed)
    return History.of(made, [somebody(run, dice) for run in made])
