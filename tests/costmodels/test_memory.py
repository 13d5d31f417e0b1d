"""Peaks of a step: measured runs, PyTorch's own accounting, and laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.costs import GRANULARITIES, MEMORY_CLASSES
from costmodels.inflight import in_flight
from costmodels.memory import memory_costs
from costmodels.memory_phases import PHASES
from costmodels.numeric import GIB
from costmodels.peak import peak
from costmodels.stack import load_stack, stack_names
from tests.costmodels.memory_cases import (
    DEEPSEEK_V2_CUT,
    LLAMA2_7B,
    LLAMA3_3B,
    LLAMA3_8B,
    LLAMA3_70B_CUT,
    MIXTRAL,
    configuration,
    gpt,
    with_memory,
)

MIB = float(1 << 20)
PLANNABLE = [name for name in stack_names() if load_stack(name).expresses.plannable]


def peaks(c, granularity="none", offloaded=0):
    """Peak of an even split with one granularity everywhere."""
    layers = c.architecture.layers / c.pp
    return peak(memory_costs(c), layers, {granularity: layers}, offloaded)


def allocated(c, granularity="none", offloaded=0):
    return float(np.max(peaks(c, granularity, offloaded).allocated))


# --- what others measured or counted


@pytest.mark.parametrize(
    ("stage", "granularity", "mib"),
    [(3, "none", 23801), (3, "full", 15468), (2, "none", 35480), (2, "full", 24328)],
)
def test_fsdp2_llama_7b_on_eight_ranks(stage, granularity, mib):
    """torch's FSDPMemTracker on transformers' Llama-2-7B, s = 2048, bf16, fp32 reduction."""
    c = configuration(LLAMA2_7B, "hf-fsdp2", seq_len=2048, dp=8, zero_stage=stage)
    assert allocated(c, granularity) / MIB == pytest.approx(mib, rel=0.03)


SIMUMAX = [  # tp, pp, dp, cp, seq_len, MiB of the fullest rank
    (1, 2, 4, 1, 4096, 68149),
    (2, 1, 4, 1, 4096, 62136),
    (4, 1, 2, 1, 4096, 40010),
    (8, 1, 1, 1, 4096, 28965),
    (2, 1, 1, 4, 32768, 70071),
    (1, 1, 1, 8, 32768, 107017),
    (2, 1, 1, 4, 131072, 115372),
    (1, 1, 1, 8, 131072, 151539),
]


@pytest.mark.parametrize(("tp", "pp", "dp", "cp", "seq_len", "mib"), SIMUMAX)
def test_llama3_70b_on_b200(tp, pp, dp, cp, seq_len, mib):
    """Twelve layers under Megatron-Core on eight B200 (SimuMax B200 release v1.2)."""
    c = configuration(
        LLAMA3_70B_CUT, "simumax", seq_len=seq_len, pp=pp, tp=tp, dp=dp, cp=cp, grad_accum=4,
        zero_stage=1, sequence_parallel=int(tp > 1),
    )  # fmt: skip
    assert allocated(c) / MIB == pytest.approx(mib, rel=0.015)


@pytest.mark.parametrize(("pp", "dp", "ep", "mib"), [(1, 8, 8, 46730), (2, 4, 4, 45776)])
def test_deepseek_v2_on_b200(pp, dp, ep, mib):
    """Latent attention and experts, the first layer dense (ibid.)."""
    c = configuration(
        DEEPSEEK_V2_CUT, "simumax", seq_len=4096, pp=pp, dp=dp, ep=ep, grad_accum=4, zero_stage=1
    )
    assert allocated(c) / MIB == pytest.approx(mib, rel=0.03)


@pytest.mark.parametrize(
    ("fused", "loss", "granularity", "gib"),
    [
        (False, "eager", "none", 60.0),
        (True, "eager", "none", 51.0),  # + torch.compile
        (True, "chunked", "none", 42.9),
        (True, "chunked", "full", 24.9),
    ],
)
def test_torchtune_ladder(fused, loss, granularity, gib):
    """Llama-3.2-3B, all in bf16, 2 x 4096 tokens on an A100 (torchtune README)."""
    kernels = {"norm": "fused", "mlp": "fused"} if fused else {}
    c = configuration(
        LLAMA3_3B, with_memory("torchtune", **kernels), seq_len=4096, micro_batch=2,
        cross_entropy=loss,
    )  # fmt: skip
    assert allocated(c, granularity) / GIB == pytest.approx(gib, rel=0.05)


@pytest.mark.parametrize(
    ("layers", "hidden", "pp", "mib"),
    [(64, 9216, 16, 24763), (40, 6144, 4, 26205), (64, 16384, 64, 22770), (48, 7168, 8, 22113)],
)
def test_megatron_on_v100(layers, hidden, pp, mib):
    """Most of all ranks, tp 4, fp16, one node to 64 (BigScience gpt2-meg logs)."""
    c = configuration(
        gpt(layers, hidden, 32, vocab=50688), "bigscience", precision="fp16", attention="eager",
        optimizer="adam", seq_len=1024, pp=pp, tp=4, grad_accum=4, dropout=0.1,
    )  # fmt: skip
    assert allocated(c, "full") / MIB == pytest.approx(mib, rel=0.04)


LLAMA1_13B = replace(
    LLAMA2_7B, name="llama-13b", layers=40, hidden=5120, heads=40, kv_heads=40, ffn=13824,
    vocab=128000,
)  # fmt: skip
LLAMA1_30B = replace(
    LLAMA1_13B, name="llama-30b", layers=60, hidden=6656, heads=52, kv_heads=52, ffn=17920
)
LLAMA1_65B = replace(
    LLAMA1_13B, name="llama-65b", layers=80, hidden=8192, heads=64, kv_heads=64, ffn=22016
)
REPLAYED = [  # seq_len, micro-batch, tp, sequence parallel, layers of the stages, GPUs, GiB alive
    (LLAMA1_13B, 2048, 1, 1, 0, (40,), 64, 74.98),
    (LLAMA1_13B, 2048, 2, 1, 0, (21, 19), 64, 66.19),
    (LLAMA1_13B, 8192, 1, 2, 0, (40,), 64, 83.43),
    (LLAMA1_13B, 8192, 2, 4, 1, (10, 11, 11, 8), 64, 50.81),
    (LLAMA1_30B, 2048, 1, 1, 0, (15, 16, 16, 13), 64, 71.50),
    (LLAMA1_30B, 2048, 4, 4, 0, (31, 29), 64, 76.50),
    (LLAMA1_65B, 2048, 1, 2, 0, (20, 21, 21, 18), 128, 69.93),
    (LLAMA1_65B, 2048, 4, 8, 0, (10, 11, 11, 10, 10, 10, 10, 8), 128, 75.10),
]


@pytest.mark.parametrize(
    ("arch", "seq_len", "micro_batch", "tp", "sp", "layers", "gpus", "gib"), REPLAYED
)
def test_aa_scaling_keeps_what_autograd_keeps(
    arch, seq_len, micro_batch, tp, sp, layers, gpus, gib
):
    """Steps of its public release's layers, replayed by PyTorch's autograd on shapes alone."""
    pp = len(layers)
    c = configuration(
        arch, with_memory("aa-scaling", norm="fused"), seq_len=seq_len, micro_batch=micro_batch,
        tp=tp, pp=pp, dp=gpus // (tp * pp), sequence_parallel=sp, zero_stage=1, grad_accum=64,
    )  # fmt: skip
    stages = np.array(layers)
    top = peak(memory_costs(c), stages, {"none": stages})
    assert np.ravel(top.allocated)[0] / GIB == pytest.approx(gib, rel=0.01)


def test_scores_that_gradients_move_into_are_made_anew():
    """Unfused scores of a layer leave blocks too, where few gradients fill them."""

    def loss(attention, pp, micro_batch):
        c = configuration(
            LLAMA1_13B, "aa-scaling", seq_len=2048, micro_batch=micro_batch, tp=2, pp=pp,
            dp=32 // pp, zero_stage=1, grad_accum=16, attention=attention,
        )  # fmt: skip
        return float(np.ravel(peaks(c, "full").phases["loss"])[-1])

    assert loss("eager", 2, 8) > loss("flash", 2, 8) + 5 * GIB
    assert loss("eager", 1, 1) == pytest.approx(loss("flash", 1, 1), rel=1e-6)


def test_zero_3_with_offload_grows_as_measured():
    """Llama-3.1-8B on eight H200: 124.5 - 66.5 GiB for 131072 more tokens (ml-engineering)."""
    stack = with_memory("deepspeed", norm="fused", mlp="fused")
    sizes = [
        allocated(
            configuration(
                LLAMA3_8B, stack, seq_len=s, dp=8, zero_stage=3, offload_optimizer=1,
                cross_entropy="chunked",
            ),
            "full",
            32,
        )
        for s in (131072, 262144)
    ]  # fmt: skip
    assert (sizes[1] - sizes[0]) / GIB == pytest.approx(124.5 - 66.5, rel=0.03)


def test_loss_is_the_peak_of_a_large_vocabulary():
    """12 bytes a logit: log-softmax, its gradient and the loss's, all fp32."""
    c = configuration(LLAMA3_8B, with_memory("hf", logits=load_stack("hf-fsdp2").memory.logits))
    phases = {name: float(np.max(size)) for name, size in peaks(c, "full").phases.items()}
    small = replace(LLAMA3_8B, vocab=LLAMA3_8B.vocab // 2)
    less = peaks(replace(c, architecture=small), "full").phases["loss"]
    tables = 2 * (2 + 4) * LLAMA3_8B.hidden * small.vocab  # weights, moments; twice, untied
    grown = phases["loss"] - float(np.max(less))
    assert grown == pytest.approx(12 * 4096 * small.vocab + tables)
    assert phases["loss"] > max(phases["forward"], phases["backward"])


def test_composer_keeps_16_bit_logits_once_and_measures_them_after_the_backward():
    """llm-foundry 0.1: fused loss with a gradient of its own; two language metrics in fp32.

    The outputs of the last micro-batch live until the next ones exist: 2 + 2 bytes a logit at the
    end of the forward, 2 + 4 + 4 in the metrics, when all activations are gone.
    """
    arch = replace(gpt(2, 1024, 8), vocab=50368)
    c = configuration(arch, "fsdp1", seq_len=2048, micro_batch=32, dp=8, zero_stage=3)
    logits = 32 * 2048 * 50368
    phases = {k: float(np.max(v)) for k, v in peaks(c).phases.items()}
    states = phases["optimizer"]
    assert phases["metrics"] - states == pytest.approx(10 * logits, rel=1e-6)
    assert 4 * logits < phases["forward"] - states < 6 * logits
    assert phases["metrics"] == max(phases.values())


def test_fsdp_that_keeps_layers_gathered_still_shards_its_weights():
    """SHARD_GRAD_OP: fp32 shards, and 16-bit layers from their forward to their backward."""
    at = {z: configuration(LLAMA2_7B, "fsdp1", seq_len=2048, dp=64, zero_stage=z) for z in (2, 3)}
    two, three = (peaks(c) for c in at.values())
    assert float(np.max(two.classes["weights"])) == float(np.max(three.classes["weights"]))
    more = float(np.max(two.phases["forward"] - three.phases["forward"]))
    layers = 2 * 31 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert more == pytest.approx(layers, rel=0.01)


def test_a_pipeline_of_fsdp_offloads_no_gradients_before_they_are_reduced():
    """A stage of two, 3.3e9 parameters: 16-bit weights and 32-bit gradients stay whole on it."""
    fields = {"dp": 4, "zero_stage": 2, "seq_len": 2048, "grad_accum": 8}
    away = {"offload_optimizer": 1, "offload_parameters": 1}
    one, two = (
        peaks(configuration(LLAMA2_7B, "fsdp2", pp=pp, **fields, **away), offloaded=32 / pp)
        for pp in (1, 2)
    )
    assert float(np.max(two.allocated)) > (2 + 4) * 3.3e9
    assert float(np.max(one.classes["gradients"])) == 0.0
    assert float(np.max(two.classes["gradients"])) > 4 * 3.2e9


def test_fp8_parameters_take_two_bytes_and_tables_16_bits():
    """Hopper keeps an 8-bit weight and its transpose; gradients of NeMo recipes are in bf16."""
    common = {"attention": "flash", "zero_stage": 1, "dp": 8}
    c = configuration(LLAMA2_7B, "nemo", precision="fp8", **common)
    weights = {**c.stack.memory.weights, "fp8": 1.0}
    one = configuration(LLAMA2_7B, with_memory("nemo", weights=weights), precision="fp8", **common)
    both, single = (float(np.max(peaks(x).classes["weights"])) for x in (c, one))
    tables = 2 * 32000 * LLAMA2_7B.hidden
    assert both - single == pytest.approx(both / 2 - tables, rel=1e-3)
    bf16 = configuration(LLAMA2_7B, "nemo", **common)
    assert float(np.max(peaks(bf16).classes["gradients"])) == pytest.approx(both, rel=1e-3)


# --- laws


@pytest.mark.parametrize("stack", stack_names())
def test_every_stack_has_a_memory_profile(stack):
    found = load_stack(stack)
    c = configuration(LLAMA2_7B, stack, attention="flash", dp=8)
    costs = memory_costs(c)
    names = [phase.name for phase in costs.phases]
    assert [*(name for name in names if name not in ("metrics", "apart", "reduction"))] == list(
        PHASES
    )
    assert costs.allocator_factor >= 1
    assert float(np.max(costs.fixed)) > 0
    assert 0 <= found.memory.interval_low < 1
    assert found.memory.interval_high <= (0.25 if found.expresses.plannable else 0.6)
    for phase in costs.phases:
        assert set(phase.classes) <= set(MEMORY_CLASSES)


@pytest.mark.parametrize("stack", PLANNABLE)
@pytest.mark.parametrize("arch", [LLAMA2_7B, LLAMA3_3B, MIXTRAL, gpt(24, 2048, 16)])
@pytest.mark.parametrize("pp", [1, 4])
def test_scalars_equal_arrays(stack, arch, pp):
    rows = [
        {"dp": d, "tp": t, "micro_batch": b, "grad_accum": m, "zero_stage": z}
        for d, t, b, m, z in [(1, 1, 1, 1, 0), (2, 4, 2, 8, 1), (8, 2, 4, 2, 0), (4, 1, 1, 4, 3)]
    ]
    columns = {name: np.array([[row[name]] for row in rows]) for name in rows[0]}
    layers = arch.layers / pp
    for granularity in GRANULARITIES:
        counts = {granularity: layers}
        many = peak(
            memory_costs(configuration(arch, stack, pp=pp, **columns)), layers, counts
        ).allocated
        for i, row in enumerate(rows):
            one = peak(
                memory_costs(configuration(arch, stack, pp=pp, **row)), layers, counts
            ).allocated
            np.testing.assert_allclose(
                np.broadcast_to(many, (4, pp))[i], np.broadcast_to(one, (pp,))
            )


@pytest.mark.parametrize("stack", PLANNABLE)
@settings(max_examples=25, deadline=None)
@given(
    fields=st.fixed_dictionaries(
        {
            "tp": st.sampled_from([1, 2, 8]),
            "micro_batch": st.sampled_from([1, 2]),
            "grad_accum": st.sampled_from([1, 8]),
            "zero_stage": st.sampled_from([0, 1, 3]),
            "dp": st.sampled_from([2, 8]),
        }
    ),
    pp=st.sampled_from([1, 2, 4]),
)
def test_more_of_anything_costs_no_less(stack, fields, pp):
    c = configuration(LLAMA3_8B, stack, pp=pp, **fields)
    size = peaks(c).allocated
    assert np.all(peaks(replace(c, micro_batch=2 * fields["micro_batch"])).allocated >= size)
    assert np.all(peaks(replace(c, seq_len=2 * c.seq_len)).allocated > size)
    assert np.all(peaks(replace(c, grad_accum=4 * fields["grad_accum"])).allocated >= size)
    assert np.all(peaks(c, "full").allocated <= size)


@pytest.mark.parametrize("stack", ["deepspeed", "megatron-deepspeed"])
def test_zero_stages_step_down(stack):
    """Where states, not buckets, fill the card."""
    sizes = [
        allocated(configuration(LLAMA2_7B, stack, dp=8, grad_accum=4, zero_stage=z), "full")
        for z in range(4)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[3] < 0.4 * sizes[0]


def test_offload_empties_the_gpu_layer_by_layer():
    c = configuration(LLAMA2_7B, "deepspeed", dp=4, zero_stage=3, offload_optimizer=1)
    sizes = [allocated(c, "full", o) for o in (0, 16, 32)]
    assert sizes[0] - sizes[1] == pytest.approx(sizes[1] - sizes[2], rel=1e-9)
    assert sizes[2] < sizes[0]


def test_one_communicator_a_parallel_axis():
    fixed = [
        float(np.max(memory_costs(configuration(LLAMA2_7B, "megatron", **f)).fixed))
        for f in ({}, {"dp": 8}, {"dp": 4, "tp": 2}, {"dp": 2, "tp": 2, "pp": 2})
    ]
    steps = np.diff(fixed)
    assert steps == pytest.approx([load_stack("megatron").memory.communicator] * 3)


def test_in_flight():
    """1F1B, its cap, and chunks of interleaved 1F1B."""
    stages = np.arange(4)
    np.testing.assert_array_equal(in_flight(stages, 4, 16), [4, 3, 2, 1])
    np.testing.assert_array_equal(in_flight(stages, 4, 2), [2, 2, 2, 1])
    # Megatron-LM holds 1 + (p - 1) / (p v) times the activations of 1F1B's first stage
    for p, v in [(4, 2), (8, 3)]:
        first = float(in_flight(0, p, 1000, v)) / p
        assert first == pytest.approx(1 + (p - 1) / (p * v))
    assert np.all(in_flight(stages, 4, 4, 2) <= 4)


def test_pipeline_memory_follows_micro_batches_in_flight():
    c = configuration(LLAMA2_7B, "megatron", pp=4, grad_accum=32)
    by_stage = peaks(c).phases["backward"]
    inner = by_stage[1] - by_stage[2]
    costs = memory_costs(c)
    kept = next(p for p in costs.phases if p.name == "backward").kept["none"]
    assert inner == pytest.approx(8 * (kept[1] - kept[2]))
    assert kept[0] == pytest.approx(4 * kept[3])


def test_unknown_cross_entropy_names_the_known_ones():
    c = configuration(LLAMA2_7B, "megatron", cross_entropy="chunked")
    with pytest.raises(ValueError, match="'chunked': stack megatron has eager, fused"):
        memory_costs(c)
