"""Small programs under the recorder, as a launcher would start them; and a package that looks like torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from whichrank.evidence import ring as reader
from whichrank.evidence.ring import Ring

RECORD = Path(__file__).parents[2] / "src" / "whichrank" / "record"
INJECT = RECORD / "inject"
RANK = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "WHICHRANK_RUN", "WHICHRANK_RANK_PID", "PYTHONPATH", "TORCHELASTIC_RUN_ID")


def environment(run: Path, *path: Path, **more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in OURS}
    places = os.pathsep.join(str(place) for place in (INJECT, *path))
    return {**plain, "PYTHONPATH": places, "WHICHRANK_RUN": str(run), **more}


def program(
    run: Path,
    code: str,
    *path: Path,
    told: Mapping[str, str] = RANK,
    python: str = sys.executable,
    options: tuple[str, ...] = (),
    **how: object,
) -> subprocess.CompletedProcess[str]:
    """Run `code` as a file, as one runs a training."""
    script = run.parent / "train.py"
    script.write_text(code, encoding="utf-8")
    return subprocess.run(
        [python, *options, str(script)],
        env=environment(run, *path, **told),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **how,  # type: ignore[call-overload]
    )


def rings(run: Path) -> dict[str, Ring]:
    """What the files of a run hold, by name."""
    found = {path.name: reader.read(path) for path in sorted((run / "ring").glob("*.ring"))}
    return {name: ring for name, ring in found.items() if ring is not None}


def only(run: Path) -> Ring:
    (ring,) = rings(run).values()
    return ring


TORCH = {
    "__init__.py": "__version__ = '9.9'\nfrom torch.serialization import load, save\n",
    "serialization.py": "def save(obj, f, pickle_protocol=2):\n    'Saves.'\n    return f(obj)\n\ndef load(f):\n    return f()\n",
    "compiler/__init__.py": "def is_compiling():\n    return False\n",
    "optim/__init__.py": "",
    "optim/optimizer.py": """
before, after = [], []
register_optimizer_step_pre_hook = before.append
register_optimizer_step_post_hook = after.append
class Optimizer:
    def step(self, fails=False):
        [hook(self, (), {}) for hook in before]
        if fails:
            raise RuntimeError("step")
        [hook(self, (), {}) for hook in after]
""",
    "nn/__init__.py": "",
    "nn/modules/__init__.py": "",
    "nn/modules/module.py": """
class Module:
    def train(self, mode=True):
        self.training = mode
        return self
    def eval(self):
        return self.train(False)
""",
    "utils/__init__.py": "",
    "utils/data/__init__.py": "",
    "utils/data/dataloader.py": """
class _BaseDataLoaderIter:
    def __init__(self, batches):
        self.batches = iter(batches)
    def __next__(self):
        return next(self.batches)() if False else self.take()
    def take(self):
        found = next(self.batches)
        return found() if callable(found) else found
class DataLoader:
    def __init__(self, batches):
        self.batches = batches
    def __iter__(self):
        return _BaseDataLoaderIter(self.batches)
""",
    "_C/__init__.py": "",
    "_C/_distributed_c10d.py": """
def _dump_fr_trace(collectives=True, stacks=True, active=False):
    return b"profiling_name with stacks" if stacks else b"profiling_name"

def _dump_nccl_trace(collectives=True, stacks=True, active=False):
    return b"a longer pickle without a single entry"
""",
    "distributed/__init__.py": """
import torch._C._distributed_c10d
from torch.distributed.distributed_c10d import *
""",
    "distributed/distributed_c10d.py": """
class Group:
    def __init__(self, name, desc):
        self.group_name, self.group_desc, self.count = name, desc, 0
    def _get_sequence_number_for_group(self):
        return self.count
class GroupMember:
    WORLD = None
class Work:
    def wait(self, timeout=None):
        return True
class _World:
    pg_names, pg_group_ranks = {}, {}
_world = _World()
def init_process_group(backend=None, rank=-1, world_size=-1, work=None):
    'Initialises.'
    if work: work()
    GroupMember.WORLD = Group("0", "default_pg")
    _world.pg_names[GroupMember.WORLD] = "0"
    _world.pg_group_ranks[GroupMember.WORLD] = {5: 0, 6: 1, 7: 2}
    return None
def destroy_process_group(group=None):
    GroupMember.WORLD = None
def is_initialized(): return GroupMember.WORLD is not None
def get_rank(): return 5
def get_world_size(): return 8
def get_backend(): return "gloo"
def all_reduce(tensor, op=None, group=None, async_op=False):
    'Reduces.'
    (group or GroupMember.WORLD).count += 1
    return tensor() if callable(tensor) else tensor
def all_gather_object(object_list, obj, group=None):
    return all_reduce(obj, group=group)
def send(tensor, dst, group=None):
    return tensor()
""",
}


def torch_like(folder: Path) -> Path:
    """A folder for the path, with a package that has the functions that the recorder looks for."""
    for name, text in TORCH.items():
        place = folder / "torch" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return folder
