"""A DataLoader worker waits for a sample that does not come: a server without an answer, a decoder without input."""

import os

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    sample = scene.victims_samples()[scene.drawn.seed % 4]
    if scene.drawn.variant == "server":
        scene.store.silent.add("/part-001.bin")
        sample |= {"access": "url", "url": f"http://{scene.store.address}/part-001.bin"}
    else:
        sample |= {"path": "part-001.bin.gz"}
        os.mkfifo(scene.file_of(sample))
        sample |= {"access": "tool", "tool": ["sh", "-c", f"gzip -dc < {scene.file_of(sample)}"]}


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} waits for its batch {drawn.step}, of which one sample does not come"
    also = ["slow_storage"] if drawn.variant == "server" else []
    return Truth("slow_data", ["host_stuck"], [drawn.victim], why, also=also)


FAULT = Fault(
    "loader_stuck", "a sample is asked of an HTTP server that does not answer, or of gzip, which reads a pipe that nobody writes to",
    truth, variants=("server", "decoder"), lay_out=lay_out,
)  # fmt: skip
