"""Host memory and drives: what offload, loading and saving take."""

import numpy as np
import pytest

from costmodels.buckets import zero_buckets
from costmodels.host import host_costs, nvme_costs, offloaded_bytes
from costmodels.params import total_parameters
from costmodels.stack import load_stack
from tests.costmodels.memory_cases import LLAMA2_7B, LLAMA2_70B, configuration

PARAMETERS = total_parameters(LLAMA2_7B)
PROCESS = load_stack("deepspeed").memory.host_process


def line(c, name, offloaded=None):
    """Bytes of one rank, all layers offloaded unless said otherwise."""
    n = c.architecture.layers
    cost = host_costs(c)[name]
    o = n if offloaded is None else offloaded
    return float(np.sum(cost.const + cost.per_layer * n + cost.per_offloaded * o))


@pytest.mark.parametrize(
    ("stage", "accumulation", "grad_dtype", "expected"),
    [(2, 1, "auto", 18), (2, 8, "auto", 20), (3, 1, "auto", 18), (3, 1, "fp32", 20)],
)
def test_deepspeed_offload(stage, accumulation, grad_dtype, expected):
    """Counted in DeepSpeed 0.19's ZeRO code, live bytes after three steps on two ranks."""
    c = configuration(
        LLAMA2_7B, "deepspeed", dp=8, zero_stage=stage, grad_accum=accumulation,
        offload_optimizer=1, grad_dtype=grad_dtype,
    )  # fmt: skip
    assert float(offloaded_bytes(c, 8.0)) == expected
    staging = 2 * LLAMA2_7B.vocab * LLAMA2_7B.hidden * (stage < 3)
    assert line(c, "training") - PROCESS == pytest.approx(expected * PARAMETERS / 8 + staging)


def test_parameter_offload_adds_the_weights():
    c = configuration(
        LLAMA2_7B, "deepspeed", dp=8, zero_stage=3, offload_optimizer=1, offload_parameters=1
    )
    assert line(c, "training") - PROCESS == pytest.approx((18 + 2) * PARAMETERS / 8)


def test_no_offload_needs_no_host_memory_while_training():
    c = configuration(LLAMA2_7B, "deepspeed", dp=8, zero_stage=3)
    assert line(c, "training") == PROCESS
    assert line(c, "training", 0) == PROCESS


def test_partial_offload_is_linear():
    c = configuration(LLAMA2_70B, "deepspeed", dp=8, zero_stage=3, offload_optimizer=1)
    none, half, whole = (line(c, "training", o) for o in (0, 40, 80))
    assert half - none == pytest.approx(whole - half)


def test_drives_hold_states_and_the_host_only_buffers():
    c = configuration(
        LLAMA2_70B, "deepspeed", dp=8, zero_stage=3, offload_optimizer=2, offload_parameters=2
    )
    cost = nvme_costs(c)
    held = float(np.sum(cost.const + (cost.per_layer + cost.per_offloaded) * 80))
    # master, moments and gradient 16, and 16-bit weights
    assert held == pytest.approx(18 * total_parameters(LLAMA2_70B) / 8)
    group = zero_buckets(LLAMA2_70B).sub_group
    buffers = 4 * 4 * group + 2 * (6 * 100_000_000 + group)
    flat = 2 * total_parameters(LLAMA2_70B) / 8
    assert line(c, "training") - PROCESS == pytest.approx(buffers + flat, rel=0.01)


def test_loading_with_and_without_zero_init():
    whole = configuration(LLAMA2_7B, "deepspeed", dp=8, zero_stage=2)
    shard = configuration(LLAMA2_7B, "deepspeed", dp=8, zero_stage=3)
    assert line(whole, "loading") - PROCESS == pytest.approx(2 * PARAMETERS)
    assert line(shard, "loading") - PROCESS == pytest.approx(2 * PARAMETERS / 8, rel=0.01)
    megatron = configuration(LLAMA2_7B, "megatron", dp=8)
    assert line(megatron, "loading") == line(megatron, "training")


def test_saving_gathers_whole_weights_at_stage_3():
    c = configuration(LLAMA2_7B, "deepspeed", dp=8, zero_stage=3)
    node = 8 * (line(c, "saving") - line(c, "training"))
    assert node == pytest.approx(2 * PARAMETERS + 8 * 4 * PARAMETERS / 8, rel=0.01)


def test_bucket_sizes_of_the_bundle():
    """The emitter writes these; two layers or the largest table may be gathered."""
    small, large = zero_buckets(LLAMA2_7B), zero_buckets(LLAMA2_70B)
    assert small.reduce_bucket == 50_000_000
    assert large.reduce_bucket == 8192**2
    assert large.max_live > 2 * 850_000_000
    assert small.persistence_threshold == 40960
    assert small.max_live == small.max_reuse_distance
