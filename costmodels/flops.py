"""Floating-point operations of training, a multiply-add counted as two.

Two conventions exist for the attention of a model's FLOPs, and a published utilisation is only
comparable with its own: *full* counts every pair of tokens (PaLM, arXiv 2204.02311, appendix B;
Megatron-LM, arXiv 2205.05198, appendix A), *causal* the lower triangle that is needed. They
differ by up to s / 6h of the linear layers' FLOPs.
"""

from __future__ import annotations

import numpy as np

from costmodels.architecture import Architecture
from costmodels.numeric import Numeric
from costmodels.params import routed_layers

PASSES = 3  # forward 1, backward 2: a gradient for the input and one for the weight of each GEMM
# FlashAttention forms Q K^T again in its backward: 5 matrix products against 2 of the forward
# (Dao 2023, arXiv 2307.08691, section 4).
FLASH_BACKWARD = 2.5


def attended_tokens(seq_len: Numeric, window: int = 0, causal: bool = False) -> Numeric:
    """Tokens that a token attends to, on average over the sequence. [token]

    ``window`` 0 is full attention. Full convention: min(s, w). Causal: the mean of min(i, w) over
    i = 1 ... s.

    Examples
    --------
    >>> float(attended_tokens(4, causal=True)), float(attended_tokens(4, window=2, causal=True))
    (2.5, 1.75)
    """
    span: Numeric = np.minimum(seq_len, window) if window else seq_len
    if not causal:
        return span
    # The first w tokens see 1 ... w, the other s - w see w.
    return span - span * (span - 1) / (2 * np.asarray(seq_len))


def attention_matrix_parameters(arch: Architecture) -> int:
    """Weights of one layer's attention projections that each token is multiplied by. [-]"""
    h, mla = arch.hidden, arch.mla
    if mla is None:
        return 2 * h * arch.head_dim * (arch.heads + arch.kv_heads)
    qk_width = arch.heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    query = h * qk_width
    if mla.q_lora_rank:
        query = mla.q_lora_rank * (h + qk_width)
    keys = h * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    values = mla.kv_lora_rank * arch.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return query + keys + values + arch.heads * mla.v_head_dim * h


def mlp_matrix_parameters(arch: Architecture, routed: bool = False) -> int:
    """Weights of one layer's feed-forward that each token is multiplied by. [-]

    With routed experts: the router, ``top_k`` experts and the shared ones.
    """
    matrices = 3 if arch.gated_mlp else 2
    if not routed or arch.moe is None:
        return matrices * arch.hidden * arch.ffn
    width = arch.moe.top_k * arch.moe.ffn + arch.moe.shared_ffn
    router = arch.moe.experts + arch.moe.shared_gate
    return arch.hidden * (matrices * width + router)


def core_attention_flops(
    arch: Architecture, seq_len: Numeric, causal: bool = False, window: int = 0
) -> Numeric:
    """Scores and their product with the values, one token, one layer, forward. [FLOP]

    4 s a d_h; with multi-head latent attention 2 s a (d_nope + d_rope + d_v).
    """
    width = 2 * arch.head_dim
    if arch.mla is not None:
        width = arch.mla.qk_nope_head_dim + arch.mla.qk_rope_head_dim + arch.mla.v_head_dim
    return 2 * attended_tokens(seq_len, window, causal) * arch.heads * width


def global_layers(arch: Architecture) -> int:
    """Layers that attend to the whole sequence. [-]"""
    if not arch.sliding_window:
        return arch.layers
    return arch.layers // arch.global_layer_every if arch.global_layer_every else 0


def mean_core_attention_flops(
    arch: Architecture, seq_len: Numeric, causal: bool = False
) -> Numeric:
    """``core_attention_flops`` averaged over full and sliding-window layers. [FLOP]"""
    share = global_layers(arch) / arch.layers
    whole = core_attention_flops(arch, seq_len, causal)
    local = core_attention_flops(arch, seq_len, causal, arch.sliding_window)
    return share * whole + (1 - share) * local


def mean_linear_flops(arch: Architecture) -> float:
    """Matrix products with weights, one token, forward, averaged over the layers. [FLOP]"""
    share = routed_layers(arch) / arch.layers
    mlp = (1 - share) * mlp_matrix_parameters(arch)
    if share:
        mlp += share * mlp_matrix_parameters(arch, routed=True)
    return 2 * (attention_matrix_parameters(arch) + mlp)


def layer_flops(arch: Architecture, seq_len: Numeric, causal: bool = False) -> Numeric:
    """Forward of the average layer, one token. [FLOP]"""
    return mean_linear_flops(arch) + mean_core_attention_flops(arch, seq_len, causal)


def head_flops(arch: Architecture) -> float:
    """Logits, and the projections of an embedding narrower than the model; forward. [FLOP]

    Looking an embedding up costs none. An encoder without a language head has no logits.
    """
    if arch.kind == "encoder":
        return 0.0
    width = arch.embedding_width or arch.hidden
    return 2.0 * (arch.vocab * width + 2 * arch.embedding_width * arch.hidden)


def forward_flops(arch: Architecture, seq_len: Numeric, causal: bool = False) -> Numeric:
    """One token through the model. [FLOP]

    Notes
    -----
    Sum over layers of 2 P + 4 s a d_h, and 2 h V for the logits.
    """
    return arch.layers * layer_flops(arch, seq_len, causal) + head_flops(arch)


def model_flops_per_step(
    arch: Architecture, seq_len: Numeric, sequences: Numeric = 1, causal: bool = False
) -> Numeric:
    """What one step on ``sequences`` sequences needs, nothing computed twice. [FLOP]

    Notes
    -----
    For GPT with the full convention this is 72 B L s h^2 (1 + s / 6h + V / 12hL), Korthikanti
    et al. 2022, arXiv 2205.05198, equation 7.

    Examples
    --------
    GPT-3 on one sequence of 2048 tokens:

    >>> gpt3 = Architecture("gpt3", "gpt2", 96, 12288, 96, 96, 128, 49152, 51200, 2048, False,
    ...                     "gelu", "layernorm", 2, True)
    >>> print(f"{model_flops_per_step(gpt3, 2048):.4g}")
    2.205e+15
    """
    return PASSES * sequences * seq_len * forward_flops(arch, seq_len, causal)


def recompute_flops(
    arch: Architecture, seq_len: Numeric, granularity: str, causal: bool = False
) -> Numeric:
    """What checkpointing computes again, average layer, one token. [FLOP]

    ``selective`` repeats the core attention; ``full`` and ``every_k`` the whole layer.

    Raises
    ------
    ValueError
        If the granularity is none of ``costmodels.costs.GRANULARITIES``.
    """
    if granularity == "none":
        return np.zeros_like(np.asarray(seq_len, dtype=float))
    if granularity == "selective":
        return mean_core_attention_flops(arch, seq_len, causal)
    if granularity in ("full", "every_2", "every_4"):
        return layer_flops(arch, seq_len, causal)
    raise ValueError(
        f"unknown recompute {granularity!r}: expected none, selective, full, every_2 or every_4"
    )


def hardware_flops_per_step(
    arch: Architecture,
    seq_len: Numeric,
    sequences: Numeric = 1,
    recompute: str = "none",
    causal: bool = False,
    flash: bool = False,
) -> Numeric:
    """What one step computes, recomputation included. [FLOP]

    Notes
    -----
    Full recomputation adds a third of the layers' FLOPs, selective 4 B L s^2 h for GPT with the
    full convention (equation 8 of Korthikanti et al. 2022 adds three times as much, so that its
    hardware utilisation comes out 1 to 3 % above this one). A FlashAttention kernel already
    repeats Q K^T in its backward, half of the forward's core attention; selective recomputation
    then adds nothing more.
    """
    again = arch.layers * recompute_flops(arch, seq_len, recompute, causal)
    if flash:
        core = arch.layers * mean_core_attention_flops(arch, seq_len, causal)
        extra = (1 + FLASH_BACKWARD - PASSES) * core
        again = extra + (0 if recompute == "selective" else again)
    return model_flops_per_step(arch, seq_len, sequences, causal) + sequences * seq_len * again


def flops_utilisation(flops: Numeric, time: Numeric, gpus: Numeric, peak: Numeric) -> Numeric:
    """Share of the peak: MFU from model FLOPs, HFU from hardware FLOPs. [-]

    Parameters
    ----------
    flops : Numeric
        Of one step, all GPUs together. [FLOP]
    time : Numeric
        Of one step. [s]
    gpus : Numeric
        How many GPUs. [-]
    peak : Numeric
        Peak of one GPU in the precision used. [FLOP/s]

    References
    ----------
    .. [1] Chowdhery et al. 2022, PaLM, arXiv 2204.02311, appendix B.

    Examples
    --------
    >>> float(flops_utilisation(624e12, 1.0, 4, 312e12))
    0.5
    """
    return flops / (np.asarray(time) * gpus * peak)
