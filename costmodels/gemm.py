"""Matrix multiplication: time by shape, from tiles, waves and bytes moved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.numeric import Array, Numeric

# Output tiles a GEMM library chooses from, rows x columns (NVIDIA matrix multiplication guide).
TILES = ((128, 256), (256, 128), (128, 128), (128, 64), (64, 128), (64, 64))
LARGEST_TILE = 128 * 256
ALIGNMENT = 64  # elements; below it tensor cores run on padded or narrower loads
ALIGNMENT_LOSS = 0.60  # BLOOM sweeps, h = 14400 at t = 8: step time fits 0.59 - 0.60
WEIGHT_GRADIENT_LOSS = 1.05  # accumulating into fp32: 5 % on A100, 6 % on B200


@dataclass(frozen=True, slots=True)
class GemmRates:
    """What a GPU does in one precision.

    Parameters
    ----------
    peak : float
        Dense peak of the precision. [FLOP/s]
    units : int
        Streaming multiprocessors (compute units). [-]
    bandwidth : float
        Sustained memory bandwidth. [byte/s]
    efficiency : float
        Share of ``peak`` a large GEMM sustains. [-]
    tile_exponent, wave_rounding, ramp : float
        How fast smaller tiles lose, how much of the last wave is lost, and the K at which half
        of a tile's time is start-up. [-, -, element]
    element : int
        Bytes of an operand element. [byte]
    """

    peak: float
    units: int
    bandwidth: float
    efficiency: float
    tile_exponent: float
    wave_rounding: float
    ramp: float
    element: float = 2.0


def gemm_flops(m: Numeric, n: Numeric, k: Numeric, batch: Numeric = 1) -> Numeric:
    """FLOPs of ``batch`` products (m, k) x (k, n), a multiply-add counted as two. [FLOP]

    >>> gemm_flops(2, 3, 4)
    48
    """
    return 2 * batch * m * n * k


def gemm_time(
    rates: GemmRates,
    m: Numeric,
    n: Numeric,
    k: Numeric,
    batch: Numeric = 1,
    output: float | None = None,
) -> Numeric:
    r"""Time of ``batch`` products (m, k) x (k, n).

    The best of the library's tiles, each

    .. math:: \left[\beta \lceil w \rceil + (1 - \beta) \max(w, 1)\right]
              \frac{2 \tau_m \tau_n (K + K_0)}
              {P / S \cdot \varepsilon (\tau_m \tau_n / 32768)^\gamma}

    with w = tiles / S waves, and never less than the bytes of the three matrices take.

    Parameters
    ----------
    rates : GemmRates
        The GPU in the precision of the product.
    m, n, k, batch : Numeric
        Sizes; any may be an array. [element]
    output : float, optional
        Bytes of an element of the result, ``rates.element`` unless given. [byte]

    Returns
    -------
    Numeric
        Time, broadcast over the sizes. [s]

    Notes
    -----
    Mean error on single GEMMs above 8 GFLOP 4 % (H100, A100), about 10 % on B200.

    References
    ----------
    .. [1] NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantisation.
    .. [2] Constants fitted on the matmul table of XLA (sm_90) and on SimuMax's A100 and B200
       operator tables.
    """
    m, n, k, batch = (np.asarray(x, dtype=float) for x in (m, n, k, batch))
    per_unit = rates.peak / rates.units * rates.efficiency
    best: Numeric = np.inf
    for rows, columns in TILES:
        waves = batch * np.ceil(m / rows) * np.ceil(n / columns) / rates.units
        rounded = rates.wave_rounding * np.ceil(waves) + (1 - rates.wave_rounding) * np.maximum(
            waves, 1.0
        )
        speed = per_unit * (rows * columns / LARGEST_TILE) ** rates.tile_exponent
        best = np.minimum(best, rounded * (2.0 * rows * columns / speed))
    compute = best * (k + rates.ramp)
    out = rates.element if output is None else output
    moved = batch * (rates.element * (m * k + n * k) + out * m * n)
    time: Array = np.maximum(compute, moved / rates.bandwidth)
    return time


def alignment(n: Numeric, k: Numeric) -> Numeric:
    """Share of its speed a product keeps with a weight of shape (n, k).

    >>> float(alignment(4096, 1024)), float(alignment(4096, 1800))
    (1.0, 0.6)
    """
    aligned = (np.mod(n, ALIGNMENT) == 0) & (np.mod(k, ALIGNMENT) == 0)
    return np.where(aligned, 1.0, ALIGNMENT_LOSS)


def linear_forward_time(
    rates: GemmRates, tokens: Numeric, n: Numeric, k: Numeric, batch: Numeric = 1
) -> Numeric:
    """Forward of a linear layer k -> n on ``tokens`` rows. [s]"""
    return gemm_time(rates, tokens, n, k, batch) / alignment(n, k)


def linear_backward_time(
    rates: GemmRates,
    tokens: Numeric,
    n: Numeric,
    k: Numeric,
    batch: Numeric = 1,
    gradient: float = 4.0,
) -> Numeric:
    """Backward of a linear layer k -> n: the gradients of its input and of its weight.

    ``gradient``: bytes of an element of the weight's gradient. [s]
    """
    data = gemm_time(rates, tokens, k, n, batch)
    weight = gemm_time(rates, n, k, tokens, batch, gradient)
    return (data + WEIGHT_GRADIENT_LOSS * weight) / alignment(n, k)


def cast_time(bandwidth: float, tokens: Numeric, n: Numeric, k: Numeric) -> tuple[Numeric, Numeric]:
    """Casts around one 8-bit linear layer k -> n, forward and backward.

    The kernel before the layer writes its input in 8 bit instead of 16, and a transpose of it for
    the weight's gradient: nothing is added forward but the second read and write of that
    transpose. The output's gradient is read in 16 bit, written in 8 and transposed. Weights are
    cast once a step. [s]
    """
    rows = np.asarray(tokens)
    return 2.0 * rows * k / bandwidth, 4.0 * rows * n / bandwidth
