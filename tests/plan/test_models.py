"""Shapes: presets that have the published number of parameters, and config.json files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asking import figures
from hypothesis import given
from hypothesis import strategies as st

from whichrank.errors import UsageProblem
from whichrank.plan.models import from_config, preset_or_file

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-2-7b", 6.738), ("llama-2-70b", 68.98), ("llama-3.1-8b", 8.03), ("llama-3.1-70b", 70.55),
        ("llama-3.1-405b", 405.9), ("llama-3.2-1b", 1.236), ("mistral-7b", 7.242), ("qwen2.5-72b", 72.7),
        ("mixtral-8x7b", 46.7), ("qwen3-30b-a3b", 30.5), ("qwen3-235b-a22b", 235.1), ("gpt3-175b", 175.2),
        ("mpt-7b", 6.65), ("stablelm-3b-alpha", 3.64), ("phi-1.5", 1.42),
    ],
)  # fmt: skip
def test_presets_have_the_published_size(name: str, billions: float) -> None:
    assert preset_or_file(name, figures().book()).parameters / 1e9 == pytest.approx(billions, rel=0.012)


def test_active_parameters_of_experts() -> None:
    found = preset_or_file("qwen3-30b-a3b", figures().book())
    assert found.active_parameters / 1e9 == pytest.approx(3.3, rel=0.1)


def test_config_of_a_preset_is_the_preset(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    book = figures().book()
    for path in (tmp_path, tmp_path / "config.json"):
        assert preset_or_file(str(path), book).parameters == preset_or_file("llama-3.1-8b", book).parameters


def test_other_families() -> None:
    gpt2 = from_config({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}, "gpt2")
    assert not gpt2.gated and gpt2.tied
    assert gpt2.parameters / 1e6 == pytest.approx(124, rel=0.02)
    nested = from_config({"text_config": LLAMA, "vision_config": {}}, "seeing")
    assert nested.layers == 32
    mixture = from_config({**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2}, "mix")
    assert (mixture.experts, mixture.experts_active) == (8, 2)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_what_is_missing_is_named(key: str) -> None:
    with pytest.raises(UsageProblem, match=key):
        from_config({k: v for k, v in LLAMA.items() if k != key}, "x")


def test_unknown_names_are_guessed() -> None:
    with pytest.raises(UsageProblem, match=r"did you mean llama-3\.1-8b"):
        preset_or_file("llama3.1-8b", figures().book())


@given(
    st.dictionaries(
        st.sampled_from(sorted(LLAMA)),
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.floats(), st.booleans()),
    )
)
def test_any_config_is_read_or_refused(changes: dict[str, object]) -> None:
    try:
        found = from_config({**LLAMA, **changes}, "any")
    except UsageProblem:
        return
    assert found.parameters > 0
