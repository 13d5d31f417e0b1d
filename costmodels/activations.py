"""Activation bytes of one layer and of what lies outside the layers.

T tokens of a micro-batch on a rank, h hidden, V vocabulary. Categories add up exactly to what
autograd saves under PyTorch 2.13 with transformers 5.24 (16-bit, autocast and fp32).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodels.architecture import Architecture
from costmodels.attention_activations import attention_tensors
from costmodels.kernels import LAYERNORM, Batch, Kernels, Saved, norm_bytes
from costmodels.mlp_activations import mlp_tensors
from costmodels.numeric import Numeric

GROUPS = ("attn", "mlp", "norm", "other")


def norm_tensors(arch: Architecture, kernels: Kernels, batch: Batch) -> tuple[Saved, ...]:
    """What a layer's norms over the hidden width keep; with a parallel residual they share x."""
    per_norm = norm_bytes(arch, kernels, arch.hidden)
    size = arch.norms_per_layer * per_norm
    if arch.parallel_residual and arch.norms_per_layer > 1:
        size = size - (arch.norms_per_layer - 1) * kernels.residual * arch.hidden
    once = 4 * arch.hidden * arch.norms_per_layer if _materialises_weight(arch, kernels) else 0
    return (Saved("norm", "pointwise", batch.tokens * size + once, "sequence"),)


def _materialises_weight(arch: Architecture, kernels: Kernels) -> bool:
    """Gemma forms 1 + weight in fp32, anew in each norm."""
    return arch.family.startswith("gemma") and kernels.norm == "eager" and not kernels.norm_element


def layer_tensors(
    arch: Architecture, kernels: Kernels, batch: Batch, routed: bool = False
) -> tuple[Saved, ...]:
    """Every tensor one layer keeps for backward when nothing is recomputed. [byte]"""
    return (
        norm_tensors(arch, kernels, batch)
        + attention_tensors(arch, kernels, batch)
        + mlp_tensors(arch, kernels, batch, routed)
    )


def total(tensors: Iterable[Saved], group: str | None = None) -> Numeric:
    """Bytes of ``tensors``, of one group of them if given, on one rank that splits nothing."""
    size: Numeric = 0.0
    for tensor in tensors:
        if group is None or tensor.group == group:
            size = size + tensor.size
    return size


def layer_input(arch: Architecture, kernels: Kernels, tokens: Numeric) -> Numeric:
    """The residual stream before a layer: what checkpointing keeps. [byte]"""
    return np.asarray(tokens) * arch.hidden * kernels.residual


def saved_by_group(
    arch: Architecture, kernels: Kernels, batch: Batch, routed: bool = False, full: bool = False
) -> dict[str, Numeric]:
    """Bytes one layer keeps, by group; all of it ``other`` if the layer is checkpointed.

    Examples
    --------
    Llama-2-7B in bf16 with FlashAttention: 45.5 h bytes a token.

    >>> llama = Architecture("llama2-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096, True,
    ...                      "silu", "rmsnorm", 2, False)
    >>> kept = saved_by_group(llama, Kernels(), Batch(1, 4096, 4096))
    >>> round(float(sum(kept.values())) / 4096 / 4096, 1)
    45.5
    """
    if full:
        kept = layer_input(arch, kernels, batch.tokens)
        return {"attn": 0.0, "mlp": 0.0, "norm": 0.0, "other": kept}
    tensors = layer_tensors(arch, kernels, batch, routed)
    return {group: total(tensors, group) for group in GROUPS}


def rotary_width(arch: Architecture) -> int:
    """Channels of a head that rotate."""
    if arch.positional != "rope":
        return 0
    if arch.mla is not None:
        return arch.mla.qk_rope_head_dim
    return arch.head_dim // 4 if arch.family == "gpt_neox" else arch.head_dim


def rotary_tables(arch: Architecture, kernels: Kernels, batch: Batch) -> Numeric:
    """Cosine and sine, made once and shared by all layers. [byte]"""
    return 2 * np.asarray(batch.keys) * rotary_width(arch) * kernels.residual


def embedding_saved(arch: Architecture, kernels: Kernels, batch: Batch) -> Numeric:
    """What the embedding keeps: position ids, a dropout mask, its norm. [byte]"""
    tokens = batch.tokens
    kept: Numeric = 0.0
    if arch.positional == "learned":
        rows = tokens if arch.family == "opt" else np.asarray(batch.queries)
        kept = kept + 8 * rows
    if kernels.dropout > 0 and (arch.family in ("gpt2", "gpt_neox") or kernels.layout == "fused"):
        kept = kept + tokens * arch.hidden
    if arch.embedding_norm or arch.family == "bloom":
        kept = kept + tokens * norm_bytes(arch, kernels, arch.hidden)
    return kept


def head_saved(arch: Architecture, kernels: Kernels, batch: Batch) -> Numeric:
    """The final norm and the input of the output projection. [byte]"""
    tokens, h = batch.tokens, arch.hidden
    once = 4 * h if _materialises_weight(arch, kernels) else 0
    return tokens * (norm_bytes(arch, kernels, h) + kernels.saved_input * h) + once


def loss_saved(arch: Architecture, kernels: Kernels, batch: Batch) -> Numeric:
    """What the eager cross-entropy keeps: fp32 log-softmax, shifted labels, weight. [byte]

    With one sequence the labels stay a view of the padded ones. A final soft cap keeps its tanh.
    """
    tokens = batch.tokens
    kept: Numeric = 0.0
    if kernels.head_loss:
        padding = np.where(np.asarray(batch.sequences) == 1, 1, 0)
        kept = 4.0 * tokens * arch.vocab + 8 * (tokens + padding) + 4
    if arch.family == "gemma2":
        kept = kept + kernels.element * tokens * arch.vocab
    return kept


def outside_saved(
    arch: Architecture, kernels: Kernels, batch: Batch, full: bool = False
) -> Numeric:
    """All that is kept outside the layers of a whole model. [byte]

    Checkpointed layers (``full``) do not keep the rotary tables themselves.
    """
    tables = 0.0 if full else rotary_tables(arch, kernels, batch)
    return (
        embedding_saved(arch, kernels, batch)
        + tables
        + head_saved(arch, kernels, batch)
        + loss_saved(arch, kernels, batch)
    )


def input_alias(arch: Architecture, kernels: Kernels, tokens: Numeric) -> Numeric:
    """The part of a layer's kept bytes that is the layer's own input. [byte]

    Norms that keep their input as it is keep the residual stream itself; eager RMSNorm keeps an
    fp32 copy where the stream is 16-bit.
    """
    keeps = arch.norm == LAYERNORM or kernels.norm == "fused" or kernels.compute != "bf16"
    return np.where(keeps and not kernels.norm_element, layer_input(arch, kernels, tokens), 0.0)
