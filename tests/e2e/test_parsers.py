"""DeepSpeed's own configuration class reads what is emitted, and refuses what our rules refuse."""

import json
from contextlib import contextmanager

import bundles
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.emit import convert, emit
from planner.emit.deepspeed import deepspeed_config
from planner.job import resolve
from planner.lint import Context, lint_deepspeed
from planner.spec import make_spec
from planner.verify_run import parse_with_deepspeed

pytest.importorskip("deepspeed")
import deepspeed.runtime.config as deepspeed_module

MODELS = {"llama2-7b": 32, "llama2-70b": 80, "qwen2-7b": 28, "gpt3-1.3b": 24}
POWERS = st.sampled_from((1, 2, 4, 8))
OPTIMIZERS = ("adamw", "adam", "adam8bit", "adafactor", "lion", "muon", "sgd", "momentum")


@contextmanager
def pretended_world(size):
    """DeepSpeed believes in so many ranks."""

    class Group:
        get_rank = staticmethod(lambda *_: 0)
        get_world_size = staticmethod(lambda *_: size)

    real, deepspeed_module.dist = deepspeed_module.dist, Group
    try:
        yield
    finally:
        deepspeed_module.dist = real


def parse(config, world):
    with pretended_world(world):
        return deepspeed_module.DeepSpeedConfig(json.loads(json.dumps(config)))


@st.composite
def jobs_and_plans(draw):
    model = draw(st.sampled_from(sorted(MODELS)))
    dp, tp, pp = draw(POWERS), draw(POWERS), draw(st.sampled_from((1, 2, 4)))
    micro_batch, grad_accum = draw(st.sampled_from((1, 2, 3))), draw(st.sampled_from((1, 4, 7)))
    gpus = dp * tp * pp
    spec = {
        "model": model,
        "gpus": f"{max(1, gpus // 8)}x8xA100-80G" if gpus > 8 else f"{gpus}xA100-80G",
        "global_batch": dp * micro_batch * grad_accum,
        "optimizer": draw(st.sampled_from(OPTIMIZERS)),
        "grad_dtype": draw(st.sampled_from(("auto", "fp32"))),
        "stack": draw(st.sampled_from(("deepspeed", "megatron-deepspeed"))),
        "nvme": "4TB",
    }
    layers, cuts = MODELS[model], sorted(draw(st.permutations(range(1, MODELS[model])))[: pp - 1])
    recompute = []
    for low, high in zip([0, *cuts], [*cuts, layers], strict=True):
        full = draw(st.integers(0, high - low))
        recompute.append({"none": high - low - full, "full": full})
    offload = draw(st.sampled_from(("none", "cpu", "nvme")))
    fields = {
        "stack": spec["stack"],
        "gpus": gpus,
        "dp": dp,
        "tp": tp,
        "pp": pp,
        "micro_batch": micro_batch,
        "grad_accum": grad_accum,
        "zero_stage": draw(st.integers(0, 3)),
        "precision": draw(st.sampled_from(("bf16", "fp16", "fp32", "tf32"))),
        "attention": draw(st.sampled_from(("flash", "eager"))),
        "offload_optimizer": offload,
        "offload_parameters": draw(st.sampled_from(("none", "cpu"))),
        "recompute": recompute,
    }
    if offload == "cpu" and pp == 1:
        fields["away"] = draw(st.integers(0, layers))
    return spec, fields


def seen_world(plan):
    """Ranks the engine counts: all under AutoTP, the data-parallel ones given a grid."""
    grid = plan.pp > 1 or plan.stack != "deepspeed"
    return plan.dp if grid else plan.gpus


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs_and_plans())
def test_emitted_configurations_load_at_the_plans_world_size(drawn):
    spec, fields = drawn
    job = resolve(make_spec(spec))
    plan = bundles.make_plan(job, **fields)
    try:
        config = deepspeed_config(job, plan)
    except ValueError:  # the emitter says that DeepSpeed cannot
        assume(False)
    world = seen_world(plan)
    loaded = parse(config, world)
    assert loaded.train_micro_batch_size_per_gpu == plan.micro_batch
    assert loaded.gradient_accumulation_steps == plan.grad_accum
    assert int(loaded.zero_optimization_stage) == plan.zero_stage
    assert loaded.bfloat16_config.enabled == (plan.precision == "bf16")
    assert loaded.float16_config.enabled == (plan.precision == "fp16")
    framework = "plain" if plan.stack == "deepspeed" else "megatron"
    context = Context(framework, world=world)
    assert [f for f in lint_deepspeed(config, context) if f.severity == "error"] == []


BASE = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "train_batch_size": 64,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}
OFFLOAD = {"device": "cpu", "pin_memory": False}
# What the parser refuses: so must the rules.
REFUSED = {
    "batch identity": {"train_batch_size": 65},
    "no batch": {
        "train_batch_size": None,
        "train_micro_batch_size_per_gpu": None,
        "gradient_accumulation_steps": None,
    },
    "unknown zero key": {"zero_optimization": {"stage": 2, "bogus": 1}},
    "stage 4": {"zero_optimization": {"stage": 4}},
    "unknown bf16 key": {"bf16": {"enabled": True, "bogus": 1}},
    "two precisions": {"fp16": {"enabled": True}},
    "negative loss scale": {"bf16": None, "fp16": {"enabled": True, "loss_scale": -1}},
    "ratio below stage 3": {
        "zero_optimization": {"stage": 2, "offload_optimizer": {**OFFLOAD, "ratio": 0.5}}
    },
    "unknown device": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "disk"}}},
    "MiCS": {"zero_optimization": {"stage": 3, "mics_shard_size": 8}},
    "elasticity": {"elasticity": {"enabled": True}},
    "fraction of an element": {"zero_optimization": {"stage": 2, "reduce_bucket_size": 1.5}},
    "unknown communication type": {"communication_data_type": "int8"},
}
# What the parser lets pass, though the engine ignores or breaks on it: the rules must not.
IGNORED = {
    "unknown top-level key": {"bogus_top_level": 1},
    "parameters below stage 3": {"zero_optimization": {"stage": 2, "offload_param": OFFLOAD}},
    "NVMe below stage 3": {
        "zero_optimization": {
            "stage": 1,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"},
        }
    },
    "NVMe without a path": {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}
    },
    "auto outside the Trainer": {"bf16": {"enabled": "auto"}},
}


def changed(changes):
    config = {**BASE, **changes}
    return {key: value for key, value in config.items() if value is not None}


@pytest.mark.parametrize("name", REFUSED)
def test_rules_refuse_what_the_parser_refuses(name):
    config = changed(REFUSED[name])
    with pytest.raises(Exception):  # noqa: B017, PT011 - the parser raises what it likes
        parse(config, 8)
    assert any(f.severity == "error" for f in lint_deepspeed(config, Context("plain", world=8)))


@pytest.mark.parametrize("name", IGNORED)
def test_rules_warn_of_what_the_parser_lets_pass(name):
    config = changed(IGNORED[name])
    parse(config, 8)
    found = lint_deepspeed(config, Context("plain", world=8))
    assert any(f.severity in ("error", "warning") for f in found)


def test_rules_and_parser_agree_on_a_sound_configuration():
    parse(BASE, 8)
    found = lint_deepspeed(BASE, Context("plain", world=8))
    assert [finding for finding in found if finding.severity == "error"] == []


def test_the_parser_in_its_own_process_says_the_same():
    answers = parse_with_deepspeed([BASE, changed(REFUSED["stage 4"])], 8)
    assert answers[0] == ""
    assert "stage" in answers[1]


def test_every_target_with_a_deepspeed_file_loads():
    """Hugging Face files hold ``auto``, which the parser takes; ours hold none."""
    job = resolve(make_spec(bundles.LLAMA))
    plan = bundles.make_plan(job, zero_stage=3, recompute=[{"full": 16}])
    assert '"auto"' not in emit(job, plan)["deepspeed_config.json"]
    for target in ("hf", "llama-factory", "accelerate"):
        for name, text in convert(job, plan, target).files.items():
            if name.endswith(".json") and "zero_optimization" in text:
                assert json.loads(text)["zero_optimization"]["stage"] == 3, (target, name)
