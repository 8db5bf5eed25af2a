"""The examples of docs/guards.md are run, and say what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import guarding
import pytest
from guarding import torchrun
from test_guard_trainers import PYTHON as TRAINERS

PAGE = Path(__file__).parents[2] / "docs" / "guards.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```\n+(?:```text\n(.*?)^```)?", PAGE.read_text(encoding="utf-8"), re.S | re.M)
WHOLE = [(code, shown) for code, shown in BLOCKS if shown]
LIBRARIES = {name: code for name in ("hf", "lightning", "accelerate") for code, _ in BLOCKS if f"guard.{name}" in code}
BEFORE = {
    "hf": """
import torch
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        return {"loss": self.inner(x).square().mean()}
model, data = Model(), [{"x": torch.randn(4)} for _ in range(40)]
""",
    "lightning": """
import torch
from lightning.pytorch import LightningModule, Trainer
class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def training_step(self, batch, index):
        return self.inner(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
module, loader = Module(), torch.utils.data.DataLoader([torch.randn(4) for _ in range(8)])
""",
    "accelerate": """
import torch
from accelerate import Accelerator
model, data = torch.nn.Linear(4, 4), torch.utils.data.DataLoader([torch.randn(4) for _ in range(8)])
""",
}


def test_the_page_has_an_example_of_each() -> None:
    assert len(WHOLE) == 6
    assert set(BEFORE) == set(LIBRARIES)


@pytest.mark.skipif(not guarding.PYTHON, reason="torch is not installed: the examples are real")
@pytest.mark.parametrize("block", WHOLE, ids=range(len(WHOLE)))
def test_an_example_says_what_the_page_says(
    block: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(block[0], encoding="utf-8")
    ended = torchrun(script, world=2)
    for line in block[1].splitlines():
        assert line.strip() in ended.out, ended.out
    assert ended.code == (1 if "raise ValueError" in block[0] else 0), ended.out


@pytest.mark.skipif(not TRAINERS, reason="transformers, lightning and accelerate are not all installed")
@pytest.mark.parametrize("name", sorted(BEFORE))
def test_an_example_with_a_library(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(BEFORE[name] + LIBRARIES[name] + "\nprint('the end', flush=True)\n", encoding="utf-8")
    ended = torchrun(script, world=2, python=TRAINERS)
    assert ended.code == 0, ended.out
    assert ended.out.count("the end") == 2
