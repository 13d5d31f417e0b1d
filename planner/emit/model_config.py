"""A network as the Hugging Face config.json that transformers 5 builds it from.

The inverse of ``planner/hf_config.py``: what a writer here writes, the reader of that family
reads back as the same Architecture. What the shape of a network does not say (initialisation)
keeps the default of the family's configuration class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from costmodels.architecture import Architecture
from planner.emit.norm import hf_norm
from planner.emit.rope import hf_rope

Fields = dict[str, Any]
Writer = Callable[[Architecture, float], Fields]


def model_config(arch: Architecture, dropout: float = 0.0) -> Fields:
    """The config.json of a network.

    Parameters
    ----------
    arch : Architecture
        The network.
    dropout : float
        Probability of every dropout the family has. [-]

    Raises
    ------
    ValueError
        If transformers' class of that family cannot build the network.

    Examples
    --------
    >>> from planner.catalogue import load_model
    >>> model_config(load_model("llama2-7b"))["intermediate_size"]
    11008
    """
    if arch.kind != "decoder":
        raise ValueError(f"{arch.name}: train.py trains decoders, not {arch.kind} models")
    if arch.family not in WRITERS:
        known = ", ".join(sorted(WRITERS))
        raise ValueError(
            f"{arch.name}: train.py cannot build family {arch.family}; it can: {known}"
        )
    return {
        "model_type": arch.family,
        **WRITERS[arch.family](arch, dropout),
        **hf_norm(arch),
        **hf_rope(arch),
        "tie_word_embeddings": arch.tied_embeddings,
        "bos_token_id": None,  # tokens are made up; published ids may lie outside a cut vocabulary
        "eos_token_id": None,
        "pad_token_id": None,
        "use_cache": False,
    }


def _sizes(arch: Architecture, dropout: float) -> Fields:
    return {
        "hidden_size": arch.hidden,
        "intermediate_size": arch.ffn,
        "num_hidden_layers": arch.layers,
        "num_attention_heads": arch.heads,
        "num_key_value_heads": arch.kv_heads,
        "head_dim": arch.head_dim,
        "vocab_size": arch.vocab,
        "max_position_embeddings": arch.max_seq_len,
        "hidden_act": arch.activation,
        "attention_dropout": dropout,
    }


def _whole_heads(arch: Architecture) -> None:
    """For classes without a head size of their own."""
    if arch.hidden != arch.heads * arch.head_dim:
        raise ValueError(
            f"{arch.name}: transformers' {arch.family} needs hidden = heads x head size, "
            f"got {arch.hidden} and {arch.heads} x {arch.head_dim}"
        )


def _biased(arch: Architecture) -> Fields:
    return {"attention_bias": arch.bias in ("attn", "qkv", "all")}


def _llama(arch: Architecture, dropout: float) -> Fields:
    return {**_sizes(arch, dropout), **_biased(arch), "mlp_bias": arch.bias in ("mlp", "all")}


def _mistral(arch: Architecture, dropout: float) -> Fields:
    return {**_sizes(arch, dropout), "sliding_window": arch.sliding_window or None}


def _mixtral(arch: Architecture, dropout: float) -> Fields:
    moe = arch.moe
    assert moe is not None
    return {
        **_mistral(arch, dropout),
        "intermediate_size": moe.ffn,
        "num_local_experts": moe.experts,
        "num_experts_per_tok": moe.top_k,
    }


def _qwen(arch: Architecture, dropout: float) -> Fields:
    window = arch.sliding_window
    local: Fields = {"use_sliding_window": False}
    if window:
        local = {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 0}
    return {**_sizes(arch, dropout), **local}


def _qwen3(arch: Architecture, dropout: float) -> Fields:
    return {**_qwen(arch, dropout), **_biased(arch)}


def _routed(arch: Architecture) -> Fields:
    """Qwen's routed feed-forward."""
    moe = arch.moe
    assert moe is not None
    return {
        "num_experts": moe.experts,
        "num_experts_per_tok": moe.top_k,
        "moe_intermediate_size": moe.ffn,
        "decoder_sparse_step": moe.layer_frequency,
        "mlp_only_layers": list(range(moe.first_dense_layers)),
    }


def _qwen2_moe(arch: Architecture, dropout: float) -> Fields:
    assert arch.moe is not None
    return {
        **_qwen(arch, dropout),
        **_routed(arch),
        "qkv_bias": arch.bias == "qkv",
        "shared_expert_intermediate_size": arch.moe.shared_ffn,
    }


def _qwen3_moe(arch: Architecture, dropout: float) -> Fields:
    return {**_qwen3(arch, dropout), **_routed(arch)}


def _gemma(arch: Architecture, dropout: float) -> Fields:
    own = {"hidden_activation": arch.activation}
    return {**_sizes(arch, dropout), **_biased(arch), **own}


def _gemma2(arch: Architecture, dropout: float) -> Fields:
    window, every = arch.sliding_window, arch.global_layer_every
    types = [
        "sliding_attention" if window and (not every or layer % every) else "full_attention"
        for layer in range(1, arch.layers + 1)
    ]
    window_size = window or arch.max_seq_len
    return {**_gemma(arch, dropout), "layer_types": types, "sliding_window": window_size}


def _phi(arch: Architecture, dropout: float) -> Fields:
    return {**_sizes(arch, dropout), "embd_pdrop": dropout, "resid_pdrop": dropout}


def _phi3(arch: Architecture, dropout: float) -> Fields:
    _whole_heads(arch)
    fields = {**_phi(arch, dropout), "sliding_window": arch.sliding_window or None}
    del fields["head_dim"]
    return fields


def _glm(arch: Architecture, dropout: float) -> Fields:
    return {**_sizes(arch, dropout), **_biased(arch)}


def _gpt2(arch: Architecture, dropout: float) -> Fields:
    _whole_heads(arch)
    return {
        "n_embd": arch.hidden,
        "n_layer": arch.layers,
        "n_head": arch.heads,
        "n_inner": arch.ffn,
        "n_positions": arch.max_seq_len,
        "vocab_size": arch.vocab,
        "activation_function": arch.activation,
        "attn_pdrop": dropout,
        "embd_pdrop": dropout,
        "resid_pdrop": dropout,
    }


def _gpt_neox(arch: Architecture, dropout: float) -> Fields:
    _whole_heads(arch)
    return {
        **{k: v for k, v in _sizes(arch, dropout).items() if k != "head_dim"},
        "hidden_dropout": dropout,
        "use_parallel_residual": arch.parallel_residual,
        "attention_bias": arch.bias == "all",
    }


def _opt(arch: Architecture, dropout: float) -> Fields:
    _whole_heads(arch)
    return {
        "hidden_size": arch.hidden,
        "num_hidden_layers": arch.layers,
        "num_attention_heads": arch.heads,
        "ffn_dim": arch.ffn,
        "vocab_size": arch.vocab,
        "max_position_embeddings": arch.max_seq_len,
        "word_embed_proj_dim": arch.embedding_width or arch.hidden,
        "activation_function": arch.activation,
        "do_layer_norm_before": arch.final_norm,
        "dropout": dropout,
        "attention_dropout": dropout,
    }


def _bloom(arch: Architecture, dropout: float) -> Fields:
    _whole_heads(arch)
    return {
        "hidden_size": arch.hidden,
        "n_layer": arch.layers,
        "n_head": arch.heads,
        "vocab_size": arch.vocab,
        "seq_length": arch.max_seq_len,
        "attention_dropout": dropout,
        "hidden_dropout": dropout,
    }


def _falcon(arch: Architecture, dropout: float) -> Fields:
    _whole_heads(arch)
    grouped = arch.parallel_residual and arch.norms_per_layer == 2
    return {
        "hidden_size": arch.hidden,
        "num_hidden_layers": arch.layers,
        "num_attention_heads": arch.heads,
        "num_kv_heads": arch.kv_heads,
        "ffn_hidden_size": arch.ffn,
        "vocab_size": arch.vocab,
        "max_position_embeddings": arch.max_seq_len,
        "activation": arch.activation,
        "alibi": arch.positional == "alibi",
        "bias": arch.bias == "all",
        "new_decoder_architecture": grouped,
        "multi_query": arch.kv_heads == 1,
        "parallel_attn": arch.parallel_residual,
        "attention_dropout": dropout,
        "hidden_dropout": dropout,
    }


def _mpt(arch: Architecture, dropout: float) -> Fields:
    _whole_heads(arch)
    if dropout:  # MptAttentionConfig.attn_pdrop is declared a whole number
        raise ValueError(f"{arch.name}: transformers' mpt takes no attention dropout")
    return {
        "d_model": arch.hidden,
        "n_layers": arch.layers,
        "n_heads": arch.heads,
        "expansion_ratio": arch.ffn // arch.hidden,
        "vocab_size": arch.vocab,
        "max_seq_len": arch.max_seq_len,
        "attn_config": {"alibi": True},
    }


WRITERS: dict[str, Writer] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma2,
    "phi": _phi,
    "phi3": _phi3,
    "glm": _glm,
    "glm4": _glm,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "bloom": _bloom,
    "falcon": _falcon,
    "mpt": _mpt,
}
