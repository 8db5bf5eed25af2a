"""One rank has fewer batches than the others, and leaves the loop before them."""

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    drawn, batch = scene.drawn, scene.settings["batch"]
    del scene.samples[0][drawn.victim][drawn.step * batch :]


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} has {drawn.step} batches, the others {drawn.steps}"
    return Truth(
        "desync_uneven_data", ["desync", "mismatch"], [drawn.victim], why,
        bare_also=["undecided", "desync_conditional", *([] if drawn.frames else ["desync_mismatch"])],
    )  # fmt: skip


FAULT = Fault(
    "uneven", "one rank's shard is a few batches shorter than the others'", truth, job="towers", lay_out=lay_out,
    moves=lambda drawn: {"step": drawn.steps - 1 - drawn.seed % 3},
)  # fmt: skip
