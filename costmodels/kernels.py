"""How the layers of a run compute: what decides which tensors they keep for backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.architecture import Architecture
from costmodels.numeric import Numeric

LAYERNORM = "layernorm"
# Model code that projects query, key and value in one linear whose output stays whole, because
# the value (or all three) is a view of it. (transformers 5.24, models/*/modeling_*.py)
FUSED_QKV_FAMILIES = frozenset({"gpt2", "gpt_neox", "bloom", "phi3", "falcon", "gpt_bigcode"})
# Rotary embeddings built with ``cat`` leave a head-major query; the kernel's output follows that
# layout and is copied for the output projection. (the same files)
HEAD_MAJOR_FAMILIES = frozenset({"gpt_neox", "phi3"})
# Families with dropout on the residual branches, not only inside attention. (the same files)
RESIDUAL_DROPOUT_FAMILIES = frozenset({"gpt2", "gpt_neox", "bloom", "phi3", "opt", "bert"})


@dataclass(frozen=True, slots=True)
class Kernels:
    """The implementation of a layer.

    Parameters
    ----------
    compute : str
        ``bf16`` (fp16 the same: 16-bit weights and activations), ``amp`` (fp32 weights under
        autocast) or ``fp32``.
    attention : str
        ``flash``, ``efficient``, ``eager`` or ``math`` (the unfused kernel behind PyTorch's SDPA).
    norm, mlp : str
        ``eager`` (as the model's source spells it) or ``fused``.
    layout : str
        ``family``: Hugging Face model code, by family; ``fused``: one projection for query, key
        and value, as Megatron-LM and nanotron have it.
    output_copies : int
        Copies of the attention output made on its way to the projection (``fused`` layout).
    qkv_kept : bool
        The fused projection's output stays whole beside the rotated copies, because the value is
        a view of it; otherwise the value is copied out.
    kv_expanded : bool
        Keys and values are copied to all heads before a fused attention kernel.
    rotary_each : bool
        Every layer gathers cosines and sines by position, once for query and once for key, and
        keeps them.
    norm_element : float
        Bytes an eager norm keeps for an element of its input, where not the family's; else 0.
    score_element : float
        Bytes unfused attention keeps for a score, where not those of the family; else 0.
    input_bytes : float
        Bytes of an element of a saved linear input, where not those of ``compute``; else 0.
    dropout : float
        Probability, in attention and, where the family has them, on residual branches.
    mask : bool
        An explicit attention mask (padding, or a window shorter than the sequence).
    cache : bool
        A key/value cache is filled while training.
    head_loss : bool
        Labels are given, so that the model computes the loss.
    """

    compute: str = "bf16"
    attention: str = "flash"
    norm: str = "eager"
    mlp: str = "eager"
    layout: str = "family"
    output_copies: Numeric = 0
    qkv_kept: bool = True
    rotary_each: bool = False
    kv_expanded: bool = False
    norm_element: float = 0.0
    score_element: float = 0.0
    input_bytes: float = 0.0
    dropout: float = 0.0
    mask: bool = False
    cache: bool = False
    head_loss: bool = True

    @property
    def element(self) -> int:
        """Bytes of an element that a matrix product reads or writes."""
        return 4 if self.compute == "fp32" else 2

    @property
    def residual(self) -> int:
        """Bytes of an element of the residual stream."""
        return 2 if self.compute == "bf16" else 4

    @property
    def saved_input(self) -> float:
        """Bytes of an element of a linear's input as it is kept for the weight gradient."""
        return self.input_bytes or self.element


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch as a rank sees it: sequences, own tokens of each, tokens attended to."""

    sequences: Numeric
    queries: Numeric
    keys: Numeric

    @property
    def tokens(self) -> Numeric:
        """Tokens on this rank."""
        return np.asarray(self.sequences) * self.queries


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that a layer keeps for backward.

    Parameters
    ----------
    group : str
        The module that first saves it: ``attn``, ``mlp``, ``norm``, ``other``.
    role : str
        ``input`` of a linear, ``product`` of a linear or of the attention kernel, ``pointwise``,
        ``scores`` (what core attention keeps besides its inputs and its output), ``expert`` (a
        routed expert's activation), ``latent`` (what latents are projected up to).
    size : Numeric
        All of it, before any split over ranks. [byte]
    split : str
        How tensor parallelism divides it: ``tensor``, ``kv`` (at most over key/value heads),
        ``input`` (a linear's input), ``sequence`` (with sequence parallelism only), ``expert``
        (tokens of routed experts, which are not split over ranks that share one), ``none``.
    """

    group: str
    role: str
    size: Numeric
    split: str = "tensor"


def fused_qkv(arch: Architecture, kernels: Kernels) -> bool:
    """Whether one linear yields query, key and value."""
    return kernels.layout == "fused" or arch.family in FUSED_QKV_FAMILIES


def residual_dropout(arch: Architecture, kernels: Kernels) -> bool:
    """Whether residual branches keep a dropout mask."""
    code = kernels.layout == "fused" or arch.family in RESIDUAL_DROPOUT_FAMILIES
    return kernels.dropout > 0 and code


def norm_bytes(arch: Architecture, kernels: Kernels, width: Numeric) -> Numeric:
    """Bytes one norm over ``width`` channels keeps for a token, besides its output. [byte/token]

    Notes
    -----
    LayerNorm: input, mean, reciprocal deviation. RMSNorm in eager code: the input cast to fp32,
    the reciprocal root and the normalised input; fused: the input and the reciprocal root. The
    output is the next linear's input and counted there. (transformers 5.24, LlamaRMSNorm;
    counted on PyTorch 2.13 with saved-tensor hooks)
    """
    statistics = 8 if arch.norm == LAYERNORM else 4
    if kernels.norm_element and kernels.norm == "eager":
        return kernels.norm_element * width + statistics
    if arch.norm == LAYERNORM or kernels.norm == "fused":
        return kernels.residual * width + statistics
    if arch.family.startswith("gemma"):  # weight applied in fp32
        return 8 * width + 4
    return (6 if kernels.compute == "bf16" else 8) * width + 4
