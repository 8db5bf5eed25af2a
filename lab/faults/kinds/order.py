"""One rank uses two groups in the opposite order."""

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    for sample in scene.victims_samples():
        sample["modalities"] = ["text", "image"]


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} reduces text before image in step {drawn.step}, the others image before text"
    also: list[list[int]] = [[]] if drawn.world == 2 else []
    return Truth("desync_order", ["deadlock", "desync"], [drawn.victim], why, bare_also=(), culprits_also=also)


FAULT = Fault(
    "order",
    "the gradients are reduced in the order in which the batch names its modalities",
    truth,
    job="towers",
    lay_out=lay_out,
)
