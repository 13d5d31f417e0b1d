"""Collectives of FSDP2 and DTensor, checkpoints that stop early, and the host's part of ZeRO-3."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.architecture import Architecture
from costmodels.configuration import Configuration
from costmodels.costs import Affine
from costmodels.edge_time import stages_of
from costmodels.layer_time import last_product
from costmodels.rates import rates_of
from costmodels.sharded_time import shares, streams
from costmodels.stack import load_stack
from costmodels.step import even_layers, step_time
from costmodels.time import time_costs
from hardware_db import parse_gpus

LLAMA = Architecture(
    name="llama", family="llama", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128,
    ffn=14336, vocab=128256, max_seq_len=4096, gated_mlp=True, activation="silu", norm="rmsnorm",
    norms_per_layer=2, tied_embeddings=False,
)  # fmt: skip


def configuration(stack, gpus, changes=None, **fields):
    loaded = load_stack(stack)
    time = loaded.time.model_copy(update=changes or {})
    defaults = {"precision": "bf16", "attention": "flash", "optimizer": "adamw", "pp": 1,
                "seq_len": 4096}  # fmt: skip
    return Configuration(
        architecture=LLAMA, cluster=parse_gpus(gpus),
        stack=loaded.model_copy(update={"time": time}), **{**defaults, **fields},
    )  # fmt: skip


def step(cfg, recompute="none"):
    layers = even_layers(LLAMA.layers, cfg.pp)
    return step_time(time_costs(cfg), cfg, layers, {recompute: layers})


def test_an_early_stop_saves_the_last_product_of_every_checkpoint():
    """2 x tokens x ffn x hidden of a layer's products: 27 % of its forward here."""
    one = {"dp": 8, "zero_stage": 3, "micro_batch": 4}
    stops, repeats = (
        configuration("fsdp2", "8xH100-80G", {"repeats_output": again}, **one)
        for again in (False, True)
    )
    saved = step(repeats, "full").parts["gemm"] - step(stops, "full").parts["gemm"]
    product = float(np.squeeze(last_product(stops, rates_of(stops))))
    assert saved == pytest.approx(LLAMA.layers * product)
    again = step(repeats, "full").parts["gemm"] - step(repeats).parts["gemm"]
    assert saved / again == pytest.approx(58.7 / 218.1, rel=0.1)
    halves = step(repeats, "every_2").parts["gemm"] - step(stops, "every_2").parts["gemm"]
    assert halves == pytest.approx(saved / 2)


def test_separate_gathers_are_counted_one_by_one():
    """Five gathers and two scatters for four: 7 / 4 of a layer's forward, 7 / 5 of its backward."""
    plain = {"sp_forward": 4.0, "sp_backward": 5.0}
    one = {"tp": 4, "dp": 1, "sequence_parallel": 1, "zero_stage": 0, "micro_batch": 4}
    apart, joint = (
        time_costs(configuration("kempner", "4xH200", changes, **one)) for changes in ({}, plain)
    )
    assert float(np.squeeze(apart.forward["tp"] / joint.forward["tp"])) == pytest.approx(7 / 4)
    assert float(np.squeeze(apart.backward["tp"] / joint.backward["tp"])) == pytest.approx(7 / 5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_shares_are_shares(accumulated, pp, reshards):
    cfg = configuration("kempner", "8x4xH200", {"stage_reshards": reshards}, pp=pp, tp=4,
                        dp=8 // pp, zero_stage=3, grad_accum=accumulated)  # fmt: skip
    for share in shares(cfg):
        assert np.all((np.asarray(share) >= 0) & (np.asarray(share) <= 1))
    assert shares(configuration("deepspeed", "8xH200", dp=8, zero_stage=3)) == (1.0, 1.0, 1.0)


def test_gradients_that_wait_are_scattered_once():
    """Twice the micro-batches take less than twice the communication where only one scatters."""
    fields = {"dp": 32, "zero_stage": 3, "seq_len": 256}
    for stack, late in (("kempner", True), ("fsdp2", False)):
        few, many = (
            step(configuration(stack, "8x4xH200", grad_accum=m, **fields)).parts["dp"]
            for m in (4, 8)
        )
        assert (many < 1.9 * few) == late


def test_a_pipeline_scatters_after_its_last_backward():
    """32-bit gradients of half of 8.0e9 parameters over 16 ranks cannot hide, at 370 GB/s."""
    fields = {"pp": 2, "dp": 16, "zero_stage": 3, "micro_batch": 1}
    times = [
        step(configuration("fsdp2", "4x8xH100-80G", grad_accum=m, **fields)).parts["dp"]
        for m in (8, 16)
    ]
    least = 3.9e9 * 4 * 15 / 16 / 370e9
    assert least < times[0] < 3 * least
    assert times[1] < 1.2 * times[0]


def test_layers_that_stay_gathered_are_gathered_once_a_micro_batch():
    """32 bits of gradients either way; 16-bit weights once at stage 2 and twice at stage 3.

    On 10 Gb/s nothing hides them: 7.2e9 of 8.0e9 parameters are layers.
    """
    slow = {"dp": 16, "micro_batch": 1, "grad_accum": 4, "seq_len": 512}
    two, three = (
        configuration("fsdp2", "2x8xA100-80G", {"hidden_cost": 0.0}, zero_stage=z, **slow)
        for z in (2, 3)
    )
    slow_network = two.cluster.with_overrides(inter_bandwidth=1.25e9)
    two, three = (replace(c, cluster=slow_network) for c in (two, three))
    ratio = step(two).parts["dp"] / step(three).parts["dp"]
    assert ratio == pytest.approx((2 + 4) / (2 + 2 + 4), abs=0.03)
    eight = replace(two, grad_accum=8)
    assert step(eight).parts["dp"] == pytest.approx(2 * step(two).parts["dp"], rel=0.02)


def test_torchtitan_sums_over_replicas_in_every_micro_batch():
    """FSDP of one shard: 8 bytes of 6.98e9 parameters of layers, four times a step on 10 Gb/s."""
    cfg = configuration("fsdp2", "2x8xA100-80G", dp=16, zero_stage=0, seq_len=512, grad_accum=4)
    cfg = replace(cfg, cluster=cfg.cluster.with_overrides(inter_bandwidth=1.25e9))
    each, once = (step(replace(cfg, grad_accum=m)).parts["dp"] for m in (4, 1))
    assert 3.5 * once < each < 4 * once
    assert each > 4 * 8 * 6.9e9 * 15 / 16 / 1.25e9


@pytest.mark.parametrize("stage", [2, 3])
def test_a_pipeline_gathers_once_a_step_at_either_stage(stage):
    fields = {"pp": 2, "dp": 16, "micro_batch": 1, "grad_accum": 8}
    times = {
        z: step(configuration("fsdp2", "4x8xH100-80G", zero_stage=z, **fields)).parts["dp"]
        for z in (stage, 3)
    }
    assert times[stage] == pytest.approx(times[3])


def test_a_head_on_every_rank_takes_as_long_as_without_tensor_parallelism():
    one = {"tp": 4, "dp": 1, "zero_stage": 0}
    whole = time_costs(configuration("kempner", "4xH200", {"head_split": False}, **one)).head
    alone = time_costs(configuration("kempner", "1xH200", dp=1, zero_stage=0)).head
    assert float(np.squeeze(whole["gemm"])) == pytest.approx(float(np.squeeze(alone["gemm"])))
    assert float(np.squeeze(whole["tp"])) == 0.0


def test_hooks_bound_small_micro_batches():
    """Qwen's README, 7B under ZeRO-3 on two A100: 4.0 s for 8 x 256 tokens, 4.5 s for 1,024."""
    fields = {"dp": 2, "zero_stage": 3, "grad_accum": 8}
    small = configuration("deepspeed", "2xA100-80G", seq_len=256, **fields)
    large = replace(small, seq_len=1024)
    times = [float(step(c, "full").total) for c in (small, large)]
    assert times[1] < 1.4 * times[0]
    assert times[0] == pytest.approx(4.0, rel=0.2)
    assert step(replace(small, zero_stage=2), "full").total < 0.6 * times[0]


def test_megatron_deepspeed_runs_the_same_hooks():
    """Whatever builds the layers, DeepSpeed hooks their modules at ZeRO-3."""
    small = configuration("megatron-deepspeed", "8xA100-80G", dp=4, tp=2, zero_stage=3, seq_len=256)
    hooked, free = (step(replace(small, zero_stage=z)).total for z in (3, 2))
    assert hooked > 1.5 * free
    large = replace(small, micro_batch=16, seq_len=4096)
    assert step(large).total < 1.1 * step(replace(large, zero_stage=2)).total


@given(st.lists(st.floats(0, 1e3), min_size=8, max_size=8))
def test_sums_of_costs_are_sums(values):
    a, b = Affine(*values[:3]), Affine(*values[3:6])
    at = values[6:]
    assert float(a.plus(b).at(*at)) == pytest.approx(float(a.at(*at)) + float(b.at(*at)))


def test_gathers_over_thousands_of_ranks_no_longer_hide():
    """A ring's hops outgrow a layer: each GPU's work is the same, its step is not."""
    fields = {"zero_stage": 3, "micro_batch": 1, "grad_accum": 1}
    few, many = (
        float(step(configuration("megatron-deepspeed", f"{n}x8xH100", dp=8 * n, **fields)).total)
        for n in (16, 1024)
    )
    replicated = float(
        step(configuration("megatron-deepspeed", "1024x8xH100", dp=8192, micro_batch=1)).total
    )
    assert many > 3 * few
    assert many > 2 * replicated


def test_wide_weights_take_twice_as_long_to_gather():
    fields = {"dp": 64, "zero_stage": 3}
    wide, narrow = (
        streams(stages_of(cfg), rates_of(cfg))
        for cfg in (
            configuration("deepspeed", "8x8xA100-80G", precision=precision, **fields)
            for precision in ("fp32", "bf16")
        )
    )
    assert 1.7 < float(wide.gather / narrow.gather) < 2  # latencies are the same
