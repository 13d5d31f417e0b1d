"""Model states: the bytes a parameter that frameworks document, and how they shard."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.held import layer_held, leading_held
from costmodels.optimizer_states import EIGHT_BIT, OPTIMIZERS, state_bytes
from costmodels.params import layer_parameters, total_parameters
from costmodels.states import states
from tests.costmodels.memory_cases import (
    DEEPSEEK_V2_CUT,
    LLAMA2_7B,
    LLAMA3_3B,
    MIXTRAL,
    configuration,
    with_memory,
)


def bytes_of_all(c, part):
    """Of a whole model on one stage."""
    cost = getattr(states(c), part)
    return float(np.sum(cost.const + np.asarray(cost.per_layer) * c.architecture.layers))


def per_parameter(c):
    """Weights, gradients and optimizer states of a parameter of the model."""
    total = total_parameters(c.architecture)
    return sum(bytes_of_all(c, p) for p in ("weights", "gradients", "optimizer")) / total


@pytest.mark.parametrize("d", [1, 2, 8, 64])
@pytest.mark.parametrize(
    ("stage", "expected"),
    [(0, (16, 0)), (1, (4, 12)), (2, (2, 14)), (3, (0, 16))],
)
def test_deepspeed(d, stage, expected):
    """Rajbhandari et al. 2020, arXiv 1910.02054, section 5, K = 12."""
    c = configuration(LLAMA2_7B, "deepspeed", dp=d, zero_stage=stage)
    assert per_parameter(c) == pytest.approx(expected[0] + expected[1] / d)


@pytest.mark.parametrize("d", [1, 4, 32])
def test_megatron(d):
    """18, and 6 + 12/d with the distributed optimizer (Megatron-Core documentation)."""
    stack = with_memory("megatron", vocab_multiple=0)
    assert per_parameter(configuration(LLAMA2_7B, stack, dp=d)) == pytest.approx(18)
    c = configuration(LLAMA2_7B, stack, dp=d, zero_stage=1)
    assert per_parameter(c) == pytest.approx(6 + 12 / d)


def test_context_parallel_ranks_shard_states_too():
    stack = with_memory("megatron", vocab_multiple=0)
    c = configuration(LLAMA2_7B, stack, dp=2, cp=4, zero_stage=1)
    assert per_parameter(c) == pytest.approx(6 + 12 / 8)


@pytest.mark.parametrize(
    ("stack", "fields", "expected"),
    [
        ("fsdp2", {"dp": 8, "zero_stage": 3}, 16 / 8),
        ("hf", {}, 2 + 2 + 4),  # pure bf16, moments too
        ("hf-amp", {}, 16),
        ("hf-amp", {"dp": 2}, 20),  # DistributedDataParallel's buckets are a second copy
        ("deepspeed", {"precision": "fp32"}, 16),
        ("deepspeed", {"precision": "fp32", "zero_stage": 1, "dp": 4}, 8 + 12 / 4),  # a clone
        ("deepspeed", {"precision": "fp32", "zero_stage": 3, "dp": 4}, 16 / 4),
        ("deepspeed", {"precision": "fp16"}, 16),
        ("megatron-deepspeed", {"precision": "fp16"}, 16),  # 20 while the optimizer steps
        ("megatron-deepspeed", {"zero_stage": 1, "dp": 4}, 8 + 12 / 4),  # BF16_Optimizer
    ],
)
def test_other_stacks(stack, fields, expected):
    c = configuration(LLAMA2_7B, with_memory(stack, vocab_multiple=0), **fields)
    assert per_parameter(c) == pytest.approx(expected)


def test_step_extras_of_deepspeed():
    """fp32 gradients 4, and a flattened shard 2; a sub-group of them at stage 3."""
    total = total_parameters(LLAMA2_7B)
    extras = [
        bytes_of_all(configuration(LLAMA2_7B, "deepspeed", dp=8, zero_stage=z), "step") / total
        for z in range(4)
    ]
    assert extras[:3] == pytest.approx([4, 6 / 8, 6 / 8])
    assert extras[3] * total == pytest.approx(4 * 100_000_000)


def test_accumulation_doubles_stage_2_gradients():
    once, often = (
        bytes_of_all(
            configuration(LLAMA2_7B, "deepspeed", dp=8, zero_stage=2, grad_accum=m), "gradients"
        )
        for m in (1, 4)
    )
    assert often == pytest.approx(2 * once)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("sgd", 0.0), ("momentum", 4.0), ("adam", 8.0), ("adamw", 8.0), ("lion", 4.0),
        ("adam8bit", 2.03125), ("muon", 4.0),
    ],
)  # fmt: skip
def test_optimizer_state_of_a_matrix(optimizer, expected):
    assert state_bytes(optimizer, "layer", LLAMA2_7B) == expected


def test_adafactor_factors_unless_its_shards_are_flat():
    q = LLAMA2_7B.hidden
    assert state_bytes("adafactor", "table", LLAMA2_7B) == pytest.approx(4 / q + 4 / 32000)
    assert state_bytes("adafactor", "layer", LLAMA2_7B) < 0.01
    assert state_bytes("adafactor", "layer", MIXTRAL) < 0.01
    assert state_bytes("adafactor", "layer", LLAMA2_7B, flat=True) == 4


def test_small_tensors_and_muon_elsewhere():
    assert state_bytes("adam8bit", "norm", LLAMA3_3B) == 8  # 3072 elements stay 32-bit
    assert state_bytes("adam8bit", "norm", LLAMA2_7B) == EIGHT_BIT
    assert state_bytes("muon", "table", LLAMA2_7B) == 8


def test_unknown_optimizer_names_the_known_ones():
    with pytest.raises(ValueError, match=r"optimizer 'sophia': expected one of sgd, .*muon"):
        state_bytes("sophia", "layer", LLAMA2_7B)


@given(
    optimizer=st.sampled_from(OPTIMIZERS),
    stack=st.sampled_from(["deepspeed", "megatron", "fsdp2"]),
    d=st.sampled_from([1, 2, 8, 64]),
    t=st.sampled_from([1, 2, 8]),
)
def test_sharding_more_never_holds_more(optimizer, stack, d, t):
    def size(zero, replicas):
        c = configuration(LLAMA2_7B, stack, dp=replicas, tp=t, zero_stage=zero, optimizer=optimizer)
        return per_parameter(c)

    flat = 4.0 if optimizer == "adafactor" and stack == "deepspeed" else 0.0
    stages = [size(z, d) for z in range(4)]
    for less, more in itertools.pairwise(stages):
        assert more <= less + flat + 1e-9
    assert size(3, 2 * d) <= size(3, d) + 1e-9


def test_experts_shard_over_their_own_replicas():
    """dp 8, ep 8: each expert has one replica, so ZeRO divides only the rest."""
    c = configuration(MIXTRAL, "megatron", dp=8, ep=8, zero_stage=1)
    layer = layer_held(c)
    parameters = layer_parameters(MIXTRAL, routed=True)
    assert float(layer.routed) == pytest.approx(float(parameters.routed) / 8)
    assert float(layer.over(True)) == pytest.approx(
        float(parameters.dense) / 8 + float(parameters.routed) / 8
    )


def test_leading_dense_layers_are_counted_once():
    c = configuration(DEEPSEEK_V2_CUT, with_memory("megatron", vocab_multiple=0), dp=8, ep=8)
    total = 4 * layer_held(c).total + leading_held(c, 1).total
    dense = layer_parameters(DEEPSEEK_V2_CUT)
    routed = layer_parameters(DEEPSEEK_V2_CUT, routed=True)
    assert float(total) == pytest.approx(
        float(dense.total + 3 * routed.dense) + 3 * float(routed.routed) / 8
    )


def test_embedding_first_head_last():
    stack = with_memory("megatron", vocab_multiple=0)
    untied = states(configuration(LLAMA2_7B, stack, pp=4)).weights.const
    table = 2 * LLAMA2_7B.vocab * LLAMA2_7B.hidden
    np.testing.assert_allclose(untied, [table, 0, 0, table + 2 * LLAMA2_7B.hidden])
    tied = states(configuration(LLAMA3_3B, stack, pp=2)).weights.const
    one = 2 * LLAMA3_3B.vocab * LLAMA3_3B.hidden  # a copy on the last stage too
    np.testing.assert_allclose(tied, [one, one + 2 * LLAMA3_3B.hidden])


def test_deepspeed_copies_the_embedding_to_tensor_parallel_ranks():
    """Live bytes of AutoTP over two ranks: 12 * 0.539 of all parameters, the embedding whole."""
    tiny = replace(
        LLAMA2_7B, layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=176, vocab=256
    )
    c = configuration(tiny, "deepspeed", tp=2, zero_stage=1, optimizer="adamw")
    assert bytes_of_all(c, "optimizer") / total_parameters(tiny) == pytest.approx(6.47, abs=0.01)


def test_offload_moves_states_and_gradients():
    here = states(configuration(LLAMA2_7B, "deepspeed", dp=8, zero_stage=3))
    away = states(configuration(LLAMA2_7B, "deepspeed", dp=8, zero_stage=3, offload_optimizer=1))
    assert float(away.optimizer.per_layer + away.optimizer.per_offloaded) == 0
    assert float(away.gradients.per_layer + away.gradients.per_offloaded) == 0
    assert float(np.sum(away.optimizer.const)) == 0
    assert float(here.weights.per_layer) == float(away.weights.per_layer)
    both = states(
        configuration(
            LLAMA2_7B, "deepspeed", dp=8, zero_stage=3, offload_optimizer=1, offload_parameters=1
        )
    )
    assert float(both.weights.per_layer) == 0
