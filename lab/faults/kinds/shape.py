"""One rank gathers a tensor of another shape."""

from lab.faults.draw import at_evaluation
from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    drawn, batch = scene.drawn, scene.settings["batch"]
    for sample in scene.samples[0][drawn.victim][(drawn.step - 1) * batch : drawn.step * batch]:
        sample["regions"] = 3


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} gathers 12 rows in the evaluation at step {drawn.step}, the others 16"
    also: list[list[int]] = [[]] if drawn.world == 2 else []  # one against one: neither side is wrong by the evidence
    return Truth(
        "desync_mismatch", ["mismatch"], [drawn.victim], why, bare_also=["desync_uneven_data"], culprits_also=also
    )


FAULT = Fault(
    "shape", "all_gather of as many rows as there are regions, of which one rank's batch has fewer", truth, job="towers",
    lay_out=lay_out, moves=at_evaluation,
)  # fmt: skip
