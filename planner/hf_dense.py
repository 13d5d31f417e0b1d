"""Readers of the Llama-like families: keys of a config.json to the fields of a Shape.

Defaults are those of transformers 5.24, ``src/transformers/models/<family>/configuration_*.py``;
which linears carry biases and which norms exist, of ``modeling_*.py`` beside it.
"""

from __future__ import annotations

from typing import Any

from planner.hf_keys import Keys

Fields = dict[str, Any]


def sizes(keys: Keys, positions: int, kv_heads: int | None = None) -> Fields:
    """The sizes that nearly every family spells alike. [-]

    ``positions`` and ``kv_heads`` are the class's defaults; without the latter, and where the
    key is null, every head has its own keys and values.
    """
    heads = keys.count("num_attention_heads")
    shared = heads if "num_key_value_heads" in keys.data else min(heads, kv_heads or heads)
    fields: Fields = {
        "layers": keys.count("num_hidden_layers"),
        "hidden": keys.count("hidden_size"),
        "heads": heads,
        "kv_heads": keys.count("num_key_value_heads", default=shared),
        "ffn": keys.count("intermediate_size"),
        "vocab": keys.count("vocab_size"),
        "max_seq_len": keys.count("max_position_embeddings", default=positions),
        "activation": keys.text("hidden_act", "silu"),
    }
    if keys.data.get("head_dim") is not None:
        fields["head_dim"] = keys.count("head_dim")
    return fields


def tied(keys: Keys, default: bool = False) -> bool:
    return keys.flag("tie_word_embeddings", default)


def attention_bias(keys: Keys, kind: str = "attn", default: bool = False) -> str:
    return kind if keys.flag("attention_bias", default) else "none"


def window(keys: Keys, span: int, every: int) -> Fields:
    """Local layers, each ``every``-th full; ``layer_types`` overrides the family's habit."""
    types = keys.items("layer_types", str)
    if types is not None:
        full = [i for i, kind in enumerate(types, 1) if kind == "full_attention"]
        every = full[0] if full else 0
        if not any(kind != "full_attention" for kind in types):
            span = 0
        elif full != (list(range(every, len(types) + 1, every)) if every else []):
            span = 0
            keys.notes.append("irregular layer_types, so every layer counts as full attention")
    return {"sliding_window": span, "global_layer_every": every if span else 0}


def late_window(keys: Keys) -> Fields:
    """Qwen: off unless asked for, and then only from layer ``max_window_layers`` on."""
    if not keys.flag("use_sliding_window", False):
        return {}
    full, layers = (
        keys.count_or_zero("max_window_layers", default=28),
        keys.count("num_hidden_layers"),
    )
    if 0 < full < layers:
        keys.notes.append(f"the first {full} layers see all tokens; so all are taken to")
    return {"sliding_window": keys.count("sliding_window", default=4096) if full == 0 else 0}


def llama(keys: Keys) -> Fields:
    """Llama 1-3, and those that copy it (Yi, DeepSeek LLM, SmolLM, TinyLlama)."""
    attention, mlp = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    bias = {(0, 0): "none", (1, 0): "attn", (0, 1): "mlp", (1, 1): "all"}[attention, mlp]
    return {**sizes(keys, 2048), "tied_embeddings": tied(keys), "bias": bias}


def mistral(keys: Keys) -> Fields:
    return {
        **sizes(keys, 131072, kv_heads=8),
        "tied_embeddings": tied(keys),
        "sliding_window": keys.count_or_zero("sliding_window", default=4096),
    }


def qwen2(keys: Keys, kv_heads: int = 32) -> Fields:
    return {
        **sizes(keys, 32768, kv_heads),
        **late_window(keys),
        "tied_embeddings": tied(keys),
        "bias": "qkv",
    }


def qwen3(keys: Keys, kv_heads: int = 32) -> Fields:
    return {
        **sizes(keys, 32768, kv_heads),
        **late_window(keys),
        "head_dim": keys.count("head_dim", default=128),
        "tied_embeddings": tied(keys),
        "bias": attention_bias(keys),
        "qk_norm": True,
    }


def gemma(keys: Keys) -> Fields:
    act = keys.text("hidden_activation", keys.text("hidden_act", "gelu_pytorch_tanh"))
    return {
        **sizes(keys, 8192),
        "head_dim": keys.count("head_dim", default=256),
        "activation": "gelu_pytorch_tanh" if act == "gelu" else act,
        "tied_embeddings": tied(keys, True),
        "bias": attention_bias(keys),
    }


def gemma2(keys: Keys) -> Fields:
    span = keys.count_or_zero("sliding_window", default=4096)
    return {**gemma(keys), **window(keys, span, 2), "norms_per_layer": 4}


def gemma3(keys: Keys) -> Fields:
    """Published text_config leaves out what equals the class's defaults."""
    defaults = {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    }
    given = {key: value for key, value in keys.data.items() if value is not None}
    keys = Keys(keys.file, {**defaults, **given}, keys.prefix, keys.notes)
    every = keys.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    span = keys.count_or_zero("sliding_window", default=4096)
    return {**gemma(keys), **window(keys, span, every), "norms_per_layer": 4, "qk_norm": True}


def phi3(keys: Keys) -> Fields:
    window = keys.count_or_zero("sliding_window")
    return {**sizes(keys, 4096), "tied_embeddings": tied(keys), "sliding_window": window}


def glm(keys: Keys) -> Fields:
    return {
        **sizes(keys, 131072, kv_heads=2),
        "head_dim": keys.count("head_dim", default=128),
        "tied_embeddings": tied(keys),
        "bias": attention_bias(keys, "qkv", True),
    }


def glm4(keys: Keys) -> Fields:
    return {**glm(keys), "norms_per_layer": 4}


def olmo2(keys: Keys) -> Fields:
    return {
        **sizes(keys, 2048),
        "tied_embeddings": tied(keys),
        "bias": attention_bias(keys),
        "qk_norm": True,
        "qk_norm_wide": True,
    }
