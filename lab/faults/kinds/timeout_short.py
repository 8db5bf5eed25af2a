"""Checkpoints that take a little longer each time, until one takes longer than the others wait."""

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene

LIMIT = {False: 8.0, True: 20.0}  # seconds, bare and watched


def lay_out(scene: Scene) -> None:
    limit = LIMIT[scene.drawn.watched]
    scene.settings["timeout"] = limit
    scene.upload({number: share * limit for number, share in enumerate((0.5, 0.75, 1.08), start=1)})


def moves(drawn: Drawn) -> dict[str, object]:
    every = 5
    return {"at": "save", "victim": 0, "save_every": every, "step": 3 * every, "steps": 4 * every}


def truth(drawn: Drawn) -> Truth:
    why = "each checkpoint is saved, and takes longer than the one before: the third just longer than the timeout"
    return Truth(
        "timeout_too_short", ["timeout_short", "host_stuck"], [0], why, also=["slow_checkpoint"],
        bare_also=["undecided"], culprits_also=[[]],
    )  # fmt: skip


FAULT = Fault(
    "timeout_short",
    "uploads of 0.5, 0.75 and 1.08 times the timeout",
    truth,
    lay_out=lay_out,
    moves=moves,
    to_the_end=True,
)
