"""A long sample of one rank asks the accelerator for more memory than it has."""

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    scene.victims_samples()[scene.drawn.seed % 4]["length"] = 2200


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim}'s batch {drawn.step} does not fit its device"
    return Truth("cuda_oom", ["dead"], [drawn.victim], why, bare_also=())


FAULT = Fault(
    "device_memory", "torch.OutOfMemoryError with CUDA's words, from the forward pass of a long sample (there is no GPU)",
    truth, lay_out=lay_out,
)  # fmt: skip
