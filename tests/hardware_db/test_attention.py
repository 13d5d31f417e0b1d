"""Attention rates: published points, proxies and derived directions."""

import pytest

from hardware_db import gpu_names, load_gpu

DIRECTIONS = ("fwd", "bwd", "fwd+bwd")


@pytest.mark.parametrize(
    ("gpu", "generation", "direction", "head_dim", "causal", "seq_len", "tflops"),
    [
        ("a100-sxm4-80g", "FA2", "fwd+bwd", 128, True, 2048, 155),
        ("a100-sxm4-80g", "FA1", "fwd+bwd", 64, True, 16384, 97),
        ("h100-sxm5-80g", "FA2", "fwd", 128, True, 2048, 298),
        ("h100-sxm5-80g", "FA3", "fwd", 128, False, 16384, 648),
        ("h100-sxm5-80g", "FA3", "fwd", 256, True, 16384, 642),
        ("h100-sxm5-80g", "eager", "fwd+bwd", 64, True, 8192, 32),
        ("gb200-186g", "FA4", "fwd", 128, True, 4096, 1381),
    ],
)
def test_published_points(gpu, generation, direction, head_dim, causal, seq_len, tflops):
    curve = load_gpu(gpu).attention.curve(generation, direction, head_dim, causal)
    assert float(curve.at(seq_len)) == pytest.approx(tflops * 1e12)
    assert curve.kind == "measured"


def test_h200_rate_lies_between_a_step_and_another_kernel():
    """At 8k tokens, causal: 447 TFLOP/s of FlashAttention-3 in a Llama-3.1-8B step.

    644 forward and 541 backward of cuDNN 9.19 alone (NVIDIA/cudnn-frontend, benchmark results).
    """
    curve = load_gpu("h200-sxm-141g").attention.curve("FA3", "fwd+bwd", 128, True)
    assert 447e12 < float(curve.at(8192)) < 3.5e12 / (1 / 644 + 2.5 / 541)


def test_fa3_backward_is_that_of_its_paper():
    """Shah et al. 2024, figure 6: 542 TFLOP/s at 4k, head dimension 128, no mask; 422 at 2k, 64."""
    rates = load_gpu("h100-sxm5-80g").attention
    assert float(rates.curve("FA3", "bwd", 128, False).at(4096)) == pytest.approx(542e12, rel=0.02)
    assert float(rates.curve("FA3", "bwd", 64, False).at(2048)) == pytest.approx(422e12, rel=0.07)


def test_long_causal_rows_near_the_rate_without_a_mask():
    rates = load_gpu("h200-sxm-141g").attention
    masked, whole = (rates.curve("FA3", "fwd", 128, causal) for causal in (True, False))
    share = [float(masked.at(s)) / float(whole.at(s)) for s in (4096, 16384, 65536, 262144)]
    assert share == sorted(share)
    assert 0.98 < share[-1] < 1.0


def test_directions_agree_with_each_other():
    """Forward F/f and backward 2.5 F/b take about as long as both, 3.5 F/r."""
    for name in ("a100-sxm4-80g", "h100-sxm5-80g", "gb200-186g"):
        gpu = load_gpu(name)
        for generation in gpu.flash:
            f, b, r = (
                float(gpu.attention.curve(generation, d, 128, True).at(4096)) for d in DIRECTIONS
            )
            assert 1 / f + 2.5 / b == pytest.approx(3.5 / r, rel=0.04)


@pytest.mark.parametrize("name", gpu_names())
def test_every_usable_generation_has_rates(name):
    gpu = load_gpu(name)
    others = ("efficient", "eager") if gpu.launchable else ()
    peak = gpu.flops.get("fp16", gpu.flops["fp32"])
    for generation in (*gpu.flash, *others):
        for direction in DIRECTIONS:
            for head_dim in (64, 80, 128, 256):
                curve = gpu.attention.curve(generation, direction, head_dim, True)
                assert curve is not None
                assert 0 < max(curve.y) < 0.95 * peak
                assert curve.source


def test_what_a_gpu_cannot_run_has_no_rate():
    assert load_gpu("a100-sxm4-80g").attention.curve("FA3", "fwd", 128, True) is None
    assert load_gpu("v100-sxm2-32g").attention.curve("FA2", "fwd", 128, True) is None


def test_a_proxy_is_marked():
    curve = load_gpu("rtx4090-24g").attention.curve("FA2", "fwd+bwd", 128, True)
    assert curve.kind == "assumed"
    noted = [a for a in load_gpu("rtx4090-24g").assumed if a.topic == "attention"]
    assert noted
