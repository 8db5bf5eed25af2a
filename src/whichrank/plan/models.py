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
    """A decoder. Sizes count elements; `ffn` is one expert's where there are experts.

    Every token goes through `shared_ffn` too (shared experts). The first `dense_layers` have a block of `dense_ffn`
    instead of experts. `latent` columns are what a token's keys and values are kept as (multi-head latent attention).
    """

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
    shared_ffn: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    latent: int = 0
    attention: int = 0  # parameters of a layer's attention, where they are not those of plain projections

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
        return self.attention or self.hidden * (2 * self.query_width + 2 * self.kv_width)

    @property
    def expert_parameters(self) -> int:
        """Of one expert (the feed-forward block, where there is one only)."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def shared_parameters(self) -> int:
        """Of the feed-forward block that every token goes through, on the average layer, beside the chosen experts."""
        matrices = 3 if self.gated else 2
        sparse = self.layers - self.dense_layers
        return matrices * self.hidden * (sparse * self.shared_ffn + self.dense_layers * self.dense_ffn) // self.layers

    @property
    def sparse_share(self) -> float:
        """Share of the layers that have experts; 1 where there are none: every layer has its block."""
        return 1 - self.dense_layers / self.layers

    @property
    def layer_parameters(self) -> int:
        """Of the average layer."""
        router = self.hidden * self.experts if self.experts > 1 else 0
        experts = round(self.sparse_share * (self.experts * self.expert_parameters + router))
        return self.attention_parameters + experts + self.shared_parameters + 2 * self.hidden

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
        chosen = round(self.sparse_share * self.experts_active * self.expert_parameters)
        return self.layers * (self.attention_parameters + chosen + self.shared_parameters) + self.vocab * self.hidden

    def kv_bytes(self, bytes_each: float) -> float:
        """Of keys and values that one token keeps, in all layers."""
        return self.layers * (self.latent or 2 * self.kv_width) * bytes_each


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
    "dense": ("first_k_dense_replace",),
    "shared": ("n_shared_experts",),
    "shared_ffn": ("shared_expert_intermediate_size",),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_size": ("head_dim", "kv_channels"),
    "ffn": ("moe_intermediate_size", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_active": ("num_experts_per_tok", "num_experts_per_token", "moe_top_k"),
}
_PLAIN = ("gpt2", "gpt_neox", "gptj", "gpt_bigcode", "opt", "bloom", "mpt", "falcon", "phi", "codegen", "starcoder2", "bert",
          "roberta")  # fmt: skip
_TIED = ("gemma", "gemma2", "gemma3", "gemma3_text", "cohere", "cohere2")  # where the config does not say


def from_config(config: dict[str, Any], name: str) -> Model:
    """A Hugging Face config. Only shapes are read; multimodal ones by their `text_config`.

    Raises:
        UsageProblem: a size is missing or is no positive whole number.
    """
    inner = config.get("text_config")
    if isinstance(inner, dict):
        config = {**{key: config[key] for key in ("tie_word_embeddings", "model_type") if key in config}, **inner}
    kind = str(config.get("model_type", ""))
    sizes = {size: _size(config, size) for size in _NAMES}
    hidden = _needed(sizes, "hidden", name)
    heads = _needed(sizes, "heads", name)
    gated = kind not in _PLAIN
    head_size = sizes["head_size"] or hidden // heads
    dense, dense_ffn = _dense_layers(config, sizes)
    latent, attention = _latent_attention(config, hidden, heads)
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
        tied=bool(config.get("tie_word_embeddings", not gated or kind in _TIED)),
        parallel=kind in ("gpt_neox", "gptj", "phi"),
        experts=sizes["experts"] or 1,
        experts_active=sizes["experts_active"] or 1,
        shared_ffn=_shared_ffn(kind, sizes),
        dense_layers=dense,
        dense_ffn=dense_ffn,
        latent=latent,
        attention=attention,
    )


def _shared_ffn(kind: str, sizes: dict[str, int | None]) -> int:
    """Width of what every token goes through beside its experts; Llama 4 has one expert of that kind, unsaid."""
    if kind in ("llama4", "llama4_text"):
        return sizes["ffn"] or 0
    return sizes["shared_ffn"] or (sizes["shared"] or 0) * (sizes["ffn"] or 0)


def _dense_layers(config: dict[str, Any], sizes: dict[str, int | None]) -> tuple[int, int]:
    """How many of the first layers have no experts, and the width of their block (DeepSeek)."""
    wide = config.get("intermediate_size")
    dense = sizes["dense"] or 0
    if not dense or not sizes["experts"] or not isinstance(wide, int) or not 0 < wide < 10**9:
        return 0, 0
    return min(dense, sizes["layers"] or 0), wide


def _latent_attention(config: dict[str, Any], hidden: int, heads: int) -> tuple[int, int]:
    """Columns that a token keeps in a layer, and the parameters of a layer's attention (DeepSeek V2 and V3).

    Keys and values are kept as one latent vector and the key's rotary part: 576 columns instead of 32,768.
    """
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    found = [config.get(name) for name in names]
    if not all(isinstance(each, int) and 0 < each < 10**9 for each in found):
        return 0, 0
    rank, plain, rotary, value = (int(each) for each in found if each is not None)
    query_rank = config.get("q_lora_rank")
    wide = heads * (plain + rotary)
    queries = query_rank * (hidden + wide) if isinstance(query_rank, int) and query_rank > 0 else hidden * wide
    keys = hidden * (rank + rotary) + rank * heads * (plain + value)
    return rank + rotary, queries + keys + heads * value * hidden


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
