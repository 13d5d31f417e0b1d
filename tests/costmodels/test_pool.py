"""What PyTorch's caching allocator comes to hold, and units of FSDP without neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.activations import layer_tensors
from costmodels.kernels import Batch, Kernels
from costmodels.memory import memory_costs
from costmodels.memory_profile import Logits
from costmodels.numeric import GIB
from costmodels.params import total_parameters
from costmodels.peak import Peak, peak
from tests.costmodels.memory_cases import (
    LLAMA2_7B,
    LLAMA3_3B,
    LLAMA3_8B,
    configuration,
    with_memory,
)

INTERNLM_7B = replace(LLAMA2_7B, name="internlm-7b", vocab=103168)
INTERNLM_20B = replace(
    INTERNLM_7B, name="internlm-20b", layers=60, hidden=5120, heads=40, kv_heads=40, ffn=13824
)
INTERNEVO_FSDP = with_memory("internevo", engine="fsdp", step_bytes=12.0, step_apart=0.0)


def peak_of(c, layers=None, granularity="full") -> Peak:
    counts = np.array(layers) if layers else c.architecture.layers / c.pp
    return peak(memory_costs(c), counts, {granularity: counts})


# --- published runs: InternEvo, "Training performance", GPU memory, A800, 4 micro-batches of 2048


def shown(c, layers=None) -> float:
    """What nvidia-smi shows of the largest stage. [GiB]"""
    return float(np.max(peak_of(c, layers).pool + memory_costs(c).fixed)) / GIB


@pytest.mark.parametrize(
    ("layers", "printed"), [((8,) * 4, 69), ((7, 7, 6, 6, 6), 62), ((6, 6, 5, 5, 5, 5), 56)]
)
def test_internevo_zero_on_pipelines(layers, printed):
    c = configuration(
        INTERNLM_7B, "internevo", seq_len=2048, zero_stage=1, pp=len(layers), grad_accum=4
    )
    assert shown(c, layers) == pytest.approx(printed, rel=0.03)


@pytest.mark.parametrize(
    ("arch", "dp", "tp", "printed"),
    [
        (INTERNLM_7B, 3, 1, 72),
        (INTERNLM_7B, 4, 1, 56),
        (INTERNLM_7B, 3, 2, 38),
        (INTERNLM_20B, 8, 1, 78),
        (INTERNLM_20B, 16, 1, 40),
        (INTERNLM_20B, 2, 8, 39),
    ],
)
def test_internevo_fsdp(arch, dp, tp, printed):
    c = configuration(arch, INTERNEVO_FSDP, seq_len=2048, zero_stage=3, dp=dp, tp=tp, grad_accum=4)
    assert shown(c) == pytest.approx(printed, rel=0.08)


# --- published runs: torchtune README, Llama-3.2-3B, 2 x 4096 tokens, one A100

LADDER = {"seq_len": 4096, "micro_batch": 2, "cross_entropy": "chunked"}


@pytest.mark.parametrize(
    ("fields", "granularity", "printed"),
    [
        ({}, "none", 42.9),
        ({"gradients": {"bf16": 0}}, "full", 23.1),
        ({"gradients": {"bf16": 0}, "checkpoints_offloaded": True}, "full", 21.8),
    ],
)
def test_torchtune_ladder(fields, granularity, printed):
    stack = with_memory("torchtune", norm="fused", mlp="fused", **fields)
    found = peak_of(configuration(LLAMA3_3B, stack, **LADDER), granularity=granularity)
    assert float(np.max(found.allocated)) / GIB == pytest.approx(printed, rel=0.02)


# --- published profiles: Hetu-Galvatron, Llama-2-7B of one layer, ZeRO-3 on eight GPUs


def test_a_stage_of_one_layer_gathers_no_next_one():
    """904 MiB of states, 1,357 MiB more at the peak; one sequence of 4,096 tokens a GPU."""
    logits = {"eager": Logits(forward=4, saved=2, backward=4)}
    stack = with_memory(
        "fsdp2", layout="fused", qkv_kept=False, linear_inputs="sharded", reduce_bytes=2.0,
        separate_units=True, logits=logits,
    )  # fmt: skip
    one = replace(LLAMA2_7B, layers=1)
    c = configuration(one, stack, seq_len=4096, dp=8, zero_stage=3, optimizer="adam")
    found = peak_of(c, granularity="none")
    assert float(np.max(found.allocated)) / 2**20 == pytest.approx(904 + 1357, rel=0.02)


# --- laws


@given(factor=st.floats(1, 4), apart=st.one_of(st.none(), st.floats(0, 8)), batch=st.integers(1, 8))
def test_a_pool_holds_at_least_what_is_reserved_and_no_limit_moves(factor, apart, batch):
    common = {"micro_batch": batch, "seq_len": 2048}
    plain = peak_of(configuration(LLAMA3_8B, "hf", **common))
    stack = with_memory("hf", varied_factor=factor, step_apart=apart)
    found = peak_of(configuration(LLAMA3_8B, stack, **common))
    assert np.all(found.pool >= found.reserved)
    assert np.array_equal(found.device, plain.device)
    assert np.array_equal(plain.pool, plain.reserved)


@given(one=st.floats(1, 4), more=st.floats(0, 2))
def test_more_varied_batches_take_more(one, more):
    few, many = (
        peak_of(configuration(LLAMA3_8B, with_memory("hf", varied_factor=f), seq_len=8192)).pool
        for f in (one, one + more)
    )
    assert np.all(many >= few)


def test_blocks_of_the_step_add_up_with_those_before_it():
    c = configuration(LLAMA2_7B, with_memory("hf", step_apart=2.0, allocator_factor=1.0))
    found = peak_of(c)
    states = float(np.max(found.phases["optimizer"]))
    assert float(np.max(found.pool)) > states + 2 * total_parameters(LLAMA2_7B)


def test_copied_keys_and_values_are_as_wide_as_the_query():
    batch, tokens = Batch(1, 4096, 4096), 4096
    kept = [
        sum(float(t.size) for t in layer_tensors(LLAMA3_3B, Kernels(kv_expanded=e), batch, False))
        for e in (False, True)
    ]
    head, arch = LLAMA3_3B.head_dim, LLAMA3_3B
    assert kept[1] - kept[0] == 2 * 2 * tokens * head * (arch.heads - arch.kv_heads)


def test_a_kept_gather_buffer_is_one_whole_input():
    common = {"tp": 4, "sequence_parallel": 1, "grad_accum": 2}
    sizes = [
        float(np.max(peak_of(configuration(LLAMA2_7B, stack, **common)).phases["optimizer"]))
        for stack in ("megatron", with_memory("megatron", gather_buffer=True))
    ]
    assert sizes[1] - sizes[0] == 4096 * LLAMA2_7B.hidden * 2
