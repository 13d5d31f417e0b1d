"""FLOPs: closed forms of the papers, counting by hand, and the two conventions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.architecture import Architecture, LatentAttention, MixtureOfExperts
from costmodels.flops import (
    attended_tokens,
    attention_matrix_parameters,
    core_attention_flops,
    flops_utilisation,
    forward_flops,
    global_layers,
    hardware_flops_per_step,
    head_flops,
    layer_flops,
    mean_core_attention_flops,
    mean_linear_flops,
    mlp_matrix_parameters,
    model_flops_per_step,
    recompute_flops,
)
from costmodels.params import active_parameters, attention_parameters, mlp_parameters


def gpt(layers, hidden, heads, vocab=51200, seq_len=2048):
    return Architecture(
        name="gpt",
        family="gpt2",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=4 * hidden,
        vocab=vocab,
        max_seq_len=seq_len,
        gated_mlp=False,
        activation="gelu",
        norm="layernorm",
        norms_per_layer=2,
        tied_embeddings=True,
    )


GPT3 = gpt(96, 12288, 96)
LLAMA = replace(
    gpt(32, 4096, 32, vocab=128256), kv_heads=8, ffn=14336, gated_mlp=True, tied_embeddings=False
)
MIXTRAL = replace(LLAMA, vocab=32000, moe=MixtureOfExperts(8, 2, 14336))
DEEPSEEK = replace(
    LLAMA,
    mla=LatentAttention(1536, 512, 128, 64, 128),
    moe=MixtureOfExperts(64, 6, 1408, shared_ffn=2816, first_dense_layers=1),
)


@given(st.integers(1, 128), st.sampled_from([8, 16, 96]), st.integers(1, 64), st.integers(1, 4096))
def test_megatron_closed_form(layers, heads, batch, seq_len):
    """72 B L s h^2 (1 + s/6h + V/12hL), Korthikanti et al. 2022, equation 7."""
    arch = gpt(layers, heads * 64, heads)
    h, vocab = arch.hidden, arch.vocab
    form = 72 * batch * layers * seq_len * h**2
    form *= 1 + seq_len / (6 * h) + vocab / (12 * h * layers)
    assert float(model_flops_per_step(arch, seq_len, batch)) == pytest.approx(form, rel=1e-12)


def test_gpt3_training_compute():
    """3.14e23 FLOP for 300 B tokens, counted as 6 N D (Brown et al. 2020, appendix D)."""
    tokens = 300e9
    counted = float(model_flops_per_step(GPT3, 2048, tokens / 2048, causal=True))
    assert counted == pytest.approx(3.14e23, rel=0.03)


def test_narayanan_with_full_recomputation():
    """96 B s L h^2 (1 + s/6h + V/16hL), Narayanan et al. 2021, section 5.1."""
    batch, s, h, layers, vocab = 1536, 2048, 12288, 96, 51200
    form = 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
    ours = hardware_flops_per_step(GPT3, s, batch, recompute="full")
    assert float(ours) == pytest.approx(form, rel=1e-12)


def test_selective_recomputation_of_gpt():
    more = hardware_flops_per_step(GPT3, 2048, 1, "selective") - model_flops_per_step(GPT3, 2048)
    assert float(more) == pytest.approx(4 * 2048**2 * 12288 * 96, rel=1e-9)


@given(st.integers(1, 300), st.integers(0, 320))
def test_attended_tokens_by_counting(seq_len, window):
    seen = [min(i, window) if window else i for i in range(1, seq_len + 1)]
    assert float(attended_tokens(seq_len, window, causal=True)) == pytest.approx(np.mean(seen))
    assert float(attended_tokens(seq_len, window)) == max(seen)


@given(st.integers(2, 200_000), st.sampled_from([LLAMA, MIXTRAL, DEEPSEEK]))
def test_conventions_differ_by_half_the_attention(seq_len, arch):
    full = float(core_attention_flops(arch, seq_len))
    causal = float(core_attention_flops(arch, seq_len, causal=True))
    assert causal / full == pytest.approx((seq_len + 1) / (2 * seq_len))


def test_share_of_attention_at_8k():
    """At s = 8192 and h = 4096, 33 % (full) and 17 % (causal) of GPT's linear FLOPs."""
    arch = gpt(1, 4096, 32)
    linear = mean_linear_flops(arch)
    assert float(core_attention_flops(arch, 8192)) / linear == pytest.approx(0.333, abs=1e-3)
    causal = float(core_attention_flops(arch, 8192, causal=True))
    assert causal / linear == pytest.approx(0.167, abs=1e-3)


def test_matrices_are_the_parameters_without_norms():
    """No bias, no norm between the projections: every weight is used once a token."""
    assert attention_matrix_parameters(LLAMA) == attention_parameters(LLAMA).total
    assert mlp_matrix_parameters(LLAMA) == mlp_parameters(LLAMA).total
    latent_norms = 1536 + 512
    assert attention_matrix_parameters(DEEPSEEK) + latent_norms == (
        attention_parameters(DEEPSEEK).total
    )


def test_routed_layers_compute_with_the_active_parameters():
    norms, tables = 32 * 2 * 4096 + 4096, 2 * 32000 * 4096
    linear = active_parameters(MIXTRAL) - norms - tables
    assert 32 * mean_linear_flops(MIXTRAL) == 2 * linear


def test_six_flops_a_parameter_and_token():
    """6 N within a few percent where the sequence is short (Kaplan et al. 2020)."""
    n = active_parameters(LLAMA) - LLAMA.vocab * LLAMA.hidden
    tokens = 16 * 128
    assert float(model_flops_per_step(LLAMA, 128, 16)) / (6 * n * tokens) == pytest.approx(
        1, abs=0.01
    )


def test_latent_attention_core():
    per_pair = 2 * 32 * (128 + 64 + 128)
    assert float(core_attention_flops(DEEPSEEK, 1000)) == 1000 * per_pair


def test_sliding_windows_cost_less():
    """Gemma 3: five of six layers see 1024 tokens; 62 layers hold ten full ones."""
    local = replace(LLAMA, layers=62, sliding_window=1024, global_layer_every=6)
    assert global_layers(local) == 10
    whole = replace(local, sliding_window=0)
    mixed = 62 * float(mean_core_attention_flops(local, 8192))
    assert mixed == pytest.approx(
        10 * float(core_attention_flops(local, 8192))
        + 52 * float(core_attention_flops(local, 1024))
    )
    assert float(forward_flops(local, 1024)) == float(forward_flops(whole, 1024))
    assert global_layers(replace(local, global_layer_every=0)) == 0


def test_flash_attention_repeats_the_scores():
    """Forward 2 products, backward 5: with flash, hardware attention is 3.5 forwards."""
    plain = float(model_flops_per_step(LLAMA, 4096))
    flash = float(hardware_flops_per_step(LLAMA, 4096, flash=True))
    core = 4096 * 32 * float(core_attention_flops(LLAMA, 4096))
    assert flash - plain == pytest.approx(0.5 * core)
    selective = hardware_flops_per_step(LLAMA, 4096, recompute="selective", flash=True)
    assert float(selective) == flash
    full = hardware_flops_per_step(LLAMA, 4096, recompute="full", flash=True)
    assert float(full) - flash == pytest.approx(4096 * 32 * float(layer_flops(LLAMA, 4096)))


def test_recompute_granularities():
    assert float(recompute_flops(LLAMA, 4096, "none")) == 0
    full = float(recompute_flops(LLAMA, 4096, "full"))
    assert 0 < float(recompute_flops(LLAMA, 4096, "selective")) < full
    assert float(recompute_flops(LLAMA, 4096, "every_4")) == full
    with pytest.raises(ValueError, match="unknown recompute 'half'"):
        recompute_flops(LLAMA, 4096, "half")


def test_encoders_have_no_logits():
    assert head_flops(replace(LLAMA, kind="encoder")) == 0
    assert head_flops(LLAMA) == 2 * 4096 * 128256


def test_arrays_equal_scalars():
    lengths = np.array([128, 4096, 131072])
    many = hardware_flops_per_step(DEEPSEEK, lengths, 4, "selective", causal=True)
    one = [float(hardware_flops_per_step(DEEPSEEK, int(s), 4, "selective", True)) for s in lengths]
    assert many.tolist() == one


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "gpus", "batch", "time", "mfu"),
    [(48, 6144, 64, 8, 4, 1.10, 41.5), (96, 12288, 96, 64, 64, 13.75, 51.4)],
)
def test_utilisation_as_published(layers, hidden, heads, gpus, batch, time, mfu):
    """22B and 175B on A100, 312 TFLOP/s: Korthikanti et al. 2022, table 5."""
    flops = model_flops_per_step(gpt(layers, hidden, heads), 2048, batch)
    assert 100 * float(flops_utilisation(flops, time, gpus, 312e12)) == pytest.approx(mfu, abs=0.2)
