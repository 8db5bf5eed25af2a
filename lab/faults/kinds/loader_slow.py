"""One rank's input takes far longer than its step: a packed archive that is read to its end, or a slow pattern."""

import bz2

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene

BLOCK = bz2.compress(bytes(range(200)) * 100_000)  # 20 MB, unpacked in 0.1 to 1 s


def lay_out(scene: Scene) -> None:
    for sample in scene.victims_samples():
        if scene.drawn.variant == "archive":
            sample |= {"path": "part-001.bin.bz2", "packing": "bz2"}
            content = BLOCK * 300
        else:
            sample |= {"path": "part-001.txt", "packing": "text"}
            content = b"7 8 9" * 50 + b" " * 150_000 + b"\n11"
        if not scene.file_of(sample).exists():
            scene.file_of(sample).write_bytes(content)


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim}'s batch {drawn.step} is unpacked for longer than the timeout"
    return Truth("slow_data", ["host_stuck"], [drawn.victim], why)


FAULT = Fault(
    "loader_slow", "a batch of one rank's DataLoader is a bz2 archive of 6 GB, or text that a pattern takes minutes for",
    truth, variants=("archive", "pattern"), lay_out=lay_out,
)  # fmt: skip
