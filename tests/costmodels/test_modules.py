"""Recomputation of named modules, and experts that tensor-parallel ranks do not share."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.held import layer_held
from costmodels.recompute_memory import kept, working
from costmodels.time import time_costs
from tests.costmodels.memory_cases import (
    DEEPSEEK_V2_CUT,
    LLAMA3_8B,
    MIXTRAL,
    configuration,
    with_memory,
)

MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act")
TOKENS = 4096


def saved(arch, *modules, **fields):
    """What a layer gives up when modules of it are recomputed. [byte]"""
    stack = with_memory("megatron", selective="modules", recompute_modules=modules)
    sizes = kept(configuration(arch, stack, seq_len=TOKENS, micro_batch=1, **fields))
    return float(np.max(sizes["none"] - sizes["selective"]))


def test_flash_attention_leaves_core_attention_little_to_give_up():
    assert saved(LLAMA3_8B, "core_attn") == 4 * 32 * TOKENS + 24  # log-sum-exp, random state


@pytest.mark.parametrize("tp", [1, 2])
def test_norms_give_up_the_inputs_of_two_linears(tp):
    both = 2 * 2 * TOKENS * LLAMA3_8B.hidden
    assert saved(LLAMA3_8B, "layernorm", tp=tp, sequence_parallel=tp - 1) == both / tp


def test_a_dense_feed_forward_keeps_its_input_alone():
    inner = 3 * 2 * TOKENS * LLAMA3_8B.ffn  # gate, up, product
    assert saved(LLAMA3_8B, "mlp") == inner
    assert saved(LLAMA3_8B, "moe") == 0


def test_experts_give_up_the_input_of_their_second_linear():
    assert saved(MIXTRAL, "moe_act") == 2 * 2 * TOKENS * 14336
    assert saved(MIXTRAL, "moe") > saved(MIXTRAL, "moe_act")
    assert saved(MIXTRAL, "mlp") == 0


def test_latent_attention_projects_query_key_and_value_again():
    heads, width = DEEPSEEK_V2_CUT.heads, 2 * (128 + 64) + 128
    assert saved(DEEPSEEK_V2_CUT, "mla_up_proj") == 2 * TOKENS * heads * width


@given(st.sets(st.sampled_from(MODULES)), st.sampled_from(MODULES))
def test_another_module_never_keeps_more_than_its_own_input(modules, more):
    for arch in (LLAMA3_8B, MIXTRAL, DEEPSEEK_V2_CUT):
        grown = saved(arch, *sorted({*modules, more})) - saved(arch, *sorted(modules))
        assert grown >= -2 * TOKENS * arch.hidden


def test_the_recomputed_layer_is_whole_again_while_it_runs_backward():
    stack = with_memory("megatron", selective="modules", recompute_modules=("mlp",))
    c = configuration(LLAMA3_8B, stack, seq_len=TOKENS, micro_batch=1)
    sizes, needs = kept(c), working(c, 1)
    assert needs["selective"] - needs["none"] == pytest.approx(sizes["none"] - sizes["selective"])


def test_unshared_experts_are_whole_and_see_their_own_tokens():
    """--expert-tensor-parallel-size 1: at twice the ep the same weights, half the tokens."""
    common = {"tp": 2, "sequence_parallel": 1, "seq_len": TOKENS, "micro_batch": 1, "dp": 4}
    shared = configuration(MIXTRAL, "megatron", ep=4, **common)
    alone = configuration(MIXTRAL, "megatron", ep=8, etp=1, **common)
    assert float(layer_held(shared).routed) == pytest.approx(float(layer_held(alone).routed))
    assert float(layer_held(shared).routed_shards) == float(layer_held(alone).routed_shards) == 1
    less = float(np.max(kept(shared)["none"] - kept(alone)["none"]))
    assert less == 2 * 2 * TOKENS * MIXTRAL.hidden / 2
    same = replace(shared, etp=2)
    assert float(np.max(kept(same)["none"])) == float(np.max(kept(shared)["none"]))


def again(arch, *modules, selective="modules", **fields):
    """Time that recomputing modules of a layer adds. [s]"""
    stack = with_memory("megatron", selective=selective, recompute_modules=modules)
    costs = time_costs(configuration(arch, stack, seq_len=TOKENS, micro_batch=1, **fields))
    return costs, float(np.max(sum(costs.recompute["selective"].values())))


def test_core_attention_takes_what_the_attention_policy_takes():
    _, modules = again(LLAMA3_8B, "core_attn")
    _, policy = again(LLAMA3_8B, selective="attention")
    assert modules == policy


@given(st.sets(st.sampled_from(MODULES)), st.sampled_from(MODULES), st.sampled_from((1, 4)))
def test_another_module_takes_no_less_and_all_no_more_than_the_layer(modules, more, tp):
    for arch in (LLAMA3_8B, MIXTRAL, DEEPSEEK_V2_CUT):
        fields = {"tp": tp, "sequence_parallel": int(tp > 1)}
        costs, few = again(arch, *sorted(modules), **fields)
        _, many = again(arch, *sorted({*modules, more}), **fields)
        whole = float(np.max(sum(costs.recompute["full"].values())))
        assert 0 <= few <= many <= whole * (1 + 1e-12)


def test_a_feed_forward_is_most_of_a_dense_layer_and_a_norm_next_to_nothing():
    costs, mlp = again(LLAMA3_8B, "mlp")
    _, norms = again(LLAMA3_8B, "layernorm")
    gemm = float(np.max(costs.forward["gemm"]))
    products = 3 * 14336 / (3 * 14336 + 2 * 4096 + 2 * 1024)
    assert products * gemm < mlp < products * gemm * 1.1
    assert norms < 0.05 * gemm


def test_up_projections_are_told_from_products_of_the_same_width():
    """16 heads of 128 over tp 4 are as wide as the latent of 512; arrays are as their elements."""
    mla = DEEPSEEK_V2_CUT.mla
    arch = replace(DEEPSEEK_V2_CUT, heads=16, mla=replace(mla, q_lora_rank=0, kv_lora_rank=512))
    degrees = (1, 2, 4)
    alone = [again(arch, "mla_up_proj", tp=tp, sequence_parallel=0)[1] for tp in degrees]
    stack = with_memory("megatron", selective="modules", recompute_modules=("mla_up_proj",))
    many = configuration(arch, stack, seq_len=TOKENS, micro_batch=1, tp=np.array(degrees)[:, None])
    costs = time_costs(many)
    together = np.ravel(sum(costs.recompute["selective"].values()))
    np.testing.assert_allclose(together, alone)
    share = np.ravel(costs.recompute["selective"]["gemm"] / costs.forward["gemm"])
    assert share[2] <= share[0] * 1.01  # what is not split over tp is no up-projection
