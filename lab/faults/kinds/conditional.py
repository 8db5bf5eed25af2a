"""A collective that one rank leaves out, because its batch has no captions."""

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    for sample in scene.victims_samples():
        sample["captions"] = 0


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} has no captions in step {drawn.step} and leaves the all-reduce of the contrast out"
    logs = ["desync_mismatch", "undecided"]  # without call sites it may be any other call
    return Truth(
        "desync_conditional", ["desync", "mismatch"], [drawn.victim], why, bare_also=[] if drawn.frames else logs
    )


FAULT = Fault(
    "conditional", "an all-reduce that is skipped for a batch without captions", truth, job="towers", lay_out=lay_out
)
