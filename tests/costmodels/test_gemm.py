"""Matrix products: bounds no schedule can beat, published rates, tile and wave effects."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.gemm import (
    GemmRates,
    alignment,
    cast_time,
    gemm_flops,
    gemm_time,
    linear_backward_time,
    linear_forward_time,
)
from hardware_db import load_gpu

SIZE = st.integers(1, 1 << 15)


def rates(gpu: str, precision: str = "bf16") -> GemmRates:
    g = load_gpu(gpu)
    return GemmRates(
        peak=g.flops[precision],
        units=g.sms,
        bandwidth=g.memory_bandwidth * g.memory_efficiency,
        efficiency=g.gemm.epsilon,
        tile_exponent=g.gemm.gamma,
        wave_rounding=g.gemm.beta,
        ramp=g.gemm.k0,
    )


A100, H200 = rates("a100-sxm4-80g"), rates("h200-sxm-141g")


@given(SIZE, SIZE, SIZE)
def test_never_faster_than_the_sustained_rate_or_the_memory(m, n, k):
    time = float(gemm_time(A100, m, n, k))
    assert time >= gemm_flops(m, n, k) / (A100.peak * A100.efficiency) * (1 - 1e-12)
    assert time >= 2.0 * (m * k + n * k + m * n) / A100.bandwidth * (1 - 1e-12)


@given(SIZE, SIZE, SIZE, st.integers(0, 4096))
def test_a_larger_product_never_takes_less(m, n, k, more):
    base = gemm_time(H200, m, n, k)
    for larger in ((m + more, n, k), (m, n + more, k), (m, n, k + more)):
        assert gemm_time(H200, *larger) >= base * (1 - 1e-12)


def test_arrays_give_what_scalars_give():
    m, n, k = np.array([[128], [4096]]), np.array([1024, 8192, 12288]), 4096
    table = gemm_time(A100, m, n, k)
    assert table.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert table[i, j] == gemm_time(A100, m[i, 0], n[j], k)


def test_large_square_product_on_h200_as_measured():
    """8192^3 on random bf16 data: 769 - 798 TFLOP/s (ml-engineering, matmul on H200)."""
    rate = gemm_flops(8192, 8192, 8192) / float(gemm_time(H200, 8192, 8192, 8192))
    assert 0.95 * 769e12 <= rate <= 1.02 * 798e12


@pytest.mark.parametrize(("size", "tflops"), [(2048, 195), (4096, 258), (8192, 291)])
def test_square_products_on_a100_as_nvidia_plots_them(size, tflops):
    """cuBLAS 11 on A100, read off the figure of NVIDIA's A100 blog; short runs at full clock."""
    rate = gemm_flops(size, size, size) / float(gemm_time(A100, size, size, size))
    assert 0.80 * tflops * 1e12 <= rate <= 1.02 * tflops * 1e12


def test_one_more_tile_starts_a_new_wave():
    rows = 256 * 108  # with 128 columns: 108 tiles of 256 x 128, one for each unit
    full, spilled = gemm_time(A100, rows, 128, 65536), gemm_time(A100, rows + 1, 128, 65536)
    assert spilled > 1.2 * full


def test_splitting_an_inner_width_costs_efficiency():
    """A slice of an eighth takes more than an eighth of the time."""
    whole = linear_forward_time(H200, 2048, 10240, 8192)
    assert linear_forward_time(H200, 2048, 10240 / 8, 8192) > 1.2 * whole / 8


def test_widths_off_a_multiple_of_64_lose_speed():
    """h = 14400 over 8 ranks leaves 1800 (BLOOM preparation runs)."""
    assert alignment(14400, 1800) == 0.6
    assert alignment(14336, 1792) == 1.0


def test_backward_of_a_linear_costs_two_forwards_and_the_accumulation():
    forward = linear_forward_time(A100, 8192, 8192, 8192)
    backward = linear_backward_time(A100, 8192, 8192, 8192)
    assert 2.0 * forward < backward < 2.2 * forward


def test_casts_for_8_bit_cost_less_than_they_gain():
    h100 = rates("h100-sxm5-80g")
    forward, backward = cast_time(h100.bandwidth, 8192, 8192, 8192)
    half = gemm_time(h100, 8192, 8192, 8192)
    assert 0 < forward + backward < 0.5 * half
