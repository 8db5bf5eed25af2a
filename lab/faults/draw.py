"""One incident, drawn from its fault, its world and a seed: the same for the same three."""

from __future__ import annotations

import random
from dataclasses import replace

from lab.faults.fault import Drawn, Fault


def draw(fault: Fault, world: int, seed: int, watched: bool) -> Drawn:
    rng = random.Random(f"{fault.name}/{world}/{seed}")
    step = rng.randint(16, 30)
    drawn = Drawn(
        fault=fault.name,
        variant=rng.choice(list(fault.variants)),
        seed=seed,
        world=world,
        victim=rng.randrange(world),
        step=step,
        steps=step + rng.randint(10, 20),
        pace_s=rng.uniform(0.1, 0.25),
        save_every=rng.choice((6, 7, 9)),
        evaluate_every=rng.choice((5, 8)),
        workers=rng.choice((1, 2)) if world < 8 else 1,
        all_speak=rng.random() < 0.5,
        merged=rng.random() < 0.4,
        frames=rng.random() < 0.6,
        watched=watched,
    )
    return replace(drawn, **fault.moves(drawn))  # type: ignore[arg-type]


def at_save(drawn: Drawn) -> dict[str, object]:
    """Rank 0, at one of its checkpoints (not the first, so that there is something to compare with)."""
    step = drawn.save_every * (2 + drawn.seed % 2)
    return {"at": "save", "victim": 0, "step": step, "steps": step + 12}


def at_evaluation(drawn: Drawn) -> dict[str, object]:
    step = drawn.evaluate_every * (3 + drawn.seed % 2)
    return {"at": "evaluation", "step": step, "steps": step + 12}
