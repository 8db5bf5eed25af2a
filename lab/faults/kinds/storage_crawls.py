"""A file on a mount that answers at a few kilobytes per second: one rank's samples, or the checkpoint."""

from lab.faults.draw import at_save
from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.kinds.storage_hangs import onto_mount
from lab.faults.scene import Scene

RATE = 400.0  # bytes per second: 40 s for a sample
SAVING = 3000.0  # several hundred kilobytes


def lay_out(scene: Scene) -> None:
    assert scene.mount and scene.files
    drawn = scene.drawn
    if drawn.variant == "checkpoint":
        scene.settings["save"] = str(scene.mount)
        scene.files.rate[f"step{drawn.step}.pt"] = SAVING
        return
    name = onto_mount(scene)
    scene.files.rate[name] = RATE
    for sample in scene.samples[0][drawn.victim][drawn.step * scene.settings["batch"] :]:
        sample["path"] = str(scene.mount / name)


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} has to do with a mount that answers at {RATE:.0f} B/s from step {drawn.step} on"
    logs = ["slow_checkpoint"] if drawn.variant == "checkpoint" else ["slow_data"]
    return Truth("slow_storage", ["host_stuck"], [drawn.victim], why, bare_also=["undecided", *logs])


FAULT = Fault(
    "storage_crawls", "a FUSE mount serves one file at 400 B/s, or takes the checkpoint at 3 kB/s",
    truth, variants=("read", "checkpoint"), lay_out=lay_out, needs=("root", "fuse"),
    moves=lambda drawn: at_save(drawn) if drawn.variant == "checkpoint" else {},
)  # fmt: skip
