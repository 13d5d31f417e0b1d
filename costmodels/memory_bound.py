"""Kernels that only move bytes: norms, residuals, activations, rotary embeddings, losses."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Numeric

# Bytes for an element of: the hidden state outside the tensor-parallel region (norms, residuals,
# dropout: split only by sequence parallelism), the attention's inputs and outputs, and the
# feed-forward's inner width.
Coefficients = tuple[float, float, float]

# An eager 32-bit RMSNorm pair moves more than the fused one: casts up, squares, mean, product,
# cast down. 12 paired runs of the layouts study (arXiv 2311.05610) give 255 - 327 bytes for an
# element and layer, both passes, at every tensor-parallel degree.
EAGER_NORM = (64.0, 172.0)


def layer_bytes(
    coefficients: Coefficients,
    tokens: Numeric,
    hidden: float,
    ffn: float,
    tp: Numeric,
    sequence_parallel: Numeric,
) -> Numeric:
    """Bytes one pass of a layer moves outside its matrix products and attention.

    Parameters
    ----------
    coefficients : Coefficients
        Bytes for an element of each width. [byte]
    tokens : Numeric
        Tokens of the micro-batch on this rank. [token]

    Returns
    -------
    Numeric
        Bytes. [byte]

    Examples
    --------
    >>> float(layer_bytes((20, 40, 10), 1, 4096, 11008, 1, 0))
    355840.0
    """
    outside, attention, inner = coefficients
    t = np.asarray(tp, dtype=float)
    split = np.where(np.asarray(sequence_parallel) > 0, t, 1.0)
    return tokens * (outside * hidden / split + attention * hidden / t + inner * ffn / t)


def loss_bytes(per_logit: float, tokens: Numeric, vocab: Numeric, tp: Numeric) -> Numeric:
    """Bytes the logits, softmax and loss move, forward and backward together. [byte]"""
    return per_logit * tokens * vocab / np.asarray(tp, dtype=float)


def embedding_bytes(per_element: float, tokens: Numeric, hidden: float) -> Numeric:
    """Bytes of looking up, adding and scattering embeddings, both passes. [byte]"""
    return per_element * np.asarray(tokens) * hidden
