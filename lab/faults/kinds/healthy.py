"""Jobs in which nothing is wrong, and much is irregular."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene, add_epoch


def truth(drawn: Drawn) -> Truth:
    return Truth("none", ["no_hang"], None, "nothing was wrong, and all ranks ended well", bare_also=())


def kind(name: str, made: str, lay_out: Callable[[Scene], None], job: str = "pretrain") -> Fault:
    return Fault(f"healthy_{name}", made, truth, job=job, lay_out=lay_out, healthy=True)


def setting(**changed: Any) -> Callable[[Scene], None]:
    def lay_out(scene: Scene) -> None:
        scene.settings |= changed

    return lay_out


def growing(scene: Scene) -> None:
    """Sequences of 64 tokens at the start, of 1,500 at the end."""
    for ranks in scene.samples[0]:
        for place, sample in enumerate(ranks):
            sample["length"] = 64 + 1436 * place // len(ranks)
    scene.settings["pace"] /= 3


def ragged(scene: Scene) -> None:
    """Each rank's batches have other lengths: somebody is always last."""
    rng = scene.drawn.rng("lengths")
    for ranks in scene.samples[0]:
        for sample in ranks:
            sample["length"] = min(1600, int(rng.lognormvariate(5.2, 0.7)))


def saving(scene: Scene) -> None:
    """Uploads of 2 to 8 s, in which all wait for rank 0."""
    rng = scene.drawn.rng("uploads")
    scene.settings["save_every"] = 25
    scene.upload({number: rng.uniform(2.0, 8.0) for number in range(1, 1000)})


def epochs(scene: Scene) -> None:
    """Short epochs: loaders and their workers start anew each time."""
    steps = 12
    count = max(2, scene.drawn.steps // steps)
    for ranks in scene.samples[0]:
        del ranks[steps * scene.settings["batch"] :]
    for _ in range(count - 1):
        add_epoch(scene, steps)
    scene.settings["epochs"] = count


HEALTHY = (
    kind("jitter", "step times with a log-normal factor (sigma 0.5) of each rank's own", setting(jitter=0.5)),
    kind("evaluation", "an evaluation thirty times as long as a step, every 20 steps", setting(evaluate_every=20, evaluation_batches=30)),
    kind("growing", "sequences that grow from 64 to 1,500 tokens", growing),
    kind("ragged", "every rank's batches of other lengths", ragged),
    kind("saving", "uploads of rank 0 of 2 to 8 s, at random", saving),
    kind("epochs", "epochs of 12 steps with new DataLoader workers each", epochs),
    kind("compiled", "torch.compile: a first step of many seconds", setting(compiled=True)),
)  # fmt: skip
