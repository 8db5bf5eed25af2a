"""A file on a mount whose server does not answer: read by a loader, mapped into memory, or a checkpoint."""

import shutil

from lab.faults.draw import at_save
from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    assert scene.mount and scene.files
    drawn = scene.drawn
    if drawn.variant == "checkpoint":
        scene.settings["save"] = str(scene.mount)
        scene.files.hang.add(f"step{drawn.step}.pt")
        return
    name = onto_mount(scene)
    scene.files.hang.add(name)
    access = "map" if drawn.variant == "mapped" else "file"
    scene.victims_samples()[drawn.seed % 4].update(path=str(scene.mount / name), access=access)


def onto_mount(scene: Scene) -> str:
    """All ranks' samples onto the mount; returns the name of another file there, for the victim."""
    export, plain = scene.work / "export", scene.data / "epoch0" / "rank0" / "part-000.bin"
    for rank, listed in enumerate(scene.samples[0]):
        shutil.copy(plain, export / f"rank{rank}-000.bin")
        for sample in listed:
            sample["path"] = f"{scene.mount}/rank{rank}-000.bin"
    name = f"rank{scene.drawn.victim}-001.bin"
    shutil.copy(plain, export / name)
    return name


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} waits for a file on a mount that does not answer, at step {drawn.step}"
    logs = ["slow_checkpoint"] if drawn.variant == "checkpoint" else ["slow_data"]
    return Truth("slow_storage", ["host_stuck"], [drawn.victim], why, bare_also=["undecided", *logs])


FAULT = Fault(
    "storage_hangs", "a FUSE mount does not answer for one file: a sample read or mapped, or the checkpoint",
    truth, variants=("read", "mapped", "checkpoint"), lay_out=lay_out, needs=("root", "fuse"),
    moves=lambda drawn: at_save(drawn) if drawn.variant == "checkpoint" else {},
)  # fmt: skip
