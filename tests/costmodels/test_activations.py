"""Bytes a layer keeps: published closed forms, exact figures of PyTorch, and laws."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.activations import outside_saved, saved_by_group
from costmodels.backward_memory import full_layer
from costmodels.costs import GRANULARITIES
from costmodels.kernels import Batch, Kernels
from costmodels.recompute_memory import kept, working
from costmodels.sharing import on_rank
from tests.costmodels.memory_cases import (
    DEEPSEEK_V2_CUT,
    LLAMA2_7B,
    LLAMA2_70B,
    LLAMA3_8B,
    MIXTRAL,
    configuration,
    gpt,
    with_memory,
)

GPT = gpt(24, 2048, 16)


def per_token(arch, kernels, sequences=2, seq=4096, routed=False):
    kept_bytes = saved_by_group(arch, kernels, Batch(sequences, seq, seq), routed)
    return float(sum(kept_bytes.values())) / (sequences * seq)


def test_korthikanti():
    """34 s b h + 5 a s^2 b (arXiv 2205.05198, eq. 2), and 8 bytes of statistics a norm."""
    kernels = Kernels(attention="eager", dropout=0.1)
    h, a, s = GPT.hidden, GPT.heads, 1024
    assert per_token(GPT, kernels, seq=s) == 34 * h + 5 * a * s + 16


@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize("sequence", [0, 1])
def test_korthikanti_tensor_parallel(t, sequence):
    """10 + 24/t and 5as/(ht) without, all over t with sequence parallelism (ibid., 4.2)."""
    c = configuration(
        GPT, "megatron-deepspeed", seq_len=1024, attention="eager", dropout=0.1, tp=t,
        sequence_parallel=sequence,
    )  # fmt: skip
    h, scores, statistics = GPT.hidden, 5 * GPT.heads * 1024, 16
    size = float(on_rank(c, full_layer(c))) / 1024
    if sequence:
        assert size == pytest.approx((34 * h + scores + statistics) / t)
    else:
        assert size == pytest.approx(h * (10 + 24 / t) + scores / t + statistics)


@pytest.mark.parametrize(
    ("arch", "kernels", "hidden_units"),
    [  # PyTorch 2.13, transformers 5.24, saved-tensor hooks, s = 4096
        (LLAMA2_7B, Kernels(), 45.5),
        (LLAMA2_7B, Kernels(compute="amp"), 55.5),
        (LLAMA2_7B, Kernels(attention="eager"), 237.5),
        (LLAMA3_8B, Kernels(), 49.0),
        (LLAMA2_70B, Kernels(), 48.5),
    ],
)
def test_llama_in_units_of_the_hidden_width(arch, kernels, hidden_units):
    assert per_token(arch, kernels) / arch.hidden == pytest.approx(hidden_units, abs=0.05)


def test_families():
    """Dropout of 0.1, four times the hidden width, bf16. (ibid.)"""
    h, a, s = 2048, 16, 1024
    flash, eager = Kernels(dropout=0.1), Kernels(attention="eager", dropout=0.1)
    bloom = replace(GPT, family="bloom", positional="alibi")
    opt = replace(GPT, family="opt", activation="relu")
    neox = replace(GPT, family="gpt_neox", positional="rope", parallel_residual=True)
    gelu_new = replace(GPT, activation="gelu_new")
    sequences = 2
    assert per_token(bloom, eager, sequences, s) == 34 * h + 16 + 7 * a * s
    assert per_token(opt, flash, sequences, s) == pytest.approx(26 * h + 4 * a + 16, rel=1e-6)
    assert per_token(neox, flash, sequences, s) == pytest.approx(38 * h + 4 * a + 16, rel=1e-6)
    assert per_token(gelu_new, eager, sequences, s) == 58 * h + 16 + 5 * a * s


def test_flash_attention_keeps_nothing_quadratic():
    short, long = (per_token(LLAMA2_7B, Kernels(), 1, s) for s in (2048, 8192))
    assert long == pytest.approx(short, rel=1e-5)
    eager = Kernels(attention="eager")
    growth = per_token(LLAMA2_7B, eager, 1, 8192) - per_token(LLAMA2_7B, eager, 1, 2048)
    assert growth == 6 * LLAMA2_7B.heads * (8192 - 2048)


def test_loss_keeps_the_fp32_log_softmax():
    batch = Batch(2, 1024, 1024)
    whole = outside_saved(LLAMA3_8B, Kernels(), batch)
    without = outside_saved(LLAMA3_8B, Kernels(head_loss=False), batch)
    assert float(whole - without) == 4 * 2048 * LLAMA3_8B.vocab + 8 * 2048 + 4


def test_eight_bit_inputs():
    """Transformer Engine keeps norm outputs and the product in 8 bits, the output twice."""
    wide = configuration(LLAMA3_8B, "megatron")
    narrow = configuration(LLAMA3_8B, "megatron", precision="fp8")
    saved = float(on_rank(wide, full_layer(wide)) - on_rank(narrow, full_layer(narrow)))
    h, q, f = LLAMA3_8B.hidden, 4096, LLAMA3_8B.ffn
    assert saved / wide.seq_len == 2 * h + f - q


@pytest.mark.parametrize("arch", [LLAMA2_7B, LLAMA3_8B, GPT, MIXTRAL, DEEPSEEK_V2_CUT])
@pytest.mark.parametrize("attention", ["flash", "efficient", "eager"])
@pytest.mark.parametrize("compute", ["bf16", "amp", "fp32"])
def test_scalars_equal_arrays(arch, attention, compute):
    kernels = Kernels(compute=compute, attention=attention, dropout=0.1)
    sequences = np.array([[1], [2], [5]])
    arrays = saved_by_group(arch, kernels, Batch(sequences, 512, 512), arch.moe is not None)
    for i, b in enumerate((1, 2, 5)):
        one = saved_by_group(arch, kernels, Batch(b, 512, 512), arch.moe is not None)
        for group, size in one.items():
            assert float(size) == float(np.broadcast_to(arrays[group], (3, 1))[i, 0])


@given(
    b=st.integers(2, 16),
    s=st.integers(1, 64),
    attention=st.sampled_from(["flash", "efficient", "eager"]),
)
def test_more_tokens_keep_more(b, s, attention):
    kernels, s = Kernels(attention=attention), s * 32
    small = saved_by_group(LLAMA2_7B, kernels, Batch(b, s, s))
    more = saved_by_group(LLAMA2_7B, kernels, Batch(b + 1, s, s))
    longer = saved_by_group(LLAMA2_7B, kernels, Batch(b, 2 * s, 2 * s))
    for group in ("attn", "mlp", "norm"):
        assert float(small[group]) < float(more[group])
        assert float(longer[group]) >= 2 * float(small[group]) - 64


@pytest.mark.parametrize("stack", ["deepspeed", "megatron-deepspeed", "megatron", "fsdp2", "hf"])
@pytest.mark.parametrize("arch", [LLAMA2_7B, LLAMA3_8B, GPT, MIXTRAL])
def test_coarser_checkpoints_keep_less_and_work_more(stack, arch):
    c = configuration(arch, stack, micro_batch=2)
    sizes, sets = kept(c), working(c, np.asarray(True))
    for fine, coarse in itertools.pairwise(GRANULARITIES):
        assert float(sizes[coarse]) <= float(sizes[fine])
        if coarse not in ("selective", "full"):
            assert float(sets[coarse]) >= float(sets[fine])
    assert float(sizes["full"]) == 2 * c.tokens * arch.hidden
    assert float(sizes["every_4"]) == float(sizes["full"]) / 4


def test_selective_keeps_matrix_products_and_attention():
    """6h + 4q + 4k + 4a + 4f a token where the policy saves every product."""
    c = configuration(LLAMA3_8B, "deepspeed")
    h, q, k, a, f = 4096, 4096, 1024, 32, 14336
    size = float(kept(c)["selective"]) / c.seq_len
    assert size == pytest.approx(6 * h + 4 * q + 4 * k + 4 * a + 4 * f, rel=1e-5)


def test_selective_on_unfused_attention_drops_the_scores():
    """34 s b h remain (Korthikanti et al. 2022, table 2)."""
    c = configuration(GPT, "megatron-deepspeed", seq_len=1024, attention="eager", dropout=0.1)
    assert float(kept(c)["selective"]) / 1024 == 34 * GPT.hidden + 16


@given(t=st.sampled_from([1, 2, 4, 8]), c=st.sampled_from([1, 2, 4, 8]))
def test_context_parallel_divides_tokens(t, c):
    stack = with_memory("megatron", cp_copies=0)
    whole = configuration(LLAMA3_8B, stack, seq_len=65536, tp=t)
    part = configuration(LLAMA3_8B, stack, seq_len=65536, tp=t, cp=c)
    ratio = float(on_rank(whole, full_layer(whole)) / on_rank(part, full_layer(part)))
    assert ratio == pytest.approx(c, rel=1e-4)


@given(t=st.sampled_from([2, 4, 8]), sequence=st.sampled_from([0, 1]))
def test_tensor_parallel_never_keeps_more(t, sequence):
    for stack in ("deepspeed", "megatron", "fsdp2"):
        one = configuration(LLAMA3_8B, stack)
        many = configuration(LLAMA3_8B, stack, tp=t, sequence_parallel=sequence)
        whole, part = on_rank(one, full_layer(one)), on_rank(many, full_layer(many))
        assert float(whole) / t <= float(part) + 1 < float(whole)
