"""Readers of the families with routed experts.

Defaults are those of transformers 5.24, ``src/transformers/models/<family>/configuration_*.py``;
which linears carry biases and which norms exist, of ``modeling_*.py`` beside it.
"""

from __future__ import annotations

from planner.hf_dense import Fields, attention_bias, mistral, qwen2, qwen3, sizes, tied, window
from planner.hf_keys import Keys


def mixtral(keys: Keys) -> Fields:
    moe = {
        "experts": keys.count("num_local_experts", "num_experts", default=8),
        "top_k": keys.count("num_experts_per_tok", default=2),
        "ffn": keys.count("intermediate_size"),
    }
    window = keys.count_or_zero("sliding_window")
    return {**mistral(keys), "sliding_window": window, "moe": moe}


def qwen2_moe(keys: Keys) -> Fields:
    moe = _sparse_step(keys, experts=60, top_k=4, ffn=1408)
    moe["shared_ffn"] = keys.count("shared_expert_intermediate_size", default=5632)
    bias = "qkv" if keys.flag("qkv_bias", True) else "none"
    return {**qwen2(keys, kv_heads=16), "bias": bias, "moe": {**moe, "shared_gate": True}}


def qwen3_moe(keys: Keys) -> Fields:
    fields = qwen3(keys, kv_heads=4)
    if keys.data.get("head_dim") is None:  # this class leaves it at hidden / heads
        del fields["head_dim"]
    return {**fields, "moe": _sparse_step(keys, experts=128, top_k=8, ffn=768)}


def _sparse_step(keys: Keys, experts: int, top_k: int, ffn: int) -> Fields:
    """Qwen's routed layers: every ``decoder_sparse_step``-th, except ``mlp_only_layers``."""
    step = keys.count("decoder_sparse_step", default=1)
    dense = sorted(keys.items("mlp_only_layers", int) or [])
    if dense and (step > 1 or dense != list(range(len(dense)))):
        raise keys.wrong(
            "mlp_only_layers", "must be the leading layers, with every later one routed"
        )
    return {
        "experts": keys.count("num_experts", "num_local_experts", default=experts),
        "top_k": keys.count("num_experts_per_tok", default=top_k),
        "ffn": keys.count("moe_intermediate_size", default=ffn),
        "layer_frequency": step,
        "first_dense_layers": len(dense),
    }


def deepseek_v2(keys: Keys) -> Fields:
    return _deepseek(keys, {"top_k": None, "shared": 2, "first": 0, "experts": 64, "ffn": 1407})


def deepseek_v3(keys: Keys) -> Fields:
    fields = _deepseek(keys, {"top_k": 8, "shared": 1, "first": 3, "experts": 256, "ffn": 2048})
    return {**fields, "moe": {**fields["moe"], "correction_bias": True}}


def _deepseek(keys: Keys, default: dict[str, int | None]) -> Fields:
    if keys.flag("mlp_bias", False):
        raise keys.wrong("mlp_bias", "must be false")
    fields = sizes(keys, 4096)
    mla = {
        "q_lora_rank": keys.count_or_zero("q_lora_rank", default=1536),
        "kv_lora_rank": keys.count("kv_lora_rank", default=512),
        "qk_nope_head_dim": keys.count("qk_nope_head_dim", default=128),
        "qk_rope_head_dim": keys.count("qk_rope_head_dim", default=64),
        "v_head_dim": keys.count("v_head_dim", default=128),
    }
    return {
        **fields,
        "kv_heads": fields["heads"],
        "head_dim": mla["qk_nope_head_dim"] + mla["qk_rope_head_dim"],
        "tied_embeddings": tied(keys),
        "bias": attention_bias(keys),
        "mla": mla,
        "moe": _shared_experts(keys, default),
    }


def _shared_experts(keys: Keys, default: dict[str, int | None]) -> Fields:
    """DeepSeek's keys: leading dense layers, then experts and some of the same width shared."""
    ffn = keys.count("moe_intermediate_size", default=default["ffn"])
    return {
        "experts": keys.count("n_routed_experts", "num_experts", default=default["experts"]),
        "top_k": keys.count("num_experts_per_tok", default=default["top_k"]),
        "ffn": ffn,
        "shared_ffn": ffn * keys.count_or_zero("n_shared_experts", default=default["shared"] or 0),
        "first_dense_layers": keys.count_or_zero(
            "first_k_dense_replace", default=default["first"] or 0
        ),
        "layer_frequency": keys.count("moe_layer_freq", default=1),
    }


def glm4_moe(keys: Keys) -> Fields:
    default: dict[str, int | None] = {
        "top_k": 8,
        "shared": 1,
        "first": 1,
        "experts": 128,
        "ffn": 1408,
    }
    return {
        **sizes(keys, 131072, kv_heads=8),
        "tied_embeddings": tied(keys),
        "bias": attention_bias(keys, "qkv"),
        "qk_norm": keys.flag("use_qk_norm", False),
        "moe": _shared_experts(keys, default),
    }


def gpt_oss(keys: Keys) -> Fields:
    span = keys.count_or_zero("sliding_window", default=128)
    ffn = keys.count("intermediate_size")
    return {
        **sizes(keys, 131072, kv_heads=8),
        **window(keys, span, 2),
        "head_dim": keys.count("head_dim", default=64),
        "tied_embeddings": tied(keys),
        "bias": attention_bias(keys, default=True),
        "attention_sinks": True,
        "moe": {
            "experts": keys.count("num_local_experts", "num_experts", default=128),
            "top_k": keys.count("num_experts_per_tok", "experts_per_token", default=4),
            "ffn": ffn,
            "bias": True,
        },
    }


def llama4(keys: Keys) -> Fields:
    """The text tower; its query/key norm has no weights."""
    fields = sizes(keys, 131072, kv_heads=8)
    ffn, step = fields["ffn"], keys.count("interleave_moe_layer_step", default=1)
    routed = keys.items("moe_layers", int)
    if routed and routed != list(range(step - 1, fields["layers"], step)):
        raise keys.wrong("moe_layers", f"must be every layer in steps of {step}")
    span = keys.count_or_zero("attention_chunk_size", default=8192)
    return {
        **fields,
        **window(keys, span, keys.count("no_rope_layer_interval", default=4)),
        "ffn": keys.count("intermediate_size_mlp", default=16384),
        "head_dim": keys.count("head_dim", default=128),
        "tied_embeddings": tied(keys),
        "bias": attention_bias(keys),
        "moe": {
            "experts": keys.count("num_local_experts", "num_experts", default=16),
            "top_k": keys.count("num_experts_per_tok", default=1),
            "ffn": ffn,
            "shared_ffn": ffn,
            "layer_frequency": step,
        },
    }
