"""The callbacks in the real libraries, on CPU and gloo: transformers, Lightning, Accelerate.

WHICHRANK_TRAINERS_PYTHON names an interpreter that has them, where the one that runs the tests does not.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import guarding
import pytest
from guarding import Ended, torchrun

from whichrank.evidence import ring

LIBRARIES = ("torch", "transformers", "lightning", "accelerate")
PYTHON = os.environ.get("WHICHRANK_TRAINERS_PYTHON") or (
    sys.executable if all(importlib.util.find_spec(name) for name in LIBRARIES) else ""
)
pytestmark = pytest.mark.skipif(not PYTHON, reason="transformers, lightning and accelerate are not all installed")
HERE = Path(__file__).parent
HANGS = 8.0


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The recorder's directory."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="whichrank-test-") as folder:
        plain = guarding.environment
        monkeypatch.setattr(guarding, "environment", lambda: {**plain(), "WHICHRANK_RUN": folder})
        yield Path(folder)


def start(job: str, what: str, how: str, folder: Path, wait: float = 100, until: str = "") -> Ended:
    path = HERE / f"{job}_job.py"
    return torchrun(path, what, how, str(folder), world=2, python=PYTHON, wait=wait, until=until)


def own_phases(run: Path) -> int:
    """Ranks whose steps had phases of their own."""
    found = [ring.read(path) for path in (run / "ring").glob("*.ring")]
    return len([one for one in found if one and any(step.seconds.get("own") for step in one.steps)])


def steps(ended: Ended, rank: int, what: str = "step") -> int:
    return len(ended.all_said(what, rank))


def test_transformers_one_rank_stops(tmp_path: Path, run: Path) -> None:
    plain = start("hf", "stop", "plain", tmp_path, HANGS, '"step": 3')
    assert plain.code != 0 or {steps(plain, rank) for rank in (0, 1)} != {3}
    guarded = start("hf", "stop", "guarded", tmp_path)
    assert guarded.code == 0, guarded.out
    assert [guarded.said("end")[rank]["step"] for rank in (0, 1)] == [3, 3]


def test_transformers_one_rank_evaluates(tmp_path: Path, run: Path) -> None:
    guarded = start("hf", "evaluate", "guarded", tmp_path)
    assert guarded.code == 0, guarded.out
    for rank in (0, 1):
        assert [line["step"] for line in guarded.all_said("evaluated", rank)] == [3, 6, 8]  # 6: asked for, 8: the end
    assert own_phases(run) == 2


def test_transformers_one_rank_raises(tmp_path: Path) -> None:
    guarded = start("hf", "error", "guarded", tmp_path)
    assert guarded.code == 1 and guarded.seconds < 60
    assert "ValueError: bad batch 17" in guarded.out
    assert "rank      : 1 (local_rank: 1)" in guarded.out.partition("Root Cause")[2]


def test_lightning_one_rank_stops(tmp_path: Path) -> None:
    plain = start("lightning", "stop", "plain", tmp_path, HANGS, '"index": 3')
    assert plain.code != 0, plain.out
    guarded = start("lightning", "stop", "guarded", tmp_path)
    assert guarded.code == 0, guarded.out
    assert [guarded.said("end")[rank]["step"] for rank in (0, 1)] == [4, 4]


def test_lightning_one_rank_raises(tmp_path: Path, run: Path) -> None:
    guarded = start("lightning", "error", "guarded", tmp_path)
    assert guarded.code == 1 and guarded.seconds < 60
    assert "ValueError: bad batch 17" in guarded.out
    assert "rank      : 1 (local_rank: 1)" in guarded.out.partition("Root Cause")[2]
    assert "rank 0: rank 1 failed: this one ends its work, too" in guarded.out


def test_lightning_a_sound_training(tmp_path: Path, run: Path) -> None:
    sound = start("lightning", "none", "guarded", tmp_path)
    assert sound.code == 0, sound.out
    assert [sound.said("end")[rank]["step"] for rank in (0, 1)] == [20, 20]
    assert own_phases(run) == 2


def test_accelerate_main_process_first(tmp_path: Path, run: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = start("accelerate", "first", "plain", tmp_path / "plain")
    assert plain.code == 1 and not plain.said("end")
    (tmp_path / "guarded").mkdir()
    guarded = start("accelerate", "first", "guarded", tmp_path / "guarded")
    assert guarded.code == 0, guarded.out
    assert len(guarded.said("end")) == 2
    assert (tmp_path / "guarded" / "cache").read_text() == "0"


def test_accelerate_other_shapes(tmp_path: Path) -> None:
    guarded = start("accelerate", "model", "guarded", tmp_path)
    assert guarded.code == 1
    assert "same_everywhere('prepare') at accelerate_job.py:" in guarded.out
    assert "PeerFailed" not in guarded.out
