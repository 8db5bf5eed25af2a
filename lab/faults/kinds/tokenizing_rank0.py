"""Rank 0 tokenizes the texts of the next epoch, the others wait for it in a barrier."""

import random

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene, add_epoch

FILES, WORDS = 80, 100_000


def lay_out(scene: Scene) -> None:
    rng = random.Random(scene.drawn.seed)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 11))) for _ in range(5000)]
    page = " ".join(rng.choices(words, k=WORDS))
    folder = scene.work / "texts"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"part-{number:03d}.txt").write_text(page)
    scene.settings |= {"epochs": 2, "texts": {"1": str(folder)}}
    add_epoch(scene, 12)


def truth(drawn: Drawn) -> Truth:
    return Truth("rank0_only_work", ["host_stuck"], [0], f"rank 0 tokenizes before epoch 1, at step {drawn.step}")


FAULT = Fault(
    "tokenizing_rank0", "rank 0 tokenizes 50 MB of text in Python between two epochs",
    truth, lay_out=lay_out, moves=lambda drawn: {"victim": 0, "steps": drawn.step},
)  # fmt: skip
