"""What the recorder takes a training to be in: on a package that looks like torch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import only, program, torch_like

from whichrank.evidence.ring import Ring

START = """
import os, sys, time, pickle, inspect, threading
import torch, torch.distributed as dist
from torch.utils.data.dataloader import DataLoader
from torch.optim.optimizer import Optimizer
from torch.nn.modules.module import Module
record = sys.modules["_whichrank_record"]
recorder = record.hooks.active
NAMES = sys.modules["_whichrank_record.ring"].PHASES
def now():
    said = recorder.texts.decode().split("\\0")[0]
    seen.append((NAMES[recorder.code] + (":" + said if said else ""), NAMES[recorder.outer] if recorder.outer else ""))
seen = []
"""


@pytest.fixture
def run() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="whichrank-test-") as folder:
        yield Path(folder) / "run"


def seen(run: Path, tmp_path: Path, code: str) -> list[str]:
    """What `now()` saw, "phase:operation/outer phase"."""
    end = '\nprint(*(name + ("/" + outer if outer else "") for name, outer in seen))\n'
    done = program(run, START + code + end, torch_like(tmp_path / "like"))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_each_call_is_its_phase_and_the_one_before_comes_back(run: Path, tmp_path: Path) -> None:
    code = """
now()
dist.init_process_group(work=now)
now()
dist.all_reduce(now); now()
batches = iter(DataLoader([now, 1, 2]))
next(batches); now()
torch.save(None, lambda obj: now()); now()
torch.load(now)
with record.phase("tokenise"):
    now()
    dist.all_reduce(now)
    now()
now()
"""
    assert seen(run, tmp_path, code) == [
        "unknown", "init:init_process_group", "unknown", "collective:all_reduce", "unknown", "data:batch", "compute",
        "checkpoint:torch.save", "compute", "checkpoint:torch.load", "own:tokenise", "collective:all_reduce/own",
        "own:tokenise", "compute",
    ]  # fmt: skip


def test_a_part_of_a_phase_is_not_one_of_its_own(run: Path, tmp_path: Path) -> None:
    code = """
dist.init_process_group(work=lambda: dist.all_reduce(now, group=dist.distributed_c10d.Group("1", "x")))
dist.all_gather_object([], now)
next(iter(DataLoader([lambda: torch.load(now)])))
torch.save(None, lambda obj: dist.all_reduce(now))
"""
    expected = [
        "init:init_process_group",
        "collective:all_gather_object",
        "data:batch",
        "collective:all_reduce/checkpoint",
    ]
    assert seen(run, tmp_path, code) == expected


def test_errors_pass_through_and_leave_no_phase_behind(run: Path, tmp_path: Path) -> None:
    code = """
dist.init_process_group()
def fail(): raise KeyError("theirs")
for call in (lambda: dist.all_reduce(fail), lambda: torch.load(fail), lambda: next(iter(DataLoader([fail])))):
    try:
        call()
    except KeyError:
        now()
try:
    next(iter(DataLoader([])))
except StopIteration:
    now()
try:
    Optimizer().step(fails=True)
except RuntimeError:
    now()
next(iter(DataLoader([now])))
now()
Optimizer().step(); now()
"""
    assert seen(run, tmp_path, code) == [
        "unknown", "unknown", "unknown", "unknown", "optimizer", "data:batch", "compute", "compute",
    ]  # fmt: skip


def test_evaluation_lasts_from_eval_to_train_or_the_next_step(run: Path, tmp_path: Path) -> None:
    code = """
model = Module()
model.eval(); now()
next(iter(DataLoader([1]))); now()
model.eval(); now()
dist.init_process_group(); dist.all_reduce(now)
model.train(); now()
model.eval(); now()
Optimizer().step(); now()
"""
    assert seen(run, tmp_path, code) == [
        "unknown", "compute", "evaluation", "collective:all_reduce/evaluation", "compute", "evaluation", "compute",
    ]  # fmt: skip


def test_other_threads_change_nothing(run: Path, tmp_path: Path) -> None:
    code = """
dist.init_process_group()
with record.phase("main"):
    for work in (lambda: dist.all_reduce(now), lambda: torch.save(None, lambda obj: now()), lambda: Optimizer().step()):
        thread = threading.Thread(target=work); thread.start(); thread.join()
    def mine():
        with record.phase("theirs"):
            now()
    thread = threading.Thread(target=mine); thread.start(); thread.join()
"""
    assert seen(run, tmp_path, code) == ["own:main"] * 3


def test_what_is_wrapped_looks_as_before(run: Path, tmp_path: Path) -> None:
    code = """
for function in (dist.all_reduce, dist.init_process_group, torch.save, torch.load, dist.all_gather_object):
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.__wrapped__.__doc__ == function.__doc__ and function.__module__ == function.__wrapped__.__module__
    assert inspect.signature(function) == inspect.signature(function.__wrapped__)
    assert "def " + function.__name__ in inspect.getsource(function)
assert dist.all_reduce is dist.distributed_c10d.all_reduce and torch.save is torch.serialization.save
assert str(inspect.signature(Module.train)) == "(self, mode=True)" and Module().eval().training is False
assert dist.Work().wait() is True and type(dist.distributed_c10d.__loader__).__name__ == "SourceFileLoader"
assert "exec_module" not in vars(dist.distributed_c10d.__loader__)
"""
    assert seen(run, tmp_path, code) == []


def test_what_a_collective_is_waiting_in_is_told(run: Path, tmp_path: Path) -> None:
    """Killed within: the file has the operation, the group and the number that the call will have."""
    ring = ended(run, tmp_path, "dist.all_reduce(1); dist.all_reduce(1); dist.all_reduce(lambda: os._exit(0))")
    assert ring.state is not None
    state = ring.state
    assert (state.phase, state.op, state.group, state.group_desc, state.seq) == (
        "collective", "all_reduce", "0", "default_pg", 3,
    )  # fmt: skip
    assert state.since_ns > 0


def test_a_group_of_its_own_by_place_or_name(run: Path, tmp_path: Path) -> None:
    code = """
group = dist.distributed_c10d.Group("7", "tensor")
dist.all_reduce(1, group=group); dist.all_reduce(1, None, group)
dist.all_reduce(lambda: os._exit(0), None, group)
"""
    state = ended(run, tmp_path, code).state
    assert state is not None
    assert (state.group, state.group_desc, state.seq) == ("7", "tensor", 3)


def test_point_to_point_has_no_number_of_the_groups(run: Path, tmp_path: Path) -> None:
    state = ended(run, tmp_path, "dist.send(lambda: os._exit(0), 1)").state
    assert state is not None
    assert (state.op, state.group_desc, state.seq) == ("send", "default_pg", None)


def ended(run: Path, tmp_path: Path, code: str) -> Ring:
    """The file of a program that ends within a call; its sampler is made to carry it to the disk first."""
    start = START + "exit = os._exit\nos._exit = lambda code: (recorder.ring.flush(), exit(code))\n"
    program(run, start + "dist.init_process_group()\n" + code, torch_like(tmp_path / "like"))
    return only(run)


def test_steps_and_what_they_were_spent_on(run: Path, tmp_path: Path) -> None:
    code = """
optimizer = Optimizer()
for batch in DataLoader([lambda: time.sleep(0.02)] * 5):
    time.sleep(0.01)
    optimizer.step()
"""
    ring = ended(run, tmp_path, code)
    assert ring.state is not None
    assert (ring.state.step, ring.state.batches) == (5, 5)
    assert [step.number for step in ring.steps] == [1, 2, 3, 4, 5]
    for step in ring.steps[1:]:
        assert 0.02 <= step.seconds["data"] < 1
        assert 0.01 <= step.seconds["compute"] < 1
        assert step.duration == pytest.approx(sum(step.seconds.values()))


@pytest.mark.parametrize(
    ("code", "steps"),
    [
        ("for _ in range(4): a.step(); b.step()", 4),
        ("for _ in range(4): a.step(); [b.step() for _ in range(3)]", 12),
        ("for _ in DataLoader([1] * 6): pass", 5),
        ("for _ in DataLoader([1] * 6): a.step()", 6),
    ],
)
def test_several_optimizers_or_none(run: Path, tmp_path: Path, code: str, steps: int) -> None:
    """Two in turn are one step; of two, the one that steps more often counts; without any, batches do."""
    ring = ended(run, tmp_path, "a, b = Optimizer(), Optimizer()\n" + code)
    assert ring.state is not None
    assert ring.state.step == steps


def test_stacks_of_the_main_thread_without_our_own_frames(run: Path, tmp_path: Path) -> None:
    code = """
def stand_still():
    time.sleep(2.5)
dist.all_reduce(stand_still)
"""
    ring = ended(run, tmp_path, code)
    last = ring.samples[-1]
    assert last.times >= 2
    assert last.phase == "collective"
    assert last.last_ns - last.first_ns >= 0.9e9
    assert [frame.split(" ")[0] for frame in last.frames] == ["stand_still", "all_reduce", "<module>"]
    assert 0 <= last.cpu_ns < 1e9


def test_flight_recorders_records_come_when_they_are_asked_for(run: Path, tmp_path: Path) -> None:
    code = """
def asked(words, last):
    path = os.path.join(os.environ["WHICHRANK_RUN"], "ask")
    with open(path + ".part", "w") as file:
        file.write(words)
    os.rename(path + ".part", path)
    while recorder.answered < last:
        time.sleep(0.05)
    dump = os.path.join(os.environ["WHICHRANK_RUN"], "dumps", "nccl_trace_rank_5")
    print(open(dump).read())
    os.remove(dump)
dist.init_process_group()
asked("1", 1)
asked("2 stacks", 2)
print(os.listdir(os.path.join(os.environ["WHICHRANK_RUN"], "dumps")))
time.sleep(1.1)
"""
    done = program(run, START + code, torch_like(tmp_path / "like"))
    assert done.stdout == "profiling_name\nprofiling_name with stacks\n[]\n", done.stderr
    ring = only(run)
    assert ring.beat is not None
    assert ring.beat.answered == 2


def test_a_hook_that_fits_no_more_harms_nothing(run: Path, tmp_path: Path) -> None:
    """A later torch without what the hooks look for."""
    like = torch_like(tmp_path / "like") / "torch"
    for name in ("optim/optimizer.py", "serialization.py", "utils/data/dataloader.py", "nn/modules/module.py"):
        (like / name).write_text("load = save = DataLoader = Optimizer = Module = 1\n", encoding="utf-8")
    (like / "distributed" / "distributed_c10d.py").write_text(
        "def all_reduce(*tensors): return tensors\n", encoding="utf-8"
    )
    done = program(run, START + "print(dist.all_reduce(1, 2))", like.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(1, 2)\n", "")


def test_a_change_of_phase_takes_microseconds(run: Path, tmp_path: Path) -> None:
    code = """
begin = time.thread_time()
for _ in range(20_000):
    with record.phase("x"):
        pass
print(time.thread_time() - begin < 2)
record.hooks.active = None
begin = time.thread_time()
for _ in range(100_000):
    with record.phase("x"):
        pass
print(time.thread_time() - begin < 0.3)
"""
    done = program(run, START + code, torch_like(tmp_path / "like"))
    assert done.stdout.split() == ["True", "True"], done.stderr
