"""Step time: published runs, the laws a planner relies on, and the solver's composition."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.architecture import Architecture, MixtureOfExperts
from costmodels.calibration import SOFT, soft_ridge
from costmodels.configuration import Configuration
from costmodels.costs import GRANULARITIES
from costmodels.stack import load_stack
from costmodels.step import even_layers, stage_parts, step_time
from costmodels.time import time_costs
from hardware_db import parse_gpus


def gpt(layers, hidden, heads, vocab=51200, seq=2048):
    return Architecture(
        name=f"gpt-{layers}x{hidden}", family="gpt2", layers=layers, hidden=hidden, heads=heads,
        kv_heads=heads, head_dim=hidden // heads, ffn=4 * hidden, vocab=vocab, max_seq_len=seq,
        gated_mlp=False, activation="gelu", norm="layernorm", norms_per_layer=2,
        tied_embeddings=True, bias="all", positional="learned", norm_bias=True,
    )  # fmt: skip


LLAMA3_70B = Architecture(
    name="llama3-70b", family="llama", layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128,
    ffn=28672, vocab=128256, max_seq_len=8192, gated_mlp=True, activation="silu", norm="rmsnorm",
    norms_per_layer=2, tied_embeddings=False,
)  # fmt: skip
LLAMA3_405B = replace(
    LLAMA3_70B, name="llama3-405b", layers=126, hidden=16384, heads=128, ffn=53248
)
LLAMA2_7B = replace(
    LLAMA3_70B, name="llama2-7b", layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008,
    vocab=32000, max_seq_len=4096,
)  # fmt: skip


def configuration(arch, gpus, stack="megatron", **fields):
    cluster = parse_gpus(gpus) if isinstance(gpus, str) else gpus
    defaults = {
        "precision": "bf16", "attention": "flash", "optimizer": "adamw", "pp": 1,
        "seq_len": arch.max_seq_len,
    }  # fmt: skip
    return Configuration(
        architecture=arch, cluster=cluster, stack=load_stack(stack), **{**defaults, **fields}
    )


def step(cfg, recompute="none", offloaded=False):
    layers = even_layers(cfg.architecture.layers, cfg.pp)
    counts = {recompute: layers}
    return step_time(time_costs(cfg), cfg, layers, counts, layers if offloaded else 0)


# Published runs ---------------------------------------------------------------------------------

# arXiv 2205.05198, table 5: seconds with full recomputation; selective with sequence parallelism
KORTHIKANTI = {
    "22B": (gpt(48, 6144, 64), 1, {"tp": 8, "micro_batch": 4}, 1.42, 1.10),
    "175B": (gpt(96, 12288, 96), 8,
             {"tp": 8, "pp": 8, "virtual_stages": 3, "grad_accum": 64}, 18.13, 13.75),
    "530B": (gpt(105, 20480, 128), 35,
             {"tp": 8, "pp": 35, "virtual_stages": 3, "grad_accum": 280}, 49.05, 37.83),
    "1T": (gpt(128, 25600, 160), 64, {"tp": 8, "pp": 64, "grad_accum": 512}, 94.42, 71.49),
}  # fmt: skip


@pytest.mark.parametrize("name", KORTHIKANTI)
def test_megatron_on_a100_as_published(name):
    arch, nodes, fields, full, selective = KORTHIKANTI[name]
    common = {"precision": "fp16", "attention": "eager", **fields}
    baseline = configuration(arch, f"{nodes}x8xA100-80G", **common)
    assert step(baseline, "full").total == pytest.approx(full, rel=0.06)
    present = configuration(arch, f"{nodes}x8xA100-80G", sequence_parallel=1, **common)
    assert step(present, "selective").total == pytest.approx(selective, rel=0.06)


@pytest.mark.parametrize(
    ("arch", "gpus", "fields", "seconds"),
    [
        (LLAMA3_70B, 64, {"tp": 4, "pp": 4, "cp": 2, "dp": 2, "virtual_stages": 5}, 14.66),
        (LLAMA3_70B, 2048, {"tp": 4, "pp": 4, "cp": 2, "dp": 64, "virtual_stages": 5}, 14.66),
        (LLAMA3_405B, 512, {"tp": 8, "pp": 8, "cp": 2, "dp": 4, "virtual_stages": 8}, 19.81),
    ],
)
def test_nemo_on_h100_as_published(arch, gpus, fields, seconds):
    """NVIDIA dgxc-benchmarking, Llama 3.1 pre-training in bf16, sequence 8192."""
    cfg = configuration(
        arch, f"{gpus // 8}x8xH100-80G", "nemo",
        grad_accum=64, sequence_parallel=1, zero_stage=1, **fields,
    )  # fmt: skip
    assert step(cfg).total == pytest.approx(seconds, rel=0.04)


def test_torchtitan_on_a100_as_published():
    """2162 tokens/s a GPU: Llama 2 13B, 64 A100, FSDP2, no checkpointing; norms not yet fused."""
    arch = replace(LLAMA2_7B, layers=40, hidden=5120, heads=40, kv_heads=40, ffn=13824)
    cfg = configuration(arch, "8x8xA100-80G", "fsdp2", dp=64, micro_batch=2, zero_stage=3)
    profile = cfg.stack.time.model_copy(update={"eager_norm": True})
    then = replace(cfg, stack=cfg.stack.model_copy(update={"time": profile}))
    assert step(then).total == pytest.approx(2 * 4096 / 2162, rel=0.12)


# Laws -------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["deepspeed", "megatron", "megatron-deepspeed", "fsdp2"]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 4]),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([1, 8]),
)
def test_parts_add_up_and_scalars_agree_with_arrays(stack, tp, pp, micro_batch, zero, m):
    fields = {"tp": tp, "dp": 32 // (tp * pp), "micro_batch": micro_batch, "zero_stage": zero,
              "grad_accum": m}  # fmt: skip
    one = step(configuration(LLAMA2_7B, "4x8xA100-80G", stack, pp=pp, **fields), "full")
    assert sum(one.parts.values()) == pytest.approx(float(one.total))
    assert all(value >= -1e-12 for value in one.parts.values())
    columns = {name: np.array([[value], [value]]) for name, value in fields.items()}
    two = step(configuration(LLAMA2_7B, "4x8xA100-80G", stack, pp=pp, **columns), "full")
    assert two.total.shape == (2,)
    assert two.total == pytest.approx(np.full(2, float(one.total)), rel=1e-12)


def test_one_rank_neither_communicates_nor_waits():
    parts = step(configuration(LLAMA2_7B, "1xA100-80G", "deepspeed")).parts
    for name in ("tp", "cp", "ep", "dp", "pp", "bubble", "offload"):
        assert parts[name] == 0


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]), st.sampled_from([0, 1, 2, 3]))
def test_a_faster_network_never_hurts(tp, pp, zero):
    slow = parse_gpus("4x8xA100-80G")
    fast = slow.with_overrides(inter_bandwidth=2 * slow.node.inter_bandwidth)
    fields = {"tp": tp, "pp": pp, "dp": 32 // (tp * pp), "zero_stage": zero, "grad_accum": 4}
    times = [step(configuration(LLAMA2_7B, c, "deepspeed", **fields)).total for c in (slow, fast)]
    assert times[1] <= times[0] * (1 + 1e-12)


@pytest.mark.parametrize("stack", ["deepspeed", "megatron", "fsdp2"])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_recomputing_more_never_takes_less(stack, zero):
    cfg = configuration(LLAMA2_7B, "4x8xA100-80G", stack, dp=32, zero_stage=zero, grad_accum=2)
    times = [step(cfg, g).total for g in ("none", "selective", "full")]
    assert times == sorted(times)
    assert times[2] > times[0]
    segments = [times[2], *(step(cfg, g).total for g in ("every_2", "every_4"))]
    if cfg.stack.time.repeats_output:
        assert segments == pytest.approx([times[2]] * 3)
    else:  # a segment goes without one product, however many layers it has
        assert segments == sorted(segments)


def test_full_recomputation_costs_about_a_third():
    """Korthikanti et al. 2022, table 4: 39 % of a layer; less of a step with its head."""
    cfg = configuration(LLAMA3_70B, "8x8xH100-80G", tp=8, dp=8, sequence_parallel=1, grad_accum=8)
    assert 1.2 < step(cfg, "full").total / step(cfg).total < 1.4


@pytest.mark.parametrize(("tier", "more"), [(1, 1.0), (2, 3.0)])
def test_offload_pays_for_the_cpu_and_the_drives(tier, more):
    cfg = configuration(LLAMA2_7B, "8xA100-80G", "deepspeed", dp=8, zero_stage=2)
    there = step(cfg)
    away = step(replace(cfg, offload_optimizer=tier), offloaded=True)
    assert away.total > there.total + more
    assert away.parts["optimizer"] == 0
    # 6.7e9 parameters at 0.4 - 0.7 s per 1e9 on a node's CPUs
    assert away.parts["offload"] > 6.7 * 0.25


def test_megatron_copies_gradients_to_the_host_once_a_step():
    cfg = configuration(LLAMA2_7B, "8xA100-80G", "megatron", dp=8, zero_stage=1,
                        offload_optimizer=1)  # fmt: skip
    once, often = (
        step(replace(cfg, grad_accum=m), offloaded=True).parts["offload"] for m in (1, 512)
    )
    assert often == pytest.approx(once)
    # torch's CPU Adam at 80 bytes a parameter, a tenth to seven tenths of 409.6 GB/s reached
    assert 6.7 * 80 / (0.7 * 409.6) < once < 6.7 * 80 / (0.1 * 409.6)


def unhooked(cfg):
    """Without the host's time in ZeRO-3's hooks, under which short transfers hide."""
    time = cfg.stack.time.model_copy(update={"host_zero3": 0.0})
    return replace(cfg, stack=cfg.stack.model_copy(update={"time": time}))


@pytest.mark.parametrize(("zero", "trips"), [(1, 1), (2, 15), (3, 16)])
def test_deepspeed_adds_up_through_the_gpu(zero, trips):
    """Both ways 2 x 6.7e9 / 8 bytes each; at stages 2 and 3 nothing here is long enough to hide."""
    cfg = configuration(LLAMA2_7B, "8xA100-80G", "deepspeed", dp=8, zero_stage=zero, seq_len=64,
                        offload_optimizer=1)  # fmt: skip
    cfg = unhooked(cfg)
    link = cfg.cluster.node.pcie_bandwidth
    more = (
        step(replace(cfg, grad_accum=16), offloaded=True).parts["offload"]
        - step(cfg, offloaded=True).parts["offload"]
    )
    most = 2 * trips * 2 * 6.8e9 / 8 / link
    assert (0.9 if zero == 1 else 0.1) * most < more <= most * 17 / 16


def test_the_backward_hides_gradients_on_their_way_to_the_host():
    cfg = configuration(LLAMA2_7B, "8xA100-80G", "deepspeed", dp=8, zero_stage=2, grad_accum=64,
                        micro_batch=4, offload_optimizer=1)  # fmt: skip
    few = step(replace(cfg, grad_accum=1), offloaded=True).parts["offload"]
    assert step(cfg, offloaded=True).parts["offload"] < 1.15 * few


def test_fsdp_adds_offloaded_gradients_on_the_cpu():
    """12 bytes a parameter and further micro-batch, at most 70 % of 409.6 GB/s reached."""
    cfg = configuration(LLAMA2_7B, "8xA100-80G", "fsdp2", dp=8, zero_stage=3,
                        offload_optimizer=1, offload_parameters=1)  # fmt: skip
    one, nine = (step(replace(cfg, grad_accum=m), offloaded=True).parts["offload"] for m in (1, 9))
    assert nine - one > 8 * 6.7e9 * 12 / (0.7 * 409.6e9)


def test_each_offloaded_layer_costs_the_same():
    cfg = configuration(LLAMA2_7B, "8xA100-80G", "deepspeed", dp=8, zero_stage=3,
                        offload_optimizer=1)  # fmt: skip
    costs, layers = time_costs(cfg), np.array([32])
    totals = [step_time(costs, cfg, layers, {}, o).total for o in (0, 8, 16, 32)]
    assert totals == sorted(totals)
    assert totals[3] - totals[2] == pytest.approx(2 * (totals[1] - totals[0]))


def test_offloaded_parameters_stream_over_the_host_link():
    """Two fetches of 13.5 GB over 8 links: at least 2 x 13.5 / 8 / 25 s each micro-batch."""
    cfg = configuration(LLAMA2_7B, "8xA100-80G", "deepspeed", dp=8, zero_stage=3, seq_len=64)
    cfg = unhooked(cfg)
    away = replace(cfg, offload_parameters=1)
    assert step(away).total > step(cfg).total
    assert step(away).total > 2 * 13.4e9 / 8 / 25e9


def test_zero_3_hides_under_enough_work():
    small = configuration(LLAMA2_7B, "4x8xA100-80G", "fsdp2", dp=32, zero_stage=3, seq_len=256)
    large = replace(small, seq_len=4096, micro_batch=4)
    share = [step(c).parts["dp"] / step(c).total for c in (small, large)]
    assert share[0] > 0.2
    assert share[1] < 0.06


def test_fp8_gains_and_fp32_loses():
    def at(precision, attention="flash"):
        fields = {"tp": 4, "dp": 2, "grad_accum": 8, "precision": precision}
        return step(configuration(LLAMA3_70B, "8xH100-80G", attention=attention, **fields)).total

    assert 1.2 < at("bf16") / at("fp8") < 1.9
    assert at("fp32", "eager") > 4 * at("bf16")


def test_experts_cost_what_a_token_visits():
    """8 experts, 2 visited, computes about as a dense feed-forward of twice the width."""
    moe = MixtureOfExperts(experts=8, top_k=2, ffn=14336)
    base = replace(LLAMA2_7B, ffn=14336, kv_heads=8)
    fields = {"dp": 8, "micro_batch": 4, "ep": 1}
    dense = step(configuration(replace(base, ffn=28672), "8xH100-80G", **fields)).parts["gemm"]
    routed = step(configuration(replace(base, moe=moe), "8xH100-80G", **fields)).parts
    assert routed["gemm"] == pytest.approx(dense, rel=0.25)
    assert routed["ep"] == 0
    spread = step(configuration(replace(base, moe=moe), "8xH100-80G", **{**fields, "ep": 8})).parts
    assert spread["ep"] > 0


def test_missing_kernel_or_precision_is_named():
    with pytest.raises(ValueError, match="no kernel on V100"):
        time_costs(configuration(LLAMA2_7B, "8xV100-32G", "deepspeed", precision="fp16"))
    with pytest.raises(ValueError, match="no fp8 rate"):
        time_costs(configuration(LLAMA2_7B, "8xA100-80G", precision="fp8"))


# Composition ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.integers(1, 32), st.data())
def test_step_is_the_solvers_affine_objective(pp, v, m, data):
    cfg = configuration(
        LLAMA2_7B, "4x8xA100-80G", pp=pp, dp=32 // pp, virtual_stages=v if pp > 1 else 1,
        grad_accum=m, zero_stage=1,
    )  # fmt: skip
    costs = time_costs(cfg)
    layers = np.array(data.draw(st.lists(st.integers(1, 20), min_size=pp, max_size=pp)))
    full = np.array([data.draw(st.integers(0, int(n))) for n in layers])
    stages = np.zeros(pp)
    for parts in (costs.forward, costs.backward):
        stages = stages + layers * sum(float(x) for x in parts.values())
    stages = stages + full * sum(float(x) for x in costs.recompute["full"].values())
    stages[0] += sum(float(x) for x in costs.embedding.values())
    stages[-1] += sum(float(x) for x in costs.head.values())
    if pp > 1:
        stages = stages + 2 * float(costs.boundary)
    edge = sum(
        np.max([a.at(layers, 0) for a in alternatives], axis=0)
        for alternatives in costs.edge.values()
    )
    fixed = sum(float(x) for x in costs.fixed.values())
    v = int(cfg.virtual_stages)
    objective = m * stages.max() + (stages.sum() - stages.max()) / v + np.max(edge) + fixed
    assert step_time(costs, cfg, layers, {"full": full}).total == pytest.approx(objective)


def test_uneven_stages_are_limited_by_the_slowest():
    cfg = configuration(LLAMA2_7B, "4x8xA100-80G", pp=4, dp=8, grad_accum=16)
    costs = time_costs(cfg)
    even = step_time(costs, cfg, np.array([8, 8, 8, 8]), {}).total
    assert step_time(costs, cfg, np.array([11, 7, 7, 7]), {}).total > even
    with pytest.raises(ValueError, match="each of the 4 stages"):
        step_time(costs, cfg, np.array([16, 16]), {})


def test_embedding_and_head_sit_on_the_ends():
    cfg = configuration(LLAMA3_70B, "4x8xH100-80G", pp=4, tp=8, grad_accum=8)
    costs = time_costs(cfg)
    parts = stage_parts(costs, cfg, np.array([20, 20, 20, 20]), {})
    assert parts["gemm"][3] > parts["gemm"][1] == parts["gemm"][2]
    assert parts["memory_bound"][0] > parts["memory_bound"][1]
    assert set(costs.recompute) == set(GRANULARITIES)


def test_thousands_of_configurations_at_once():
    rng = np.random.default_rng(0)

    def column(values):
        return rng.choice(values, (5000, 1))

    cfg = configuration(
        LLAMA3_70B, "32x8xH100-80G", pp=4, tp=column([1, 2, 4, 8]), dp=column([1, 2, 4, 8]),
        cp=column([1, 2]), micro_batch=column([1, 2, 4]), grad_accum=column([4, 8, 16]),
        zero_stage=column([0, 1]), sequence_parallel=column([0, 1]),
    )  # fmt: skip
    time_costs(cfg)
    start = time.perf_counter()
    costs = time_costs(cfg)
    assert time.perf_counter() - start < 0.5  # 10 ms on an idle core
    total = step_time(costs, cfg, even_layers(80, 4), {}).total
    assert total.shape == (5000,)
    assert np.all(np.isfinite(total) & (total > 0))


# Calibration ------------------------------------------------------------------------------------


def test_calibration_finds_the_constants_that_made_the_runs():
    base = load_stack("megatron-deepspeed")
    truth = {"gemm_factor": 0.97, "memory_factor": 1.1}
    fields = tuple(truth)
    runs = [
        configuration(gpt(24, hidden, 16), "8xA100-80G", tp=tp, dp=8 // tp, micro_batch=b,
                      precision="fp16", attention="eager")
        for hidden in (2048, 4096) for tp in (1, 2, 4) for b in (1, 8)
    ]  # fmt: skip

    def logarithms(constants):
        stack = base.model_copy(update={"time": base.time.model_copy(update=constants)})
        return np.log([float(step(replace(c, stack=stack), "full").total) for c in runs])

    shipped = {name: getattr(base.time, name) for name in fields}
    error = logarithms(shipped) - logarithms(truth)
    slope = np.stack(
        [(logarithms({**shipped, f: shipped[f] * 1.01}) - logarithms(shipped)) / 0.01
         for f in fields], axis=1,
    )  # fmt: skip
    move = soft_ridge(error, slope, np.full(2, 1e-3), SOFT)
    for name, x in zip(fields, move, strict=True):
        assert shipped[name] * np.exp(x) == pytest.approx(truth[name], rel=0.02)


@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 9999))
def test_a_fit_is_where_errors_and_prior_balance(runs, constants, seed):
    rng = np.random.default_rng(seed)
    error, slope = rng.normal(0, 0.1, runs), rng.normal(0, 1, (runs, constants))
    pull, away = rng.uniform(0.02, 0.2, constants), rng.normal(0, 0.1, constants)

    def objective(x):
        now = error + slope @ x
        loss = 2 * SOFT**2 * (np.sqrt(1 + (now / SOFT) ** 2) - 1)
        return float(loss.sum() + (pull**2 * (away + x) ** 2).sum())

    found = soft_ridge(error, slope, pull, SOFT, away)
    for step_aside in rng.normal(0, 0.01, (8, constants)):
        assert objective(found) <= objective(found + step_aside) + 1e-9


def test_issuing_a_small_head_takes_the_host_as_long_as_a_layer():
    costs = time_costs(configuration(gpt(12, 256, 4, 1024, 128), "1xA100-80G", "hf"))
    layer = sum(float(x) for part in (costs.forward, costs.backward) for x in part.values())
    assert sum(float(x) for x in costs.head.values()) == pytest.approx(layer, rel=0.01)
