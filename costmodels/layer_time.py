"""One layer, one micro-batch, one rank: forward and backward, part by part.

Every function returns a pair (forward, backward) of times [s], broadcast over the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from costmodels.architecture import Architecture, LatentAttention
from costmodels.attention import attended_pairs, attention_flops, flash_time, unfused_time
from costmodels.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    group_bandwidth,
    ring_share,
)
from costmodels.configuration import Configuration
from costmodels.gemm import cast_time, linear_backward_time, linear_forward_time
from costmodels.memory_bound import EAGER_NORM, layer_bytes
from costmodels.numeric import Array, Numeric
from costmodels.params import routed_layers
from costmodels.rates import Rates

Pair = tuple[Numeric, Numeric]
HALF = 2.0  # bytes of a 16-bit element
EAGER_SCORES = (33.0, 33.0)  # bytes a score moves in plain torch: casts, scale, mask, softmax


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight of shape (n, k) a layer multiplies with, ``share`` times on average.

    ``tokens`` is a factor on the micro-batch's tokens, ``batch`` the number of such weights.
    """

    n: Numeric
    k: Numeric
    share: float = 1.0
    tokens: Numeric = 1.0
    batch: Numeric = 1.0


def attention_linears(arch: Architecture, tp: Numeric, fused: bool) -> Iterator[Linear]:
    """The projections into and out of the heads."""
    if arch.mla is not None:
        mla = arch.mla
        if mla.q_lora_rank:
            yield Linear(mla.q_lora_rank, arch.hidden)
        yield Linear(mla.kv_lora_rank + mla.qk_rope_head_dim, arch.hidden)
        yield from latent_linears(arch, mla, tp)
        yield Linear(arch.hidden, arch.heads * mla.v_head_dim / tp)
        return
    q = arch.heads * arch.head_dim / tp
    kv = arch.head_dim * np.maximum(arch.kv_heads / tp, 1.0)
    if fused:
        yield Linear(q + 2 * kv, arch.hidden)
    else:
        yield Linear(q, arch.hidden)
        yield Linear(kv, arch.hidden)
        yield Linear(kv, arch.hidden)
    yield Linear(arch.hidden, q)


def latent_linears(arch: Architecture, mla: LatentAttention, tp: Numeric) -> Iterator[Linear]:
    """The projections of latent attention that yield queries, and keys and values, of all heads."""
    qk = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    yield Linear(arch.heads * qk / tp, mla.q_lora_rank or arch.hidden)
    yield Linear(arch.heads * (mla.qk_nope_head_dim + mla.v_head_dim) / tp, mla.kv_lora_rank)


def mlp_linears(
    hidden: int, ffn: Numeric, gated: bool, fused: bool, like: Linear
) -> Iterator[Linear]:
    """The feed-forward's products; ``like`` gives share, tokens and batch."""
    inputs = 2 if gated else 1
    if fused:
        yield replace(like, n=inputs * ffn, k=hidden)
    else:
        for _ in range(inputs):
            yield replace(like, n=ffn, k=hidden)
    yield replace(like, n=hidden, k=ffn)


def layer_linears(cfg: Configuration) -> Iterator[Linear]:
    """All products of the average layer with a weight."""
    arch, fused, tp = cfg.architecture, cfg.stack.time.fused_projections, np.asarray(cfg.tp)
    yield from attention_linears(arch, tp, fused)
    routed = routed_layers(arch) / arch.layers
    if routed < 1.0:
        dense = Linear(0, 0, 1.0 - routed)
        yield from mlp_linears(arch.hidden, arch.ffn / tp, arch.gated_mlp, fused, dense)
    if arch.moe is not None and routed:
        moe, ep = arch.moe, np.asarray(cfg.ep)
        copies = moe.top_k * ep / moe.experts  # a token's copies an expert of this rank sees
        experts = Linear(0, 0, routed, copies, moe.experts / ep)
        yield from mlp_linears(arch.hidden, moe.ffn / tp, arch.gated_mlp, fused, experts)
        if moe.shared_ffn:
            shared = Linear(0, 0, routed)
            yield from mlp_linears(arch.hidden, moe.shared_ffn / tp, arch.gated_mlp, fused, shared)


def gemm(cfg: Configuration, rates: Rates) -> Pair:
    """Products with weights, and the casts they need in fp8."""
    forward, backward = np.asarray(0.0), np.asarray(0.0)
    for x in layer_linears(cfg):
        tokens = cfg.tokens * x.tokens
        f = linear_forward_time(rates.gemm, tokens, x.n, x.k, x.batch)
        b = linear_backward_time(rates.gemm, tokens, x.n, x.k, x.batch, rates.gradient_bytes)
        if cfg.precision == "fp8":
            casts = cast_time(rates.bandwidth, tokens, x.n, x.k)
            f, b = f + x.batch * casts[0], b + x.batch * casts[1]
        forward, backward = forward + x.share * f, backward + x.share * b
    return forward, backward


def last_product(cfg: Configuration, rates: Rates) -> Numeric:
    """Forward time of the product that ends a layer, 0 where experts do."""
    arch = cfg.architecture
    share = 1.0 - routed_layers(arch) / arch.layers
    width = arch.ffn / np.asarray(cfg.tp)
    return share * linear_forward_time(rates.gemm, cfg.tokens, arch.hidden, width)


def last_reduction(cfg: Configuration) -> Numeric:
    """Share of a forward's tensor-parallel communication that comes after that product. [-]"""
    sp = np.asarray(cfg.sequence_parallel) > 0
    blocks = 0.5 if cfg.architecture.parallel_residual else 1.0
    return np.where(sp, 1.0 / cfg.stack.time.sp_forward, 0.5) / blocks


def attention(cfg: Configuration, rates: Rates) -> Pair:
    """Core attention on this rank's heads and queries."""
    arch, tp, cp = cfg.architecture, np.asarray(cfg.tp), np.asarray(cfg.cp)
    qk_dim, v_dim = head_dims(arch)
    by_heads = cfg.stack.time.context == "all_to_all"
    batch_heads = cfg.micro_batch * arch.heads / tp / (cp if by_heads else 1)
    rows = cfg.seq_len / (1 if by_heads else cp)
    if rates.attention is None:
        wide, plain = rates.element / HALF, plain_softmax(cfg)
        forward, backward = (
            wide * np.where(plain, eager, own)
            for eager, own in zip(EAGER_SCORES, cfg.stack.time.score_bytes, strict=True)
        )
        square = (cfg.seq_len, rows, batch_heads, qk_dim, v_dim)
        return unfused_time(rates.product, *square, (forward, backward))
    pairs = mean_pairs(arch, cfg.seq_len)
    flops = attention_flops(pairs, cfg.micro_batch * arch.heads / tp / cp, qk_dim, v_dim)
    return flash_time(rates.attention, flops, cfg.seq_len, rows, batch_heads)


def plain_softmax(cfg: Configuration) -> Numeric:
    """Whether a fused softmax cannot run: its blocks hold a fixed number of score matrices.

    Megatron-LM, megatron/model/fused_softmax.py: ``attn_batches % batch_per_block == 0``. In
    vTrain's runs one sequence with 2 heads a rank takes longer than two.
    """
    if cfg.attention != "eager":
        return np.asarray(False)
    matrices = np.asarray(cfg.micro_batch) * cfg.architecture.heads // np.asarray(cfg.tp)
    plain: Array = np.mod(matrices, cfg.stack.time.softmax_multiple) != 0
    return plain


def head_dims(arch: Architecture) -> tuple[int, int]:
    """Widths of a query or key, and of a value, in one head. [element]"""
    if arch.mla is not None:
        return arch.mla.qk_nope_head_dim + arch.mla.qk_rope_head_dim, arch.mla.v_head_dim
    return arch.head_dim, arch.head_dim


def mean_pairs(arch: Architecture, seq: int) -> Numeric:
    """Query-key pairs of one sequence and head in the average layer. [-]"""
    full = attended_pairs(seq)
    if not arch.sliding_window:
        return full
    share = 1.0 / arch.global_layer_every if arch.global_layer_every else 0.0
    return share * full + (1.0 - share) * attended_pairs(seq, window=arch.sliding_window)


def inner_width(arch: Architecture) -> float:
    """Elements of the average layer's inner width that a token passes; copies to experts count."""
    if arch.moe is None:
        return float(arch.ffn)
    routed = routed_layers(arch) / arch.layers
    inner = arch.moe.top_k * (arch.moe.ffn + arch.hidden) + arch.moe.shared_ffn
    return (1.0 - routed) * arch.ffn + routed * inner


def memory_bound(cfg: Configuration, rates: Rates, parameters: Numeric) -> Pair:
    """Norms, residuals, activation, rotary embedding, dropout; adding up gradients.

    ``parameters``: of the layer, on this rank.
    """
    arch, time = cfg.architecture, cfg.stack.time
    table = time.gated if arch.gated_mlp else time.plain
    width = inner_width(arch)
    eager_norm = time.eager_norm and arch.norm == "rmsnorm"
    times: list[Numeric] = []
    for coefficients, eager in zip((table.forward, table.backward), EAGER_NORM, strict=True):
        outside = coefficients[0] + (eager if eager_norm else 0.0)
        moved = layer_bytes(
            (outside, coefficients[1], coefficients[2]),
            cfg.tokens,
            arch.hidden,
            width,
            cfg.tp,
            cfg.sequence_parallel,
        )
        factor = time.memory_factor * rates.element / HALF
        times.append(moved * factor / rates.bandwidth)
    per_parameter = time.accumulation_bytes.get(cfg.precision, 0.0)
    added = np.where(np.asarray(cfg.grad_accum) > 1, per_parameter * parameters, 0.0)
    return times[0], times[1] + added / rates.bandwidth


def tensor_parallel(cfg: Configuration, rates: Rates, products: Numeric) -> Pair:
    """All-reduces, or with sequence parallelism gathers and scatters, of the hidden state.

    ``products``: the layer's forward products, of whose weight gradients about half come from
    the column-parallel layers; a stack may run the backward's all-reduces under those.
    """
    time, arch = cfg.stack.time, cfg.architecture
    size = cfg.tokens * arch.hidden * rates.element
    reduce = all_reduce_time(rates.links, size, cfg.tp)
    gather = all_gather_time(rates.links, size, cfg.tp)
    sp = np.asarray(cfg.sequence_parallel) > 0
    blocks = 0.5 if arch.parallel_residual else 1.0  # attention and feed-forward share theirs
    forward = np.where(sp, time.sp_forward * gather, 2.0 * reduce)
    hidden = np.minimum(time.tp_hidden * time.tp_backward * reduce, 0.5 * products)
    backward = np.where(sp, time.sp_backward * gather, time.tp_backward * reduce - hidden)
    waits = np.where(np.asarray(cfg.tp) > 1, time.tp_latency, 0.0)
    return (
        blocks * (time.tp_factor * forward + waits),
        blocks * (time.tp_factor * backward + waits),
    )


def context_parallel(cfg: Configuration, rates: Rates, work: Pair) -> Pair:
    """Keys and values between the ranks of a sequence, beyond what attention hides.

    ``work``: the attention that runs meanwhile. A ring hides under it, all-to-all and all-gather
    do not.
    """
    arch, cp, tp = cfg.architecture, np.asarray(cfg.cp), np.asarray(cfg.tp)
    qk_dim, v_dim = head_dims(arch)
    kv_heads = arch.heads if arch.mla is not None else arch.kv_heads
    kv = np.maximum(kv_heads / tp, 1.0) * (qk_dim + v_dim)
    sequences = cfg.micro_batch * float(cfg.seq_len) * rates.element
    if cfg.stack.time.context == "all_to_all":
        heads = arch.heads / tp * (qk_dim + v_dim)
        sent = all_to_all_time(rates.links, sequences / cp * (heads + kv), cp, tp)
        return sent, sent
    if cfg.stack.time.context == "all_gather":
        gathered = all_gather_time(rates.links, sequences * kv, cp, tp)
        return gathered, 2.0 * gathered
    ring = ring_share(cp) * sequences * kv / group_bandwidth(rates.links, cp, tp)
    hidden = ring_share(cp)
    return (
        np.maximum(ring - hidden * work[0], 0.0),
        np.maximum(2.0 * ring - hidden * work[1], 0.0),
    )


def expert_parallel(cfg: Configuration, rates: Rates) -> Pair:
    """Dispatch of tokens to the experts' ranks and combination of what they return."""
    arch = cfg.architecture
    if arch.moe is None:
        return np.asarray(0.0), np.asarray(0.0)
    split = np.where(np.asarray(cfg.sequence_parallel) > 0, cfg.tp, 1)
    size = cfg.tokens / split * arch.moe.top_k * arch.hidden * rates.element
    one = all_to_all_time(rates.links, size, cfg.ep, cfg.tp)
    both = 2.0 * routed_layers(arch) / arch.layers * one
    return both, both
