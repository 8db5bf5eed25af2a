"""Guards where there is nobody else, and what they make of objects and loaders. Needs no torch."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank import guard
from whichrank.guard import errors
from whichrank.guard import flat as flatten
from whichrank.guard.errors import named
from whichrank.guard.flags import agree_all
from whichrank.guard.flat import flat
from whichrank.guard.same import _odd_blocks, _tell
from whichrank.guard.shards import _uneven, describe

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_alone_nothing_changes() -> None:
    assert guard.agree(1) is True and guard.agree("", "all") is False
    assert agree_all([True, False]) == [True, False]
    with guard.rank_zero_first() as turn:
        turn.progress("half")
        assert turn.first
    assert guard.rank_zero_only(lambda x: x + 1)(2) == 3
    assert guard.rank_zero_only(share=False)(str)(2) == "2"
    with guard.step_timeout(None, 5), guard.process_group("gloo"):
        guard.same_everywhere({"a": 1})
    assert guard.check_shards(range(7)).batches == (7,)


def test_alone_errors_pass_as_they_are() -> None:
    with pytest.raises(KeyError), guard.process_group(), guard.rank_zero_first():
        raise KeyError("own")


def test_before_init_process_group_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.warns(RuntimeWarning, match="WORLD_SIZE is 4, but torch.distributed is not initialised") as told:
        assert guard.agree(True, name="early") is True
    assert told[0].filename == __file__


def test_wrong_words() -> None:
    with pytest.raises(ValueError, match="'any' or 'all'"):
        guard.agree(True, "most")
    with pytest.raises(ValueError, match="'raise', 'warn' or 'ignore'"):
        guard.check_shards(1, uneven="no")
    with pytest.raises(ValueError, match="0 seconds"), guard.step_timeout(None, 0):
        pass


def test_importing_it_loads_neither_torch_nor_other_parts() -> None:
    code = (
        "import sys, whichrank.guard; print([m for m in sys.modules if m.startswith(('torch', 'numpy', 'whichrank'))])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    loaded = shown.strip("[]\n").replace("'", "").split(", ")
    assert {name for name in loaded if not name.startswith("whichrank.guard")} == {"whichrank"}


def test_it_imports_what_it_may() -> None:
    allowed = {*sys.stdlib_module_names, "torch", "transformers", "lightning", "pytorch_lightning", "accelerate"}
    for path in Path(guard.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            assert {name.split(".")[0] for name in names} <= allowed, path.name


def test_the_examples_in_docstrings() -> None:
    for module in (errors, flatten):
        assert doctest.testmod(module).failed == 0


# ---- what is compared


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    names: tuple[str, ...] = ("a", "b")
    inner: Any = None


class Odd:
    __slots__ = ()


@given(PLAIN)
def test_what_is_equal_is_flat_alike(obj: Any) -> None:
    copy = eval(repr(obj), {"nan": float("nan"), "inf": float("inf")})
    assert flat(obj) == flat(copy)


@given(PLAIN, PLAIN)
def test_what_differs_is_flat_differently(one: Any, other: Any) -> None:
    if repr(one) != repr(other) and one != other:
        assert flat({"a": one}) != flat({"a": other}) or _alike(one, other)


def _alike(one: Any, other: Any) -> bool:
    """Keys are compared as texts, and empty containers of a kind are alike."""
    return repr(one).replace("[]", "{}") == repr(other).replace("[]", "{}")


def test_objects_are_compared_by_what_they_hold() -> None:
    assert flat(Config(inner=Odd())) == flat(Config(inner=Odd()))
    assert flat(Config(inner={"x", "y"})) == flat(Config(inner={"y", "x"}))
    assert flat({"b": 1, "a": 2}) == flat({"a": 2, "b": 1})
    assert flat([1, 2]) != flat([2, 1])
    assert flat(SimpleNamespace(a=1)) != flat(SimpleNamespace(a=2))
    loop: list[Any] = []
    loop.append(loop)
    assert flat(loop) == [("", "list of 1"), ("[0]", "list")]
    assert len(flat("x" * 10_000)[0][1]) < 200


def test_the_rank_that_differs_is_told() -> None:
    held = [[("lr", "0.1"), ("depth", "4")]] * 3 + [[("lr", "0.1"), ("width", "5")]]
    said = [repr(lines).replace("(", "[").replace(")", "]").replace("'", '"').encode() for lines in held]
    with pytest.raises(guard.RanksDiffer) as told:
        _tell("here", (0, 1, 2, 5), said)
    assert told.value.ranks == (5,)
    assert "depth: 4 on ranks 0-2; (has none) on rank 5" in str(told.value) and "lr" not in str(told.value)
    assert _odd_blocks([b'["a", "b"]', b'["a", "c"]']) == b"[1]"


# ---- loaders


class Loader:
    """As torch's looks from outside."""

    def __init__(self, samples: int, size: int, drop_last: bool = False, workers: int = 2) -> None:
        self.sampler = range(samples)
        self.batch_size, self.drop_last, self.num_workers = size, drop_last, workers

    def __len__(self) -> int:
        samples = len(self.sampler)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


def test_a_loader_is_described() -> None:
    assert describe(Loader(21, 4)) == {"batches": 6, "tail": 1, "workers": 2, "size": 4, "how": "range"}
    assert describe(Loader(21, 4, drop_last=True))["tail"] == 4
    assert describe(Loader(20, 4))["tail"] == 4
    assert describe(iter([1, 2]))["batches"] is None
    assert describe(5)["batches"] == 5


@given(st.lists(st.integers(0, 50), min_size=2, max_size=12))
def test_uneven_lengths_name_the_few(counts: list[int]) -> None:
    held = [describe(count) for count in counts]
    text, odd = _uneven("here", tuple(range(len(counts))), held)
    assert bool(text) == (len(set(counts)) > 1)
    if text:
        usual = {count for rank, count in enumerate(counts) if rank not in odd}
        assert len(usual) == 1 and counts.count(usual.pop()) == max(map(counts.count, counts))
        assert f"After {min(counts)} batches" in text


@given(st.sets(st.integers(0, 60), min_size=1))
def test_named_ranks_read_back(ranks: set[int]) -> None:
    read: set[int] = set()
    for part in named(tuple(ranks)).partition(" ")[2].split(", "):
        low, _, high = part.partition("-")
        read |= set(range(int(low), int(high or low) + 1))
    assert read == ranks


def test_the_warnings_are_no_errors_by_default() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard.check_shards(iter([]))
