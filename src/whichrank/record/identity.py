"""Who this process is: a rank, a child of one, a launcher, or none of our business."""

from __future__ import annotations

import os
import socket
import sys
import time

RANK_PID = "WHICHRANK_RANK_PID"
RUN = "WHICHRANK_RUN"
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
WORLDS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
JOBS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "colossalai", "horovodrun")
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "accelerate.commands",
    "deepspeed.launcher",
)


def number(names: tuple[str, ...]) -> int | None:
    """The first of these variables that holds a number."""
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit() and len(value) < 9:
            return int(value)
    return None


def child_of_a_rank() -> bool:
    pid = os.environ.get(RANK_PID)
    return bool(pid) and pid != str(os.getpid())


def launcher() -> bool:
    """Is this process a launcher, by its command line? Its environment may hold a RANK: the node's."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read(20_000).decode("utf-8", "replace").split("\0")
    except OSError:
        words = list(getattr(sys, "orig_argv", []))
    script = True
    for place, word in enumerate(words[1:9], 1):
        if words[place - 1] == "-m":
            return word.startswith(LAUNCHER_MODULES)
        if script and not word.startswith("-"):
            return os.path.basename(word) in LAUNCHERS
    return False


def told_rank() -> int | None:
    """The rank, where the launcher told it and this process is one: whoever starts ranks sets the local one as well."""
    if os.environ.get("LOCAL_RANK", "").isdigit():
        return number(("RANK",))
    return None


def facts(rank: int | None) -> dict[str, object]:
    """What is known of this process by its environment; docs/record.md lists the keys."""
    found: dict[str, object] = {
        "rank": rank,
        "local_rank": number(LOCAL_RANKS),
        "world": number(WORLDS),
        "attempt": number(("TORCHELASTIC_RESTART_COUNT",)) or 0,
        "job": next((os.environ[name] for name in JOBS if os.environ.get(name)), None),
        "run": os.path.basename(os.environ.get(RUN, "").rstrip("/")) or None,
        "host": socket.gethostname(),
        "pod": os.environ.get("POD_NAME"),
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "boot_id": _boot_id(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "executable": sys.executable,
        "started_wall_ns": time.time_ns(),
        "started_mono_ns": time.monotonic_ns(),
    }
    return {key: value for key, value in found.items() if value is not None}


def _boot_id() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return None


def file_name(rank: int | None, attempt: object) -> str:
    return "rank-%s-a%s-p%d.ring" % ("%06d" % rank if rank is not None else "unknown", attempt, os.getpid())


def directory() -> str:
    """Where the ranks of this node keep their files when no launcher says: in memory, a folder for each job.

    The ranks of a node have their launcher in common.
    """
    job = next((os.environ[name] for name in JOBS if os.environ.get(name)), "job")
    word = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in job)[:60]
    base = "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else _temporary()
    return os.path.join(base, "whichrank-%d" % os.getuid(), "%s-%d" % (word, os.getppid()))


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()


def private(path: str) -> bool:
    """Make the folder and those above it that are missing; is it ours, and closed to others?"""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    return found.st_uid in (os.getuid(), 0) and not os.path.islink(path) and not found.st_mode & 0o022


def groups(module: object) -> dict[str, str]:
    """The process groups that this rank is in: name -> their ranks, such as "0-3,8"; none where torch keeps them elsewhere."""
    found: dict[str, str] = {}
    world = getattr(module, "_world", None)
    for group, name in list(getattr(world, "pg_names", {}).items())[:64]:
        members = getattr(world, "pg_group_ranks", {}).get(group) or ()
        found[str(name)] = ranges(sorted(members))
    return found


def ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in parts)


def store(module: object) -> str | None:
    """host:port of the job's TCPStore; None where its store is of another kind, or serves its clients one by one."""
    found = module._get_default_store()  # type: ignore[attr-defined]
    while hasattr(found, "underlying_store"):
        found = found.underlying_store
    if not getattr(found, "libuvBackend", False):
        return None
    return "%s:%d" % (found.host, found.port)
