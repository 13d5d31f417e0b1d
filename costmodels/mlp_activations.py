"""What the feed-forward of one layer keeps for backward.

f inner width, T tokens; routed layers: E experts of inner width g, t of them per token. Counts for
Hugging Face code were checked with saved-tensor hooks on transformers 5.24 under PyTorch 2.13.
"""

from __future__ import annotations

import numpy as np

from costmodels.architecture import Architecture, MixtureOfExperts
from costmodels.kernels import Batch, Kernels, Saved, residual_dropout
from costmodels.numeric import Numeric

# ``gelu_new`` and its like are spelled out in eight operations, of which five tensors stay; under
# autocast ``pow`` and what follows it run in fp32. Bytes for an element of the inner width.
SPELLED_OUT_GELU = {"bf16": 10, "amp": 16, "fp32": 20}
SPELLED_OUT = frozenset({"gelu_new", "gelu_fast"})


def mlp_tensors(
    arch: Architecture, kernels: Kernels, batch: Batch, routed: bool
) -> tuple[Saved, ...]:
    """Tensors that one layer's feed-forward keeps, its input included. [byte]"""
    if routed and arch.moe is not None:
        kept = _routed(arch, arch.moe, kernels, batch)
    else:
        readers = 2 if kernels.compute == "amp" and _two_linears(arch, kernels) else 1
        size = batch.tokens * kernels.saved_input * arch.hidden * readers
        kept = (Saved("mlp", "input", size, "input"),)
        kept += inner_tensors(arch, kernels, batch.tokens, arch.ffn)
    if residual_dropout(arch, kernels):
        kept += _residual_masks(arch, batch)
    return kept


def _two_linears(arch: Architecture, kernels: Kernels) -> bool:
    """Gate and up projections are separate and each casts its own input."""
    return arch.gated_mlp and arch.family != "phi3" and kernels.layout == "family"


def _residual_masks(arch: Architecture, batch: Batch) -> tuple[Saved, ...]:
    """One byte an element; OPT keeps both of a layer's masks outside attention."""
    group = "mlp" if arch.family in ("gpt2", "bloom") else "other"
    masks = 2 if arch.family == "opt" else 1
    return (Saved(group, "pointwise", masks * batch.tokens * arch.hidden, "sequence"),)


def inner_tensors(
    arch: Architecture, kernels: Kernels, tokens: Numeric, width: int, role: str = "pointwise"
) -> tuple[Saved, ...]:
    """Between the two linears of a feed-forward of inner width ``width``. [byte]

    Gated, eager: gate, up, act(gate), product; fused: without act(gate). Not gated: input and
    output of the activation; ReLU keeps its output alone.
    """
    tokens = np.asarray(tokens)
    unit = tokens * kernels.element * width
    last = tokens * kernels.saved_input * width  # the input of the second linear
    if arch.gated_mlp:
        kept: tuple[Saved, ...] = (
            Saved("mlp", "product", 2 * unit),
            Saved("mlp", role, last),
        )
        if kernels.mlp == "eager":
            kept += (Saved("mlp", "pointwise", unit),)
        return kept
    if arch.activation == "relu":
        return (Saved("mlp", role, last),)
    if arch.activation in SPELLED_OUT and kernels.mlp == "eager":
        size = tokens * SPELLED_OUT_GELU[kernels.compute] * width
        return (Saved("mlp", "product", unit), Saved("mlp", "pointwise", size - unit))
    return (Saved("mlp", "product", unit), Saved("mlp", role, last))


def _routed(
    arch: Architecture, moe: MixtureOfExperts, kernels: Kernels, batch: Batch
) -> tuple[Saved, ...]:
    """Per routed copy: gathered input, inner tensors, expert output; and the router's tensors."""
    copies = batch.tokens * moe.top_k
    expert: tuple[Saved, ...] = (
        Saved("mlp", "input", copies * kernels.saved_input * arch.hidden, "expert"),
        *inner_tensors(arch, kernels, copies, moe.ffn, "expert"),
    )
    if kernels.layout == "family":
        expert += (Saved("mlp", "product", copies * kernels.element * arch.hidden, "none"),)
    split = "none" if kernels.layout == "family" else "sequence"
    router = Saved("mlp", "pointwise", _router(arch, moe, kernels, batch), split)
    return (*expert, router, *_shared(arch, moe, kernels, batch))


def _router(arch: Architecture, moe: MixtureOfExperts, kernels: Kernels, batch: Batch) -> Numeric:
    """Router input, probabilities, indices and weights. [byte]

    Three 64-bit index tensors for a copy, expert offsets, fp32 probabilities and 64-bit top-k
    indices; what follows differs by family. (transformers 5.24, integrations/moe.py and models)
    """
    t, experts, tokens = moe.top_k, moe.experts, batch.tokens
    common = tokens * (t * 24 + 4 * experts + 8 * t) + 4 * experts
    if kernels.layout != "family":
        return common + tokens * 4 * experts  # router logits in fp32; its input is the layer's
    if arch.family.startswith("mixtral"):
        return common + tokens * (2 * arch.hidden + 4 + 8 * t)
    if arch.mla is not None:
        return common + tokens * (4 * arch.hidden + experts + 28 + 8 * t)
    return common + tokens * (2 * arch.hidden + 2 * t)


def _shared(
    arch: Architecture, moe: MixtureOfExperts, kernels: Kernels, batch: Batch
) -> tuple[Saved, ...]:
    """Shared experts: a dense feed-forward beside the routed ones."""
    if not moe.shared_ffn:
        return ()
    size = batch.tokens * kernels.saved_input * arch.hidden
    return (
        Saved("mlp", "input", size, "input"),
        *inner_tensors(arch, kernels, batch.tokens, moe.shared_ffn),
    )
