"""What running named modules of a layer again takes (Megatron-Core, ``recompute_modules``)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodels.configuration import Configuration
from costmodels.costs import Parts
from costmodels.layer_time import (
    Linear,
    attention_linears,
    inner_width,
    latent_linears,
    layer_linears,
)
from costmodels.memory_bound import Coefficients, layer_bytes
from costmodels.numeric import Numeric

NORMS = 8.0  # bytes for a hidden element: two norms read it and write it in 16 bits


def recomputed_modules(c: Configuration, forward: Parts) -> Parts:
    """Parts of a layer's forward that the stack's ``recompute_modules`` run again. [s]

    Products and byte-moving kernels go by their share of the layer's; a feed-forward gathers and
    scatters its tokens again, half of a layer's tensor-parallel communication, and sends them to
    its experts again.
    """
    modules = set(c.stack.memory.recompute_modules)
    routed = c.architecture.moe is not None
    whole = ("moe" if routed else "mlp") in modules
    parts: dict[str, Numeric] = {}
    if "core_attn" in modules:
        parts["attention"] = forward["attention"]
    share: Numeric = 0.0
    if whole:
        share = 1.0 - _flops(_attention(c)) / _flops(layer_linears(c))
        parts["tp"], parts["ep"] = 0.5 * forward["tp"], forward["ep"]
    if "mla_up_proj" in modules:
        share = share + _flops(_up(c)) / _flops(layer_linears(c))
    if np.any(np.asarray(share) > 0):
        parts["gemm"] = share * forward["gemm"]
    moved = _moved(c, "layernorm" in modules, whole or (routed and "moe_act" in modules))
    parts["memory_bound"] = moved * forward["memory_bound"]
    return parts


def _attention(c: Configuration) -> Iterable[Linear]:
    return attention_linears(c.architecture, np.asarray(c.tp), c.stack.time.fused_projections)


def _flops(linears: Iterable[Linear]) -> Numeric:
    """Multiply-adds a token, or what is proportional to them."""
    total: Numeric = 0.0
    for x in linears:
        total = total + x.share * x.tokens * x.batch * np.asarray(x.n) * x.k
    return total


def _up(c: Configuration) -> Iterable[Linear]:
    """Products that make queries, keys and values of all heads (qkv_up_proj_and_rope_apply)."""
    mla = c.architecture.mla
    return () if mla is None else latent_linears(c.architecture, mla, np.asarray(c.tp))


def _moved(c: Configuration, norms: bool, inner: bool) -> Numeric:
    """Share of the layer's byte-moving kernels."""
    time = c.stack.time
    table = (time.gated if c.architecture.gated_mlp else time.plain).forward

    def moved(coefficients: Coefficients) -> Numeric:
        width = inner_width(c.architecture)
        shape = (c.tokens, c.architecture.hidden, width, c.tp, c.sequence_parallel)
        return layer_bytes(coefficients, *shape)

    return moved((NORMS * norms, 0.0, table[2] * inner)) / moved(table)
