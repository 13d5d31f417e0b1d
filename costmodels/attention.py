"""Core attention: scores, softmax and weighted sum, by kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.gemm import GemmRates, gemm_time
from costmodels.numeric import Array, Numeric

QUERY_BLOCK = 128  # rows of the score matrix one thread block works on
BACKWARD = 2.5  # a flash backward re-forms the scores: five products for the forward's two


@dataclass(frozen=True, slots=True)
class AttentionRates:
    """Causal rates of one kernel on one GPU, over the sequence length.

    ``seq`` increasing, ``forward`` and ``backward`` of its length, FLOP counted on the lower
    triangle only. [token, FLOP/s, FLOP/s]
    """

    seq: Array
    forward: Array
    backward: Array
    units: int


def attended_pairs(seq: Numeric, cp: Numeric = 1, window: int = 0) -> Numeric:
    """Query-key pairs a rank works on in one causal sequence, queries split over ``cp``.

    The diagonal counts half, as in the FlashAttention convention; a ``window`` of w keys leaves
    w (s - w / 2). [-]

    >>> float(attended_pairs(1024))
    524288.0
    """
    reach = np.minimum(seq, window) if window else np.asarray(seq, dtype=float)
    pairs: Array = reach * (seq - reach / 2.0) / np.asarray(cp, dtype=float)
    return pairs


def attention_flops(pairs: Numeric, heads: Numeric, qk_dim: float, v_dim: float) -> Numeric:
    """Forward FLOPs of scores and weighted sum. [FLOP]

    >>> attention_flops(1024 * 1024 / 2, 1, 64, 64)
    134217728.0
    """
    return 2.0 * pairs * heads * (qk_dim + v_dim)


def fill(batch_heads: Numeric, rows: Numeric, units: int) -> Numeric:
    """Share of the GPU that has a query block to work on. [-]

    >>> float(fill(4, 1024, 64)), float(fill(64, 4096, 132))
    (0.5, 1.0)
    """
    return np.minimum(1.0, batch_heads * np.ceil(np.asarray(rows) / QUERY_BLOCK) / units)


def flash_time(
    rates: AttentionRates, flops: Numeric, seq: int, rows: Numeric, batch_heads: Numeric
) -> tuple[Numeric, Numeric]:
    """Forward and backward of a fused kernel that never stores the scores.

    Parameters
    ----------
    rates : AttentionRates
        The kernel's rates; read linearly in log(sequence), constant beyond the ends.
    flops : Numeric
        Forward FLOPs on this rank, causal. [FLOP]
    seq : int
        Sequence length. [token]
    rows : Numeric
        Query rows of one sequence on this rank. [token]
    batch_heads : Numeric
        Sequences times heads on this rank. [-]

    Returns
    -------
    tuple
        Forward and backward time. [s]
    """
    share = fill(batch_heads, rows, rates.units)
    at = np.log(float(seq))
    forward = np.interp(at, np.log(rates.seq), rates.forward)
    backward = np.interp(at, np.log(rates.seq), rates.backward)
    return flops / (forward * share), BACKWARD * flops / (backward * share)


def score_bytes_time(
    batch_heads: Numeric, rows: Numeric, seq: int, per_score: Numeric, bandwidth: float
) -> Numeric:
    """Passes of scale, mask, softmax and dropout over the stored scores. [s]"""
    return per_score * batch_heads * rows * float(seq) / bandwidth


def unfused_time(
    rates: GemmRates,
    seq: int,
    rows: Numeric,
    batch_heads: Numeric,
    qk_dim: int,
    v_dim: int,
    per_score: tuple[Numeric, Numeric],
) -> tuple[Numeric, Numeric]:
    """Forward and backward of attention that stores its score matrix.

    Batched products over the full square: the triangle above the diagonal is worked on too.
    Forward two, backward four.

    Parameters
    ----------
    per_score : tuple of Numeric
        Bytes moved for one score, forward and backward. [byte]

    Returns
    -------
    tuple
        Forward and backward time. [s]
    """
    products = gemm_time(rates, rows, seq, qk_dim, batch_heads) + gemm_time(
        rates, rows, v_dim, seq, batch_heads
    )
    passes = (
        score_bytes_time(batch_heads, rows, seq, bytes_, rates.bandwidth) for bytes_ in per_score
    )
    forward, backward = passes
    return products + forward, 2.0 * products + backward
