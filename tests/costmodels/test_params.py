"""Parameter counts: published figures, and the laws of splitting them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.architecture import Architecture, LatentAttention, MixtureOfExperts
from costmodels.params import (
    active_parameters,
    attention_parameters,
    dense_on_rank,
    embedding_parameters,
    experts_on_rank,
    final_norm_parameters,
    head_parameters,
    is_routed,
    layer_parameters,
    mean_layer_parameters,
    mlp_parameters,
    norm_parameters,
    on_rank,
    padded_vocab,
    routed_layers,
    stage_parameters,
    total_parameters,
)

LLAMA = Architecture(
    name="llama3-70b",
    family="llama",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    ffn=28672,
    vocab=128256,
    max_seq_len=8192,
    gated_mlp=True,
    activation="silu",
    norm="rmsnorm",
    norms_per_layer=2,
    tied_embeddings=False,
)
GPT3 = Architecture(
    name="gpt3-175b",
    family="gpt2",
    layers=96,
    hidden=12288,
    heads=96,
    kv_heads=96,
    head_dim=128,
    ffn=49152,
    vocab=51200,
    max_seq_len=2048,
    gated_mlp=False,
    activation="gelu",
    norm="layernorm",
    norms_per_layer=2,
    tied_embeddings=True,
    bias="all",
    positional="learned",
    norm_bias=True,
)
MIXTRAL = replace(
    LLAMA,
    name="mixtral-8x7b",
    layers=32,
    hidden=4096,
    heads=32,
    ffn=14336,
    vocab=32000,
    moe=MixtureOfExperts(experts=8, top_k=2, ffn=14336),
)
DEEPSEEK_V3 = replace(
    LLAMA,
    name="deepseek-v3",
    layers=61,
    hidden=7168,
    heads=128,
    kv_heads=128,
    head_dim=192,
    ffn=18432,
    vocab=129280,
    moe=MixtureOfExperts(256, 8, 2048, shared_ffn=2048, first_dense_layers=3, correction_bias=True),
    mla=LatentAttention(1536, 512, 128, 64, 128),
)
ALL = (LLAMA, GPT3, MIXTRAL, DEEPSEEK_V3)
DEGREES = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize(
    ("arch", "count"),
    [
        (LLAMA, 70_553_706_496),  # safetensors total
        (MIXTRAL, 46_702_792_704),
        (DEEPSEEK_V3, 671_026_419_200),
        (GPT3, 174_615_846_912),
    ],
)
def test_published_counts(arch, count):
    assert total_parameters(arch) == count


def test_active_parameters():
    assert active_parameters(MIXTRAL) == 12_879_925_248
    assert active_parameters(DEEPSEEK_V3) == 37_552_297_472
    assert active_parameters(LLAMA) == total_parameters(LLAMA)


def test_gpt_closed_form():
    h = GPT3.hidden
    assert layer_parameters(GPT3).total == 12 * h * h + 13 * h
    assert total_parameters(GPT3) == 96 * (12 * h * h + 13 * h) + (51200 + 2048) * h + 2 * h


def test_layer_is_the_sum_of_its_parts():
    for arch in ALL:
        for routed in (False, True) if arch.moe else (False,):
            parts = (
                attention_parameters(arch) + mlp_parameters(arch, routed) + norm_parameters(arch)
            )
            assert parts == layer_parameters(arch, routed)


def test_model_is_the_sum_of_its_stages():
    """Two stages of the untied model; the tied one has its token table twice."""
    for arch in ALL:
        first = stage_parameters(arch, arch.layers - 7, first=1)
        last = stage_parameters(arch, 7, last=1)
        copied = arch.vocab * arch.hidden if arch.tied_embeddings else 0
        assert float((first + last).total) == pytest.approx(
            total_parameters(arch) + copied, rel=1e-12
        )
        alone = stage_parameters(arch, arch.layers, first=1, last=1)
        assert float(alone.total) == pytest.approx(total_parameters(arch), rel=1e-12)


def test_which_layers_are_routed():
    assert [is_routed(DEEPSEEK_V3, i) for i in range(5)] == [False] * 3 + [True] * 2
    assert routed_layers(DEEPSEEK_V3) == 58
    every_second = replace(MIXTRAL, moe=MixtureOfExperts(8, 2, 64, layer_frequency=2))
    assert [is_routed(every_second, i) for i in range(4)] == [False, True, False, True]
    for arch in (*ALL, every_second):
        assert routed_layers(arch) == sum(is_routed(arch, i) for i in range(arch.layers))


def test_head_is_nothing_where_tied():
    assert head_parameters(GPT3).total == 0
    assert head_parameters(LLAMA).total == LLAMA.vocab * LLAMA.hidden
    assert head_parameters(replace(GPT3, head_bias=True)).total == GPT3.vocab


def test_routed_count_needs_experts():
    with pytest.raises(ValueError, match=r"gpt3-175b: it has no routed layers"):
        mlp_parameters(GPT3, routed=True)


@given(st.sampled_from(ALL), DEGREES, DEGREES)
@settings(deadline=None)
def test_ranks_hold_the_whole_once_and_the_copies_again(arch, tp, ep):
    """Sum over ranks = whole + what every rank after the first repeats."""
    if arch.moe is None:
        ep = 1
    parts = layer_parameters(arch, routed=arch.moe is not None)
    dense = tp * dense_on_rank(arch, parts, tp)
    assert dense == parts.dense + (tp - 1) * parts.replicated
    routed = tp * ep * experts_on_rank(parts, tp, ep)
    assert routed == parts.routed + (tp - 1) * parts.expert_replicated


@given(st.sampled_from(ALL), DEGREES, DEGREES)
@settings(deadline=None)
def test_more_ranks_never_hold_more_each(arch, tp, ep):
    parts = stage_parameters(arch, 10, first=1, last=1)
    here = on_rank(arch, parts, tp, ep)
    assert on_rank(arch, parts, 2 * tp, ep) < here
    assert on_rank(arch, parts, tp, 2 * ep) <= here


def test_arrays_equal_scalars():
    parts = mean_layer_parameters(DEEPSEEK_V3)
    tp, ep = np.array([1, 2, 8]), np.array([1, 4, 8])
    many = on_rank(DEEPSEEK_V3, parts, tp, ep)
    assert many.tolist() == [
        on_rank(DEEPSEEK_V3, parts, int(t), int(e)) for t, e in zip(tp, ep, strict=True)
    ]
    stages = stage_parameters(LLAMA, np.array([39, 41]), np.array([1, 0]), np.array([0, 1]))
    assert float(np.sum(stages.total)) == total_parameters(LLAMA)


def test_tensor_parallel_copies_are_a_thousandth():
    """Treating every parameter as split is wrong by less than 0.1 %."""
    for arch in (LLAMA, GPT3):
        parts = layer_parameters(arch)
        assert float(on_rank(arch, parts, 8)) / (parts.total / 8) - 1 < 1e-3


def test_keys_and_values_split_at_most_over_their_heads():
    one = replace(LLAMA, kv_heads=1)
    parts = attention_parameters(one)
    assert dense_on_rank(one, parts, 8) == parts.sharded / 8 + parts.kv


@given(st.integers(1, 300_000), DEGREES)
def test_padding_is_the_next_multiple(vocab, tp):
    padded = int(padded_vocab(replace(GPT3, vocab=vocab), tp))
    assert padded % (128 * tp) == 0
    assert vocab <= padded < vocab + 128 * tp


def test_gpt3_vocabulary_is_padded_as_in_megatron():
    assert int(padded_vocab(replace(GPT3, vocab=50257), 8)) == 51200


def test_ends_of_unusual_models():
    opt = replace(GPT3, embedding_width=512, hidden=1024, position_rows=2050, vocab=50272)
    assert embedding_parameters(opt).total == 50272 * 512 + 512 * 1024 + 2050 * 1024
    assert head_parameters(opt).total == 1024 * 512
    assert final_norm_parameters(replace(opt, final_norm=False)).total == 0


@given(
    st.sampled_from(ALL),
    st.sampled_from(["layers", "vocab", "hidden", "heads"]),
)
def test_larger_models_have_more(arch, what):
    larger = replace(arch, **{what: getattr(arch, what) + 64})
    assert total_parameters(larger) > total_parameters(arch)
