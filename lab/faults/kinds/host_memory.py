"""A rank keeps what it has decoded until the job's memory cgroup is full and the kernel kills its largest process."""

from contextlib import suppress
from pathlib import Path

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.incident import Incident
from lab.faults.scene import Scene

KEPT = 6000  # copies of a 16 KB sample: 100 MB each


def lay_out(scene: Scene) -> None:
    drawn = scene.drawn
    for sample in scene.samples[0][drawn.victim][drawn.step * scene.settings["batch"] :]:
        sample["keep"] = KEPT


def during(incident: Incident) -> None:
    """It begins when the process is gone, some steps later."""
    victim = incident.pid(incident.drawn.victim)
    children = _children(victim)
    incident.wait(60, lambda: _gone(victim) or any(map(_gone, children)))
    incident.begins()


def _children(pid: int) -> list[int]:
    """The loader's workers; torch has none of its own here."""
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _gone(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


def truth(drawn: Drawn) -> Truth:
    who = "rank" if drawn.variant == "rank" else "DataLoader worker of rank"
    why = f"the kernel kills the {who} {drawn.victim}, which grows from step {drawn.step} on"
    return Truth("host_oom", ["dead"], [drawn.victim], why, bare_also=())


FAULT = Fault(
    "host_memory", "a real OOM kill in a memory cgroup: a rank's data set, or its worker's, keeps all that it has decoded",
    truth, variants=("rank", "worker"), lay_out=lay_out, during=during, needs=("root", "memory_cgroup"),
    moves=lambda drawn: {"workers": 0 if drawn.variant == "rank" else 1, "steps": drawn.step + 120},
)  # fmt: skip
