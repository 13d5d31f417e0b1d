"""What Megatron-LM and DeepSpeed of 2021 hold besides states and activations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.flat_copies import bucket_bytes, flat_copies, gathered_bytes
from costmodels.held import stage_held
from costmodels.memory import memory_costs
from costmodels.peak import peak
from costmodels.stack import load_stack
from tests.costmodels.memory_cases import configuration, gpt, with_memory

MIB = 2**20


def top(c, layers, granularity="full"):
    counts = np.full(c.pp, layers)
    return peak(memory_costs(c), counts, {granularity: counts})


@pytest.mark.parametrize(
    ("layers", "hidden", "pp", "printed"),
    [
        (40, 6144, 4, 26204.6),
        (48, 7168, 8, 22113.1),
        (64, 9216, 16, 24762.8),
        (64, 16384, 64, 22769.7),
    ],
)
def test_megatron_lm_logs(layers, hidden, pp, printed):
    """torch's max_memory_allocated over all ranks, BigScience's logs of Megatron-LM on V100 (2021).

    tp 4, four micro-batches of one sequence of 1,024 tokens, activations checkpointed.
    """
    c = configuration(
        gpt(layers, hidden, 32),
        "bigscience",
        precision="fp16",
        attention="eager",
        optimizer="adam",
        seq_len=1024,
        grad_accum=4,
        tp=4,
        pp=pp,
        dropout=0.1,
    )
    assert top(c, layers / pp).allocated.max() / MIB == pytest.approx(printed, rel=0.01)


def ds(p, **fields):
    """GPT 1.3B under ZeRO-1 on one stage."""
    return configuration(
        gpt(24, 2048, 16, seq=2048),
        with_memory("bigscience", **p),
        precision="fp16",
        attention="eager",
        zero_stage=fields.pop("zero_stage", 1),
        grad_accum=8,
        seq_len=2048,
        **fields,
    )


@given(dp=st.sampled_from([1, 2, 4, 8, 64]), copies=st.sampled_from(["kept", "queued"]))
def test_flat_copies_enlarge_what_is_reserved_alone(dp, copies):
    c, plain = ds({"flat_copies": copies}, dp=dp), ds({"flat_copies": "reused"}, dp=dp)
    one, other = top(c, 24), top(plain, 24)
    assert (one.pool >= one.reserved).all()
    assert (other.pool == other.reserved).all()
    assert (one.allocated <= other.allocated).all()  # the bucket is no longer beside activations
    assert (one.pool <= one.reserved + flat_copies(c, stage_held(c, 1, 1)) * (1 + 1e-9)).all()


def test_a_model_of_more_than_a_bucket():
    """1.32e9 parameters: buckets of 1 GB, two gathers of 1.3 GB, 6 bytes of the partition."""
    c = ds({"flat_copies": "kept"}, dp=8)
    part = stage_held(c, 1, 1)
    own = float(part.total)
    assert own == pytest.approx(1.316e9, rel=2e-3)
    assert bucket_bytes(c, own) == 1e9
    assert gathered_bytes(c, own) == own  # two bytes a parameter, in two pieces
    assert float(flat_copies(c, part)) == pytest.approx(1e9 + own + 6 * own / 8)
    queued = ds({"flat_copies": "queued"}, dp=8)
    assert float(flat_copies(queued, part)) == pytest.approx(4 * own + 6 * own / 8)


def test_a_gather_that_fits_into_a_bucket_reuses_it():
    c = ds({"flat_copies": "kept"}, dp=2, pp=8)
    part = stage_held(c, 0, 0)
    own = float(part.total)
    assert own < 5e8
    assert float(flat_copies(c, part)) == pytest.approx(2 * own + 6 * own / 2)


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_stage_one_alone_makes_them(stage):
    c = ds({"flat_copies": "kept"}, dp=4, zero_stage=stage)
    assert float(flat_copies(c, stage_held(c, 1, 1))) == 0


@pytest.mark.parametrize(("stage", "more"), [(0, 6), (1, 0)])
def test_stale_gradients_without_zero_alone(stage, more):
    """They live in every phase but the optimizer's, which replaces them."""
    fields = {"stale_gradients": {"fp16": 6}, "flat_copies": "reused"}
    c, without = (
        ds(fields, zero_stage=stage),
        ds({**fields, "stale_gradients": {}}, zero_stage=stage),
    )
    own = float(stage_held(c, 1, 1).total)
    one, other = top(c, 24).phases, top(without, 24).phases
    for phase in one:
        expected = 0 if phase == "optimizer" else more * own
        assert float(np.max(one[phase] - other[phase])) == pytest.approx(expected, abs=1)


def test_one_stage_of_the_pipeline_engine_keeps_logits():
    """fp32 logits of two micro-batches on the last stage, on the only one too."""
    assert load_stack("bigscience").memory.engine_alone
    c, without = ds({}), ds({"engine_alone": False})
    logits = 2048 * 50304 * 4
    gap = top(c, 24).phases["backward"] - top(without, 24).phases["backward"]
    assert float(np.max(gap)) == pytest.approx(logits)


def test_outputs_split_over_tensor_parallel_ranks():
    one, whole = ({"outputs_split": split} for split in (True, False))
    c, other = ds(one, tp=4, pp=4), ds(whole, tp=4, pp=4)
    gap = top(other, 6).phases["backward"] - top(c, 6).phases["backward"]
    output = 2048 * 2048 * 2
    assert gap.ravel().tolist() == pytest.approx([0.75 * output * n for n in (4, 3, 2, 0)])


def oneflow(**fields):
    """OneFlow's GPT, 16 layers of 1,536, as DLPerf ran it."""
    return configuration(
        gpt(16, 1536, 16, vocab=51200, seq=2048),
        "oneflow",
        precision="fp16",
        attention="eager",
        optimizer="adam",
        seq_len=2048,
        **fields,
    )


def test_an_all_reduce_writes_apart():
    """Eight replicas take 16 bits a parameter more than one."""
    one, eight = (top(oneflow(dp=d, micro_batch=2), 16).phases["optimizer"] for d in (1, 8))
    own = float(stage_held(oneflow(), 1, 1).total)
    assert float(np.max(eight - one)) == pytest.approx(2 * own)


@given(m=st.sampled_from([2, 8, 64]))
def test_a_static_plan_has_buffers_for_twice_the_stages(m):
    """Whatever the micro-batches; on the last stage none, and without accumulation none."""
    c = oneflow(pp=4, grad_accum=m, micro_batch=2)
    plain = configuration(
        c.architecture,
        with_memory("oneflow", stage_buffers=0.0),
        **{f: getattr(c, f) for f in ("precision", "attention", "optimizer", "seq_len")},
        pp=4,
        grad_accum=m,
        micro_batch=2,
    )
    gap = (top(c, 4).phases["last layer"] - top(plain, 4).phases["last layer"]).ravel()
    assert gap.tolist() == [0, 0, 0, 0]  # everything but one micro-batch is gone
    gap = (top(c, 4).phases["backward"] - top(plain, 4).phases["backward"]).ravel()
    layers = 4 * 2 * 2048 * 1536 * 2
    flight = [8 - min(m, 4 - stage) for stage in range(3)]
    assert gap[1:3] == pytest.approx([layers * n for n in flight[1:]])
    assert gap[3] == 0


def test_forward_backward_and_step_share_nothing_while_accumulating():
    c = oneflow(pp=4, grad_accum=8, micro_batch=2)
    result = top(c, 4)
    parts = [result.phases[name] for name in ("loss", "backward", "optimizer")]
    assert (result.phases["apart"] > np.max(np.stack(parts), axis=0)).all()
    alone = top(oneflow(pp=4, grad_accum=1, micro_batch=2), 4)
    assert (alone.phases["apart"] == 0).all()


@pytest.mark.parametrize("dp", [1, 2, 8])
def test_the_end_of_a_step(dp):
    """DeepSpeed 0.5.4, stage2.py: all gradients and a bucket, then the partition's three times."""
    c = ds({"flat_copies": "kept", "vocab_multiple": 0}, dp=dp)
    own, phases = float(stage_held(c, 1, 1).total), top(c, 24).phases
    assert float(np.max(phases["reduction"])) == pytest.approx((4 + 12 / dp) * own + 1e9)
    assert float(np.max(phases["optimizer"])) == pytest.approx((2 + 20 / dp) * own)


def test_an_offloaded_optimizer_makes_its_copies_on_the_host():
    here, away = (ds({"flat_copies": "kept"}, dp=4, offload_optimizer=o) for o in (0, 1))
    part = stage_held(here, 1, 1)
    gap = flat_copies(here, part) - flat_copies(away, part)
    assert float(gap) == pytest.approx(6 * float(part.total) / 4)
