"""Small trainings that hang, or end wrongly, and the same with a guard: WHAT plain|guarded.

Each rank says in lines of JSON what it comes to. Run by test_guard_jobs.py, under torchrun or as single processes.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from whichrank import guard

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
GUARDED = sys.argv[2] == "guarded"
JOBS: dict[str, Callable[[], None]] = {}


def job(function: Callable[[], None]) -> Callable[[], None]:
    JOBS[function.__name__] = function
    return function


def say(what: str, **more: Any) -> None:
    line = json.dumps({"rank": RANK, "what": what, "time": time.time(), **more})
    os.write(1, f"{line}\n".encode())


def init(seconds: float = 100) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    dist.barrier()


def reduce(group: Any = None) -> float:
    x = torch.ones(4)
    dist.all_reduce(x, group=group)
    return float(x[0])


def raised(act: Callable[[], Any]) -> Any:
    """What it raises or returns is said."""
    begun = time.time()
    try:
        got = act()
        say("returned", value=got if isinstance(got, (bool, int, float, str, list, type(None))) else str(got))
        return got
    except guard.GuardError as error:
        ranks = list(getattr(error, "ranks", ()))
        took = time.time() - begun
        say("raised", kind=type(error).__name__, text=str(error), ranks=ranks, seconds=took)
        return error


# --- what hangs without a guard


@job
def stop() -> None:
    """Rank 1 stops early, by what only it sees, and goes on to the barrier after the loop."""
    init()
    for step in range(30):
        reduce()
        enough = RANK == 1 and step == 5
        say("step", step=step)
        if guard.agree(enough) if GUARDED else enough:
            break
    dist.barrier()
    say("end", steps=step)


@job
def work() -> None:
    """Rank 0 takes 6 s, the group's limit is 3 s."""
    init(3)

    def index() -> str:
        time.sleep(6)
        return "index-17"

    if GUARDED:
        found = guard.rank_zero_only(index)()
    else:
        found = index() if RANK == 0 else ""
        dist.barrier()
    say("end", found=found, sum=reduce())


@job
def first() -> None:
    """Rank 0 makes the cache in 6 s, the others read it; the group's limit is 3 s."""
    init(3)
    cache = Path(sys.argv[3])

    def load() -> str:
        if not cache.exists():
            time.sleep(6)
            with cache.open("a") as file:
                file.write(f"made by {RANK}\n")
        return cache.read_text()

    if GUARDED:
        with guard.rank_zero_first() as turn:
            turn.progress("half")
            got = load()
    else:
        if RANK != 0:
            dist.barrier()
        got = load()
        if RANK == 0:
            dist.barrier()
    say("end", got=got, sum=reduce())


def bad_batch() -> None:
    raise ValueError("bad batch 17")


@job
def error() -> None:
    """Rank 2 raises; a thread of its keeps its process, and so its connections. Rank 1 is in no collective at all."""

    def train() -> None:
        pair = dist.new_group([0, 3])
        reduce()
        say("trains")
        if RANK == 2:
            threading.Thread(target=time.sleep, args=(300,)).start()
            bad_batch()
        if RANK == 1:
            time.sleep(300)
        if RANK == 3:
            reduce()
        reduce(pair)

    if GUARDED:
        with guard.process_group("gloo"):
            train()
    else:
        init()
        train()


@job
def deaf() -> None:
    """Rank 1 raises while rank 0 is where no interrupt reaches it."""
    with guard.process_group("gloo", grace=2):
        reduce()
        if RANK == 1:
            bad_batch()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        time.sleep(300)


@job
def alike() -> None:
    """All ranks of a meeting raise the same: none of them is said to be the first. Nor is who only heard of a failure."""
    with guard.process_group("gloo"):
        if sys.argv[3] == "differ":
            guard.same_everywhere(RANK == 1)
        guard.rank_zero_only(bad_batch)()


@job
def begin() -> None:
    """Rank 1 fails in init_process_group, where the others wait for it."""
    with guard.process_group("nccl" if RANK == 1 else "gloo", grace=2):
        reduce()


@job
def late() -> None:
    """One operation of 6 s where the group's limit is 3 s; the next such one ends at the limit again."""
    init(3)

    def slow() -> None:
        if RANK == 0:
            time.sleep(6)
        reduce()

    if GUARDED:
        with guard.step_timeout(None, 60):
            slow()
        say("passed")
    slow()


@job
def uneven() -> None:
    init()
    batches = [5, 5, 6][RANK]
    if GUARDED:
        raised(lambda: guard.check_shards(batches))
        batches = guard.check_shards(range(batches), uneven="ignore").least or 0
    for _ in range(batches):
        reduce()
    say("epoch")
    dist.barrier()
    say("end", batches=batches)


@job
def config() -> None:
    init()
    width = 8 if RANK == 1 else 4
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 2))
    if GUARDED:
        raised(lambda: guard.same_everywhere({"width": width, "lr": 0.1}, "config"))
        raised(lambda: guard.same_everywhere(model))
        raised(lambda: guard.same_everywhere({"lr": 0.1, "names": {"b", "a"}}))
        return
    say("begins")
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
    say("end")


# --- how guards fail


@job
def dead() -> None:
    """Rank sys.argv[3] has ended before the guard; the guards met before, or not yet."""
    init()
    victim, met = int(sys.argv[3]), sys.argv[4] == "met"
    if met:
        guard.agree(False)
    if victim == RANK:
        os._exit(0)
    time.sleep(1)
    raised(lambda: guard.agree(True, timeout=6))
    os._exit(0)


@job
def behind() -> None:
    """Rank 2 comes 8 s too late, to a guard with 4 s."""
    init()
    guard.agree(False)
    if RANK == 2:
        time.sleep(8)
    raised(lambda: guard.agree(True, timeout=4))
    raised(lambda: guard.agree(True, timeout=4))
    time.sleep(6 if RANK == 0 else 0)  # it keeps the store


@job
def mixed() -> None:
    init()
    raised(lambda: guard.check_shards(3) if RANK == 1 else guard.agree(True, name="stop"))
    raised(lambda: guard.agree(True, name="stop" if RANK else "save"))
    raised(lambda: guard.agree(True) if RANK == 1 else guard.rank_zero_only(str)())
    raised(lambda: guard.agree(RANK == 1))


@job
def groups() -> None:
    init()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    say("any", value=[guard.agree(RANK == 3, group=pair) for pair in pairs])
    say("all", value=guard.agree(RANK < 2, "all", group=pairs[RANK // 2]))
    say("one", value=guard.agree(RANK == 2, group=dist.new_group([RANK], use_local_synchronization=True)))
    with guard.rank_zero_first(group=pairs[RANK // 2]) as turn:
        say("turn", first=turn.first)
    say("world", value=guard.agree(RANK == 2))


@job
def other() -> None:
    """The training's backend can do nothing with what a guard sends, as NCCL without a GPU."""

    def make(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return dist.ProcessGroup(rank, size)

    dist.Backend.register_backend("useless", make, devices=["cuda"])
    dist.init_process_group("useless")
    say("any", value=guard.agree(RANK == 1))
    with guard.rank_zero_first():
        pass
    say("got", value=guard.rank_zero_only(lambda: "x" * 1000)())
    guard.same_everywhere(1)
    os._exit(0)


@job
def within() -> None:
    """Guards within guards."""
    init()
    with guard.rank_zero_first():
        with guard.rank_zero_first() as inner:
            say("inner", first=inner.first)
    twice = guard.rank_zero_only(lambda: guard.rank_zero_only(lambda: 5)())
    say("only", value=twice())

    def lonely() -> None:
        with guard.rank_zero_first():
            guard.agree(True)

    raised(lonely)


@job
def broke() -> None:
    """Rank 0 fails in its work; then, in other work, rank 1 does in its turn."""
    init()

    @guard.rank_zero_only
    def build() -> None:
        bad_batch()

    for act in (build, turn_fails):
        try:
            raised(act)
        except ValueError as error:
            say("own", text=str(error))
    raised(lambda: guard.rank_zero_only(threading.Lock)())
    say("after", value=guard.agree(True))


def turn_fails() -> None:
    with guard.rank_zero_first():
        if RANK == 1:
            bad_batch()


@job
def ends() -> None:
    """Rank 0 ends, or is stopped, in its work."""
    init()
    guard.agree(False)

    def build() -> None:
        say("works", pid=os.getpid())
        time.sleep(4)
        os.kill(os.getpid(), signal.SIGSTOP if sys.argv[3] == "stopped" else signal.SIGKILL)
        time.sleep(300)

    raised(lambda: guard.rank_zero_only(silence=5)(build)())
    os._exit(0)


@job
def again() -> None:
    """Groups made, destroyed, made anew: each time with guards."""
    for round in range(3):
        with guard.process_group("gloo"):
            say("any", value=guard.agree(round == RANK))
            with guard.process_group():
                guard.same_everywhere(round)
        say("none", value=dist.is_initialized())


@job
def child() -> None:
    """A DataLoader's worker is no rank."""
    init()
    guard.agree(True)

    class Data(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> bool:
            return guard.agree(index == 1)

    loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork", batch_size=None)
    say("worker", value=list(loader))
    say("any", value=guard.agree(RANK == 0))


@job
def quiet() -> None:
    """Long waits are told, by one rank."""
    init()
    guard.agree(False)
    if RANK == 1:
        time.sleep(8)
    say("any", value=guard.agree(RANK == 1))
    turn = guard.rank_zero_first()
    with turn:
        turn.progress("42 %")
        if RANK == 0:
            time.sleep(9)


if __name__ == "__main__":
    if sys.argv[1] == "quiet":
        from whichrank.guard import circle

        circle.TELL = 4.0
    JOBS[sys.argv[1]]()
    if dist.is_initialized():  # else torch 2.13 may abort as the interpreter exits, right after a collective
        dist.destroy_process_group()
