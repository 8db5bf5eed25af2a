"""A call that does not give the interpreter's lock back for minutes: a pattern, a very large number."""

from lab.faults.draw import at_evaluation
from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    drawn = scene.drawn
    at = f"{drawn.step}/{drawn.victim}"
    if drawn.variant == "pattern":
        scene.settings["generated"] = {at: "a b" + " " * 150_000 + "c"}
    else:
        scene.settings["draws"] = {at: 4_000_000}


def truth(drawn: Drawn) -> Truth:
    why = (
        f"rank {drawn.victim} computes in one call, with the interpreter's lock held, in the evaluation at {drawn.step}"
    )
    mechanism = ["host_stuck"] if drawn.watched else ["host_stuck", "dead"]  # it has left no dump
    return Truth("slow_compute", mechanism, [drawn.victim], why)


FAULT = Fault(
    "held_gil", "re.sub on 150,000 blanks, or math.comb of a large number, in the main thread",
    truth, variants=("pattern", "number"), lay_out=lay_out, moves=at_evaluation,
)  # fmt: skip
