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


DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "tie_word_embeddings": False,
}  # fmt: skip


def test_latent_attention_and_shared_experts() -> None:
    found = from_config(DEEPSEEK, "deepseek-v3")
    assert found.parameters / 1e9 == pytest.approx(671, rel=0.005)
    assert found.active_parameters / 1e9 == pytest.approx(37, rel=0.03)
    assert found.kv_bytes(2) == 61 * 576 * 2  # the latent vector and the rotary part, not 128 heads


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        ({"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
          "num_hidden_layers": 26, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000}, 2.61),
        ({"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 1408,
          "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
          "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 151936,
          "tie_word_embeddings": False}, 14.3),
        ({"model_type": "chatglm", "num_layers": 40, "hidden_size": 4096, "num_attention_heads": 32, "kv_channels": 128,
          "multi_query_group_num": 2, "ffn_hidden_size": 13696, "padded_vocab_size": 151552,
          "tie_word_embeddings": False}, 9.4),
        ({"model_type": "llama4", "text_config": {"hidden_size": 5120, "intermediate_size": 8192, "head_dim": 128,
          "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8,
          "num_local_experts": 16, "vocab_size": 202048, "tie_word_embeddings": False}}, 107.8),
    ],
)  # fmt: skip
def test_configs_have_the_published_size(config: dict[str, object], billions: float) -> None:
    assert from_config(config, "x").parameters / 1e9 == pytest.approx(billions, rel=0.012)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_what_is_missing_is_named(key: str) -> None:
    with pytest.raises(UsageProblem, match=key):
        from_config({k: v for k, v in LLAMA.items() if k != key}, "x")


def test_unknown_names_are_guessed() -> None:
    with pytest.raises(UsageProblem, match=r"did you mean llama-3\.1-8b"):
        preset_or_file("llama3.1-8b", figures().book())


@given(
    st.sampled_from([LLAMA, DEEPSEEK]),
    st.dictionaries(
        st.sampled_from(sorted({**LLAMA, **DEEPSEEK})),
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.floats(), st.booleans()),
    ),
)
def test_any_config_is_read_or_refused(config: dict[str, object], changes: dict[str, object]) -> None:
    try:
        found = from_config({**config, **changes}, "any")
    except UsageProblem:
        return
    assert found.parameters > 0
