"""Readers of the families with LayerNorm: GPT, OPT, BLOOM, Falcon, MPT, Phi, StableLM, BERT.

Defaults are those of transformers 5.24, ``src/transformers/models/<family>/configuration_*.py``;
which linears carry biases and which norms exist, of ``modeling_*.py`` beside it.
"""

from __future__ import annotations

from planner.hf_dense import Fields, attention_bias, sizes, tied
from planner.hf_keys import Keys

# What most of them share.
_CLASSIC: Fields = {"gated_mlp": False, "norm": "layernorm", "bias": "all"}


def gpt2(keys: Keys) -> Fields:
    hidden = keys.count("n_embd", "hidden_size")
    return {
        "layers": keys.count("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": keys.count("n_head", "num_attention_heads"),
        "ffn": keys.count("n_inner", default=4 * hidden),
        "vocab": keys.count("vocab_size"),
        "max_seq_len": keys.count("n_positions", "max_position_embeddings", "n_ctx", default=1024),
        "activation": keys.text("activation_function", "gelu_new"),
        "positional": "learned",
        "tied_embeddings": tied(keys, True),
        **_CLASSIC,
    }


def gpt_neox(keys: Keys) -> Fields:
    return {
        **sizes(keys, 2048),
        **_CLASSIC,
        "activation": keys.text("hidden_act", "gelu"),
        "parallel_residual": keys.flag("use_parallel_residual", True),
        "tied_embeddings": tied(keys),
        "bias": "all" if keys.flag("attention_bias", True) else "mlp",
    }


def opt(keys: Keys) -> Fields:
    if not keys.flag("layer_norm_elementwise_affine", True):
        raise keys.wrong("layer_norm_elementwise_affine", "must be true")
    hidden, positions = (
        keys.count("hidden_size"),
        keys.count("max_position_embeddings", default=2048),
    )
    width = keys.count("word_embed_proj_dim", default=hidden)
    pre_norm = keys.flag("do_layer_norm_before", True)
    return {
        "layers": keys.count("num_hidden_layers"),
        "hidden": hidden,
        "heads": keys.count("num_attention_heads"),
        "ffn": keys.count("ffn_dim"),
        "vocab": keys.count("vocab_size"),
        "max_seq_len": positions,
        "position_rows": positions + 2,  # OPTLearnedPositionalEmbedding offsets by 2
        "activation": keys.text("activation_function", "relu"),
        "positional": "learned",
        "tied_embeddings": tied(keys, True),
        "embedding_width": 0 if width == hidden else width,
        "final_norm": pre_norm and not keys.flag("_remove_final_layer_norm", False),
        **_CLASSIC,
        "bias": "all" if keys.flag("enable_bias", True) else "none",
    }


def bloom(keys: Keys) -> Fields:
    hidden = keys.count("hidden_size", "n_embed")
    return {
        "layers": keys.count("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": keys.count("n_head", "num_attention_heads"),
        "ffn": 4 * hidden,
        "vocab": keys.count("vocab_size"),
        "max_seq_len": keys.count("seq_length", default=2048),
        "activation": "gelu",
        "positional": "alibi",
        "embedding_norm": True,
        "tied_embeddings": tied(keys, True),
        **_CLASSIC,
    }


def falcon(keys: Keys) -> Fields:
    hidden = keys.count("hidden_size", "n_embed")
    heads = keys.count("num_attention_heads", "n_head")
    new = keys.flag("new_decoder_architecture", False)
    parallel = new or keys.flag("parallel_attn", True)
    kv_heads = 1 if keys.flag("multi_query", True) else heads
    if new:
        kv_heads = keys.count("num_kv_heads", "n_head_kv", default=heads)
    return {
        "layers": keys.count("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": keys.count("ffn_hidden_size", default=4 * hidden),
        "vocab": keys.count("vocab_size"),
        "max_seq_len": keys.count("max_position_embeddings", default=2048),
        "activation": keys.text("activation", "gelu"),
        "positional": "alibi" if keys.flag("alibi", False) else "rope",
        "parallel_residual": parallel,
        "norms_per_layer": _falcon_norms(keys, new, parallel),
        "tied_embeddings": tied(keys, True),
        **_CLASSIC,
        "bias": "all" if keys.flag("bias", False) else "none",
    }


def _falcon_norms(keys: Keys, new: bool, parallel: bool) -> int:
    if new:
        return keys.count("num_ln_in_parallel_attn", default=2)
    return 1 if parallel else 2


def mpt(keys: Keys) -> Fields:
    attention = keys.nested("attn_config")
    if attention.flag("qk_ln", False):
        raise attention.wrong("qk_ln", "must be false")
    if not attention.flag("alibi", True):
        raise attention.wrong("alibi", "must be true")
    if attention.text("attn_type", "multihead_attention") != "multihead_attention":
        raise attention.wrong("attn_type", "must be 'multihead_attention'")
    hidden = keys.count("d_model", "hidden_size")
    return {
        "layers": keys.count("n_layers", "num_hidden_layers"),
        "hidden": hidden,
        "heads": keys.count("n_heads", "num_attention_heads"),
        "ffn": keys.count("expansion_ratio", default=4) * hidden,
        "vocab": keys.count("vocab_size"),
        "max_seq_len": keys.count("max_seq_len", default=2048),
        "positional": "alibi",
        "norm_bias": False,
        "tied_embeddings": tied(keys, True),
        **_CLASSIC,
        "bias": "none",
    }


def phi(keys: Keys) -> Fields:
    if keys.flag("qk_layernorm", False):
        raise keys.wrong("qk_layernorm", "must be false")
    return {
        **sizes(keys, 2048),
        "activation": keys.text("hidden_act", "gelu_new"),
        "gated_mlp": False,
        "norm": "layernorm",
        "norms_per_layer": 1,
        "parallel_residual": True,
        "tied_embeddings": tied(keys),
        "bias": "all",
        "head_bias": True,
    }


def stablelm(keys: Keys) -> Fields:
    parallel = keys.flag("use_parallel_residual", False)
    normed = keys.flag("qk_layernorm", False)
    return {
        **sizes(keys, 4096, kv_heads=32),
        "norm": "layernorm",
        "norms_per_layer": 1 if parallel else 2,
        "parallel_residual": parallel,
        "tied_embeddings": tied(keys),
        "bias": "qkv" if keys.flag("use_qkv_bias", False) else "none",
        "qk_norm": normed,
        "qk_norm_wide": normed,
    }


def starcoder2(keys: Keys) -> Fields:
    return {
        **sizes(keys, 4096, kv_heads=2),
        **_CLASSIC,
        "activation": keys.text("hidden_act", "gelu_pytorch_tanh"),
        "tied_embeddings": tied(keys, True),
        "bias": "all" if keys.flag("use_bias", True) else "none",
        "sliding_window": keys.count_or_zero("sliding_window"),
    }


def cohere(keys: Keys) -> Fields:
    normed = keys.flag("use_qk_norm", False)
    return {
        **sizes(keys, 8192),
        "norm": "layernorm",
        "norm_bias": False,
        "norms_per_layer": 1,
        "parallel_residual": True,
        "tied_embeddings": tied(keys, True),
        "bias": attention_bias(keys),
        "qk_norm": normed,
        "qk_norm_wide": normed,
    }


def bert(keys: Keys) -> Fields:
    """Encoder and pooler, as ``BertModel``."""
    return {
        **sizes(keys, 512),
        **_CLASSIC,
        "activation": keys.text("hidden_act", "gelu"),
        "positional": "learned",
        "token_types": keys.count("type_vocab_size", default=2),
        "embedding_norm": True,
        "final_norm": False,
        "pooler": True,
        "kind": "encoder",
        "tied_embeddings": True,
    }
