"""Rank 0 packs or uploads a checkpoint for longer than the others wait."""

from lab.faults.draw import at_save
from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    drawn = scene.drawn
    if drawn.variant == "archive":
        scene.settings |= {"saver": "archive", "full_at": [drawn.step], "full_size": 40_000_000}
    else:
        scene.upload({drawn.step // drawn.save_every: 100.0})


def truth(drawn: Drawn) -> Truth:
    why = f"rank 0 saves at step {drawn.step}, the others wait for it in a barrier"
    return Truth("slow_checkpoint", ["host_stuck"], [0], why, also=["rank0_only_work"])


FAULT = Fault(
    "checkpoint_rank0", "rank 0 writes 160 MB of weights through xz, or uploads them to a store that takes 100 s",
    truth, variants=("archive", "upload"), lay_out=lay_out, moves=at_save,
)  # fmt: skip
