"""A rank ends with an error of its own: a damaged sample in a worker, a token that the vocabulary lacks, a refused save."""

import struct

from lab.faults.draw import at_save
from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    drawn = scene.drawn
    if drawn.variant == "refused":
        (scene.work / "checkpoints" / f"step{drawn.step}.pt").mkdir()
        return
    sample = scene.victims_samples()[drawn.seed % 4]
    if drawn.variant == "damaged":
        sample |= {"path": "part-001.bin.bz2", "packing": "bz2"}
        scene.file_of(sample).write_bytes(b"BZh91AY&SY" + b"\x00\x17" * 60)
    else:
        sample |= {"path": "part-001.bin"}
        scene.file_of(sample).write_bytes(struct.pack("<h", 1017) * 8192)


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} ends with its own uncaught error at step {drawn.step}"
    return Truth("exception", ["dead"], [drawn.victim], why, bare_also=())


FAULT = Fault(
    "exception", "a damaged archive in a DataLoader worker, a token beyond the embedding, a checkpoint's name that is a folder",
    truth, variants=("damaged", "token", "refused"), lay_out=lay_out,
    moves=lambda drawn: at_save(drawn) if drawn.variant == "refused" else {},
)  # fmt: skip
