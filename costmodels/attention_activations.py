"""What the attention of one layer keeps for backward.

a heads of width d, q = a d, k = key/value heads * d, T tokens, s tokens of a sequence. Counts for
``family`` layouts were checked with saved-tensor hooks on transformers 5.24 under PyTorch 2.13.
"""

from __future__ import annotations

import numpy as np

from costmodels.architecture import Architecture, LatentAttention
from costmodels.kernels import (
    HEAD_MAJOR_FAMILIES,
    Batch,
    Kernels,
    Saved,
    fused_qkv,
    norm_bytes,
    residual_dropout,
)
from costmodels.numeric import Numeric, ceil_div

SOFTCAP_FAMILIES = frozenset({"gemma2"})  # tanh(scores / c) is kept beside the softmax


def attention_tensors(arch: Architecture, kernels: Kernels, batch: Batch) -> tuple[Saved, ...]:
    """Tensors that one layer's attention keeps, its input included. [byte]"""
    if arch.mla is not None:
        kept = _latent(arch, arch.mla, kernels, batch)
    else:
        kept = _input(arch, kernels, batch) + _heads(arch, kernels, batch)
    if residual_dropout(arch, kernels) and arch.family != "opt":
        kept += (Saved("attn", "pointwise", batch.tokens * arch.hidden, "sequence"),)
    return kept


def _input(arch: Architecture, kernels: Kernels, batch: Batch) -> tuple[Saved, ...]:
    """Autocast casts the input anew for each linear that reads it."""
    readers = 3 if kernels.compute == "amp" and not fused_qkv(arch, kernels) else 1
    size = batch.tokens * kernels.saved_input * arch.hidden * readers
    return (Saved("attn", "input", size, "input"),)


def _heads(arch: Architecture, kernels: Kernels, batch: Batch) -> tuple[Saved, ...]:
    q, k = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    kept: tuple[Saved, ...] = ()
    if arch.qk_norm:
        kept += _qk_norm(arch, kernels, batch)
    if kernels.attention in ("flash", "efficient"):
        kept += _fused_core(arch, kernels, batch, q, k)
    elif kernels.layout == "fused":
        kept += _projected(arch, kernels, batch, q, k) + _output(kernels, batch, q)
    else:
        kept += _eager_core(arch, kernels, batch, q, k)
    if kernels.rotary_each and arch.positional == "rope":
        size = batch.tokens * 4 * arch.head_dim * kernels.element
        kept += (Saved("attn", "pointwise", size, "none"),)
    return kept + _scores(arch, kernels, batch)


def _qk_norm(arch: Architecture, kernels: Kernels, batch: Batch) -> tuple[Saved, ...]:
    heads, width = arch.heads + arch.kv_heads, arch.head_dim
    bytes_per_token = norm_bytes(arch, kernels, width) * heads
    if kernels.compute == "amp" and kernels.norm == "eager":
        bytes_per_token = bytes_per_token - 2 * width * heads  # normalised in 16 bits: 6, not 8
    return (Saved("attn", "pointwise", batch.tokens * bytes_per_token),)


def _projected(
    arch: Architecture, kernels: Kernels, batch: Batch, q: int, k: int
) -> tuple[Saved, ...]:
    """Query, key and value of one projection: the whole output, and rotated copies of q and k."""
    unit = batch.tokens * kernels.element
    rotated = arch.positional == "rope"
    kept: tuple[Saved, ...] = ()
    if kernels.qkv_kept or not rotated:
        kept += (Saved("attn", "product", unit * q), Saved("attn", "product", unit * 2 * k, "kv"))
    else:
        kept += (Saved("attn", "product", unit * k, "kv"),)
    if rotated:
        kept += (Saved("attn", "pointwise", unit * q), Saved("attn", "pointwise", unit * k, "kv"))
    return kept


def _fused_core(
    arch: Architecture, kernels: Kernels, batch: Batch, q: int, k: int
) -> tuple[Saved, ...]:
    """Inputs and output of a flash or memory-efficient kernel."""
    unit = batch.tokens * kernels.element
    copied = kernels.kv_expanded and k < q  # out of the projection's output, which then goes
    if fused_qkv(arch, kernels) and not copied:
        kept = _projected(arch, kernels, batch, q, k)
    else:
        expanded = kernels.kv_expanded or (kernels.attention == "efficient" and kernels.mask)
        kv = q if expanded else k
        kept = (
            Saved("attn", "pointwise", unit * q),
            Saved("attn", "pointwise", unit * kv, "tensor" if expanded else "kv"),
            Saved("attn", "product", unit * kv, "tensor" if expanded else "kv"),
        )
    if kernels.cache and arch.family == "gpt2":
        kept += (Saved("attn", "pointwise", unit * 2 * q),)
    return kept + _output(kernels, batch, q) + _output_copy(arch, kernels, batch, q)


def _output(kernels: Kernels, batch: Batch, width: int) -> tuple[Saved, ...]:
    """The kernel's output, which is also the input of the output projection."""
    return (Saved("attn", "product", batch.tokens * kernels.element * width),)


def _output_copy(
    arch: Architecture, kernels: Kernels, batch: Batch, width: int
) -> tuple[Saved, ...]:
    """More copies of the output in another layout; 8-bit where inputs are kept so."""
    by_code = kernels.layout == "family" and arch.family in HEAD_MAJOR_FAMILIES
    copies = np.asarray(kernels.output_copies) + (by_code and kernels.attention == "flash")
    size = batch.tokens * width
    kept: tuple[Saved, ...] = (Saved("attn", "pointwise", size * kernels.element * copies),)
    if kernels.input_bytes:
        kept += (Saved("attn", "input", size * kernels.input_bytes),)
    return kept


def _eager_core(
    arch: Architecture, kernels: Kernels, batch: Batch, q: int, k: int
) -> tuple[Saved, ...]:
    """Query, key and value repeated to all heads, and the output.

    With one sequence a fused projection's value needs no copy and stays a view of the whole.
    """
    unit = batch.tokens * kernels.element
    kept: tuple[Saved, ...] = (Saved("attn", "product", unit * 4 * q),)
    if arch.family in HEAD_MAJOR_FAMILIES and k == q:
        view = np.where(np.asarray(batch.sequences) == 1, unit * 2 * q, 0)
        kept += (Saved("attn", "pointwise", view),)
    return kept


def score_bytes(arch: Architecture, kernels: Kernels) -> float:
    """Bytes that unfused attention keeps for one score.

    fp32 softmax 4, its 16-bit copy 2, a dropout mask 1; GPT-2 computes the softmax in the model's
    own type. Fused-softmax code (Megatron-LM) gives its own figure: softmax 2, mask 1, dropped
    scores 2 (Korthikanti et al. 2022, section 4.1).
    """
    mask = kernels.dropout > 0
    unit = kernels.element
    if kernels.score_element:
        return kernels.score_element + (3 if mask else 0)
    if kernels.compute == "fp32" or (arch.family == "gpt2" and kernels.compute == "bf16"):
        size = unit + ((1 + unit) if mask else 0)
    else:
        size = 6 + mask
    return size + (unit if arch.family in SOFTCAP_FAMILIES else 0)


def _scores(arch: Architecture, kernels: Kernels, batch: Batch) -> tuple[Saved, ...]:
    """Scores, or of fused kernels their log-sum-exp in fp32 and random state."""
    heads = arch.heads
    if kernels.attention == "flash":
        return (Saved("attn", "scores", 4 * heads * batch.tokens + 24),)
    if kernels.attention == "efficient":
        rows = ceil_div(batch.queries, 32) * 32
        lse = Saved("attn", "scores", 4 * heads * batch.sequences * rows + 16)
        kept: tuple[Saved, ...] = (lse,)
        if kernels.mask:
            area = np.asarray(batch.sequences) * batch.queries * batch.keys
            kept += (Saved("attn", "scores", kernels.element * area, "none"),)
        return kept
    size = batch.tokens * heads * batch.keys * score_bytes(arch, kernels)
    return (Saved("attn", "scores", size),)


def _latent(
    arch: Architecture, mla: LatentAttention, kernels: Kernels, batch: Batch
) -> tuple[Saved, ...]:
    """Multi-head latent attention: both latents with their norms, q and k after ``cat``.

    Hugging Face code keeps the whole output of the key/value up-projection, of which the value is
    a view; Megatron-Core makes the value contiguous.
    """
    unit, heads = batch.tokens * kernels.element, arch.heads
    qk = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    v, kv_up = heads * mla.v_head_dim, heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    latents: Numeric = 0
    for rank in (mla.q_lora_rank, mla.kv_lora_rank):
        if rank:
            norm = norm_bytes(arch, kernels, rank)
            latents = latents + batch.tokens * (norm + kernels.saved_input * rank)
    kept: tuple[Saved, ...] = (
        Saved("attn", "input", batch.tokens * kernels.saved_input * arch.hidden, "input"),
        Saved("attn", "pointwise", latents, "none"),
        Saved("attn", "latent", unit * 2 * qk),
    )
    if kernels.attention in ("flash", "efficient"):
        whole = kv_up if kernels.layout == "family" else v
        copies = 2 if kernels.attention == "flash" and kernels.layout == "family" else 1
        kept += (
            Saved("attn", "latent", unit * whole),
            Saved("attn", "product", unit * v * copies),
        )
    else:
        value = np.where(np.asarray(batch.sequences) == 1, kv_up, v)
        kept += (Saved("attn", "product", unit * (value + v)),)
    return kept + _scores(arch, kernels, batch)
