"""Core attention: published rates come back out, and the laws of heads, windows and splits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.attention import (
    AttentionRates,
    attended_pairs,
    attention_flops,
    fill,
    flash_time,
    unfused_time,
)
from costmodels.gemm import GemmRates
from hardware_db import load_gpu

PLAIN_TORCH = (9.0, 11.0)  # softmax and dropout over scores in 16 bit


def kernel(gpu: str, generation: str, head_dim: int) -> AttentionRates:
    g = load_gpu(gpu)
    forward = g.attention.curve(generation, "fwd", head_dim, True)
    backward = g.attention.curve(generation, "bwd", head_dim, True)
    seq, rate = forward.arrays()
    return AttentionRates(seq, rate, backward.at(seq), g.sms)


@pytest.mark.parametrize(
    ("head_dim", "seq", "tflops"),
    [(64, 2048, 140), (64, 16384, 171), (128, 512, 99), (128, 2048, 155), (128, 16384, 189)],
)
def test_flash_attention_2_on_a100_as_its_authors_measure(head_dim, seq, tflops):
    """FlashAttention repository, flash2_a100_fwd_bwd_benchmark: 16k tokens, width 2048, causal."""
    batch_heads = 16384 // seq * (2048 // head_dim)
    flops = attention_flops(attended_pairs(seq), batch_heads, head_dim, head_dim)
    rates = kernel("a100-sxm4-80g", "FA2", head_dim)
    forward, backward = flash_time(rates, flops, seq, seq, batch_heads)
    assert 3.5 * flops / (forward + backward) == pytest.approx(tflops * 1e12, rel=0.015)


@pytest.mark.parametrize(
    ("head_dim", "seq", "tflops"),
    [(64, 1024, 40), (64, 2048, 43), (128, 2048, 76), (128, 4096, 79)],
)
def test_unfused_attention_on_a100_as_measured(head_dim, seq, tflops):
    """The same benchmark's PyTorch bars, not causal: the full square is worked on."""
    g = load_gpu("a100-sxm4-80g")
    rates = GemmRates(
        g.flops["fp16"], g.sms, g.memory_bandwidth * g.memory_efficiency,
        g.gemm.epsilon, g.gemm.gamma, g.gemm.beta, g.gemm.k0,
    )  # fmt: skip
    batch_heads = 16384 // seq * (2048 // head_dim)
    forward, backward = unfused_time(rates, seq, seq, batch_heads, head_dim, head_dim, PLAIN_TORCH)
    flops = attention_flops(float(seq) ** 2, batch_heads, head_dim, head_dim)
    assert 3.5 * flops / (forward + backward) == pytest.approx(tflops * 1e12, rel=0.12)


def test_kernels_get_faster_by_generation():
    flops = attention_flops(attended_pairs(4096), 128, 128, 128)
    times = [
        sum(flash_time(kernel("h100-sxm5-80g", name, 128), flops, 4096, 4096, 128))
        for name in ("FA1", "FA2", "FA3")
    ]
    assert times[0] > times[1] > times[2]


@given(st.integers(1, 1 << 18), st.integers(1, 1 << 18))
def test_a_window_never_adds_work_and_a_full_one_changes_nothing(seq, window):
    assert attended_pairs(seq, window=window) <= attended_pairs(seq)
    assert attended_pairs(seq, window=seq) == attended_pairs(seq)


def test_window_counts_as_enumerated():
    """Diagonal counted half, as in the published FLOP convention."""
    seq, window = 64, 16
    q, k = np.indices((seq, seq))
    inside = (k <= q) & (q - k < window)
    assert attended_pairs(seq, window=window) == pytest.approx(inside.sum(), rel=0.04)


def test_splits_share_the_work_evenly():
    assert attended_pairs(8192, cp=4) * 4 == attended_pairs(8192)
    cps = np.array([[1], [2], [8]])
    assert attended_pairs(8192, cp=cps).shape == (3, 1)


def test_few_heads_leave_units_idle():
    """8 heads of 1024 rows give 64 blocks for 108 units."""
    assert fill(8, 1024, 108) == pytest.approx(64 / 108)
    assert fill(np.array([1, 1000]), 8192, 108)[1] == 1.0
