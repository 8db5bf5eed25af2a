"""A transformer's shape, from a preset or a Hugging Face config.json, and what follows from it alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.errors import UsageProblem
from whichrank.plan.catalog import Book


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder. Sizes count elements; `ffn` is one expert's where there are experts."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    gated: bool = True  # three feed-forward matrices (SwiGLU) instead of two
    tied: bool = False  # the embedding is the output layer too
    parallel: bool = False  # attention and feed-forward side by side (GPT-NeoX)
    experts: int = 1
    experts_active: int = 1

    @property
    def kv_width(self) -> int:
        """Columns of keys, or of values."""
        return self.kv_heads * self.head_size

    @property
    def query_width(self) -> int:
        return self.heads * self.head_size

    @property
    def attention_parameters(self) -> int:
        """Of one layer: query, key, value and output projection."""
        return self.hidden * (2 * self.query_width + 2 * self.kv_width)

    @property
    def expert_parameters(self) -> int:
        """Of one expert (the feed-forward block, where there is one only)."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def layer_parameters(self) -> int:
        router = self.hidden * self.experts if self.experts > 1 else 0
        return self.attention_parameters + self.experts * self.expert_parameters + router + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Embedding and output layer."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.embedding_parameters + self.hidden

    @property
    def active_parameters(self) -> int:
        """Those that one token is multiplied with: no embedding look-up, the chosen experts only."""
        layer = self.attention_parameters + self.experts_active * self.expert_parameters
        return self.layers * layer + self.vocab * self.hidden

    def kv_bytes(self, bytes_each: float) -> float:
        """Of keys and values that one token keeps, in all layers."""
        return 2 * self.layers * self.kv_width * bytes_each


def preset_or_file(name: str, book: Book) -> Model:
    """A model by the name of its preset, or from a config.json (or a folder that holds one).

    Raises:
        UsageProblem: neither, or a config that lacks a size.
    """
    presets = book.catalog.names("models")
    if name.lower() in presets:
        return _preset(name.lower(), str(book.figure(f"models.{name.lower()}.shape").value))
    path = Path(name)
    try:
        path = path / "config.json" if path.is_dir() else path
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), presets, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageProblem(
            f"no model {name!r}: {hint}Give a preset ({', '.join(presets)}) or the path of a config.json"
        ) from None
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageProblem(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise UsageProblem(f"{path} is no model's config.json")
    return from_config(config, path.parent.name or path.stem)


def _preset(name: str, shape: str) -> Model:
    words = shape.split()
    sizes = [int(word) for word in words[:7]]
    flags = words[7:]
    options = dict(flag.split("=") for flag in flags if "=" in flag)
    layers, hidden, heads, kv_heads, head_size, ffn, vocab = sizes
    return Model(
        name,
        layers,
        hidden,
        heads,
        kv_heads,
        head_size,
        ffn,
        vocab,
        gated="gated" in flags,
        tied="tied" in flags,
        parallel="parallel" in flags,
        experts=int(options.get("experts", 1)),
        experts_active=int(options.get("active", 1)),
    )


# what each size is called, by family of models (transformers 4.57)
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_size": ("head_dim",),
    "ffn": ("moe_intermediate_size", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_active": ("num_experts_per_tok", "num_experts_per_token", "moe_top_k"),
}
_PLAIN = ("gpt2", "gpt_neox", "gptj", "gpt_bigcode", "opt", "bloom", "mpt", "falcon", "phi", "codegen", "starcoder2")


def from_config(config: dict[str, Any], name: str) -> Model:
    """A Hugging Face config. Only shapes are read; multimodal ones by their `text_config`.

    Raises:
        UsageProblem: a size is missing or is no positive whole number.
    """
    inner = config.get("text_config")
    config = inner if isinstance(inner, dict) else config
    kind = str(config.get("model_type", ""))
    sizes = {size: _size(config, size) for size in _NAMES}
    hidden = _needed(sizes, "hidden", name)
    heads = _needed(sizes, "heads", name)
    gated = kind not in _PLAIN
    head_size = sizes["head_size"] or hidden // heads
    one_kv_head = kind in ("falcon", "gpt_bigcode") and config.get("multi_query", True)
    return Model(
        name=str(config.get("_name_or_path") or name).split("/")[-1] or "model",
        layers=_needed(sizes, "layers", name),
        hidden=hidden,
        heads=heads,
        kv_heads=sizes["kv_heads"] or (1 if one_kv_head else heads),
        head_size=head_size,
        ffn=sizes["ffn"] or 4 * hidden,
        vocab=_needed(sizes, "vocab", name),
        gated=gated,
        tied=bool(config.get("tie_word_embeddings", not gated)),
        parallel=kind in ("gpt_neox", "gptj", "phi"),
        experts=sizes["experts"] or 1,
        experts_active=sizes["experts_active"] or 1,
    )


def _size(config: dict[str, Any], size: str) -> int | None:
    for name in _NAMES[size]:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 10**9:
            raise UsageProblem(f"config.json: {name} is {value!r}, which is no size")
        return value
    return None


def _needed(sizes: dict[str, int | None], size: str, name: str) -> int:
    value = sizes[size]
    if value is None:
        raise UsageProblem(f"{name}: the config has none of {', '.join(_NAMES[size])}")
    return value
