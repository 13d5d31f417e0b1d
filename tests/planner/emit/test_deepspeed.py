"""deepspeed_config.json: real keys, the batch identity, and nothing the engine ignores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from emit_plans import make_job, make_plan
from emit_spread import ALL, DEEPSPEED
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.buckets import zero_buckets
from costmodels.params import embedding_parameters, mean_layer_parameters, total_parameters
from planner.emit.deepspeed import deepspeed_config
from planner.emit.deepspeed_zero import offload_ratio, sub_group_size
from planner.lint.deepspeed_keys import SECTIONS, canonical
from planner.lint.deepspeed_words import REMOVED

WITH_JSON = [name for name in ALL if name.split("/")[0] in ("deepspeed", "megatron-deepspeed")]


def config_of(name: str) -> dict[str, Any]:
    job, plan = ALL[name]()
    return deepspeed_config(job, plan)


def paths(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Every key: the section it is in, its name, its value."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield path, key, value
            yield from paths(value, (*path, key))


@pytest.mark.parametrize("name", WITH_JSON)
def test_every_key_is_one_deepspeed_reads(name: str) -> None:
    for section, key, value in paths(config_of(name)):
        if section == ("optimizer", "params"):
            continue  # keyword arguments of the optimizer's class
        known = canonical(section, key)
        assert known is not None, (section, key)
        assert (*section, key) not in REMOVED
        table = SECTIONS.get(section)
        if table is None:
            continue
        entry = table.keys[known]
        assert not entry.replaced_by, (section, key)
        if entry.choices:
            assert value in entry.choices
        if entry.low is not None:
            assert value >= entry.low
        if entry.high is not None:
            assert value <= entry.high
        kinds = {"int": int, "bool": bool, "text": str, "map": dict, "list": list}
        if entry.kind in kinds:
            assert isinstance(value, kinds[entry.kind])
            assert entry.kind == "bool" or not isinstance(value, bool)


@pytest.mark.parametrize("name", WITH_JSON)
def test_no_auto(name: str) -> None:
    assert not [value for _, _, value in paths(config_of(name)) if value == "auto"]


@pytest.mark.parametrize("name", WITH_JSON)
def test_batch_identity(name: str) -> None:
    job, plan = ALL[name]()
    config = deepspeed_config(job, plan)
    micro = config["train_micro_batch_size_per_gpu"]
    assert micro * config["gradient_accumulation_steps"] * plan.dp == job.global_batch
    if plan.stack == "deepspeed" and plan.tp > 1:
        assert "train_batch_size" not in config
    else:
        assert config["train_batch_size"] == job.global_batch


@pytest.mark.parametrize("name", WITH_JSON)
def test_nothing_is_silently_ignored(name: str) -> None:
    """Combinations DeepSpeed accepts and does not carry out."""
    config = config_of(name)
    zero = config["zero_optimization"]
    stage = zero["stage"]
    assert not (config.get("fp16", {}).get("enabled") and config.get("bf16", {}).get("enabled"))
    assert "offload_param" not in zero or stage == 3
    offload = zero.get("offload_optimizer", {"device": "none"})
    assert offload["device"] == "none" or stage >= 1
    assert offload["device"] != "nvme" or stage == 3
    assert offload.get("ratio", 1.0) == 1.0 or stage == 3
    for section in (offload, zero.get("offload_param", {})):
        assert ("nvme_path" in section) == (section.get("device") == "nvme")
    nvme = "nvme" in (offload["device"], zero.get("offload_param", {}).get("device"))
    assert ("aio" in config) == nvme
    assert "activation_checkpointing" not in config
    assert zero.get("allgather_bucket_size", 0) % 2 == 0
    accumulation = config.get("data_types", {}).get("grad_accum_dtype")
    assert stage >= 1 or accumulation != "fp32"
    assert "max_grad_norm" not in config.get("optimizer", {}).get("params", {})


@pytest.mark.parametrize("name", DEEPSPEED)
def test_pipeline_section_only_for_pipelines(name: str) -> None:
    job, plan = DEEPSPEED[name]()
    config = deepspeed_config(job, plan)
    assert ("pipeline" in config) == (plan.pp > 1)
    if plan.pp > 1:
        assert config["pipeline"]["use_reentrant"] is False
        assert config["zero_optimization"]["stage"] <= 1
        assert config["zero_optimization"].get("overlap_comm", False) is False


def test_precision_sections() -> None:
    assert config_of("deepspeed/zero2")["bf16"] == {"enabled": True}
    fp16 = config_of("deepspeed/zero2-fp16")["fp16"]
    assert fp16["enabled"] is True
    assert fp16["loss_scale"] == 0  # dynamic
    for name in ("deepspeed/zero2-tf32", "deepspeed/zero0-fp32"):
        assert not {"fp16", "bf16", "data_types"} & set(config_of(name))


def test_gradient_accumulation_dtype_follows_the_job() -> None:
    assert config_of("deepspeed/zero1-fp32-grads")["data_types"] == {"grad_accum_dtype": "fp32"}
    assert config_of("deepspeed/zero1")["data_types"] == {"grad_accum_dtype": "bf16"}


def test_gradient_accumulation_dtype_follows_the_memory_model() -> None:
    """Megatron-DeepSpeed sums bf16 gradients in fp32, except without ZeRO, which cannot."""
    for case, expected in (("zero3", "fp32"), ("zero0", "bf16")):
        config = config_of(f"megatron-deepspeed/{case}")
        assert config["data_types"] == {"grad_accum_dtype": expected}


@pytest.mark.parametrize(
    ("case", "kind", "untested"),
    [
        ("zero1", "AdamW", False),
        ("adam", "Adam", False),
        ("lion", "Lion", False),
        ("muon", "Muon", False),
        ("sgd", "SGD", True),
        ("momentum", "SGD", True),
        ("adafactor", "Adafactor", True),
        ("adam8bit", None, True),
    ],
)
def test_optimizer_section(case: str, kind: str | None, untested: bool) -> None:
    config = config_of(f"deepspeed/{case}")
    assert config.get("optimizer", {}).get("type") == kind
    assert config.get("zero_allow_untested_optimizer", False) is untested


def test_adam_without_decoupled_decay() -> None:
    """ "Adam" means AdamW to DeepSpeed unless adam_w_mode says otherwise."""
    assert config_of("deepspeed/adam")["optimizer"]["params"]["adam_w_mode"] is False
    assert config_of("deepspeed/momentum")["optimizer"]["params"]["momentum"] == 0.9


def test_muon_at_stage_3_does_not_reduce_scatter() -> None:
    assert config_of("deepspeed/muon-zero3")["zero_optimization"]["reduce_scatter"] is False
    assert config_of("deepspeed/muon")["zero_optimization"]["reduce_scatter"] is True


def test_buckets_are_those_the_memory_model_counts() -> None:
    job, plan = DEEPSPEED["zero3"]()
    sizes, zero = zero_buckets(job.architecture), deepspeed_config(job, plan)["zero_optimization"]
    assert zero["reduce_bucket_size"] == sizes.reduce_bucket
    assert zero["stage3_prefetch_bucket_size"] == sizes.prefetch_bucket
    assert zero["stage3_max_live_parameters"] == sizes.max_live
    assert zero["sub_group_size"] == sizes.sub_group


def test_nvme_buffers_hold_the_largest_partition() -> None:
    job, plan = DEEPSPEED["zero3-nvme"]()
    arch, zero = job.architecture, deepspeed_config(job, plan)["zero_optimization"]
    largest = max(arch.vocab * arch.hidden, arch.hidden * arch.ffn)
    assert zero["offload_param"]["buffer_size"] >= math.ceil(largest / plan.dp)
    assert zero["offload_optimizer"]["buffer_count"] >= 4  # parameter, gradient, two moments


@settings(deadline=None, max_examples=60)
@given(
    away=st.integers(1, 31),
    gpus=st.sampled_from(["1xA100-80G", "8xA100-80G", "8x8xH100-80G"]),
    model=st.sampled_from(["llama2-7b", "llama3-8b", "qwen2.5-7b"]),
)
def test_partial_offload_never_keeps_more_than_planned(away: int, gpus: str, model: str) -> None:
    """DeepSpeed's own rule: the first int((1 - ratio) n) sub-groups stay on the GPU."""
    job = make_job(model, gpus)
    arch = job.architecture
    away = min(away, arch.layers - 1)
    plan = make_plan(job, zero_stage=3, offload_optimizer="cpu", offloaded=away)
    ratio = offload_ratio(arch, plan)
    assert 0 < ratio <= 1
    groups = sub_groups(arch, plan)
    kept = sum(groups[: int((1 - ratio) * len(groups))])
    layer = float(mean_layer_parameters(arch).total) / plan.dp
    planned = (arch.layers - away) * layer
    assert kept <= planned * 1.001
    first = float(embedding_parameters(arch).total) / plan.dp
    assert kept >= planned - max(layer / 2, first)


def sub_groups(arch: Any, plan: Any) -> list[int]:
    """Sizes of DeepSpeed's sub-groups of a Llama: whole tensors until the size is reached."""
    h, f, d = arch.hidden, arch.ffn, arch.head_dim
    layer = [h * arch.heads * d, h * arch.kv_heads * d, h * arch.kv_heads * d, arch.heads * d * h]
    layer += [h * f, h * f, f * h, h, h]
    table = arch.vocab * h
    tensors = [table, *(layer * arch.layers), h, *([] if arch.tied_embeddings else [table])]
    assert sum(tensors) == pytest.approx(float(total_parameters(arch)), rel=1e-3)
    size, groups, running = sub_group_size(arch, plan, 0), [], 0
    for i, tensor in enumerate(tensors):
        running += math.ceil(tensor / plan.dp)
        if running >= size or i == len(tensors) - 1:
            groups.append(running)
            running = 0
    return groups


@pytest.mark.parametrize(
    ("axes", "word"),
    [
        ({"pp": 2, "zero_stage": 2}, "pipeline engine refuses ZeRO-2"),
        ({"pp": 2, "tp": 2}, "AutoTP"),
        ({"precision": "fp8"}, "fp8"),
        ({"virtual_stages": 2, "pp": 2}, "not interleaved"),
        ({"zero_stage": 2, "offload_parameters": "cpu"}, "offload_param is ignored"),
        ({"zero_stage": 0, "offload_optimizer": "cpu"}, "ZeRO-1 or above"),
        ({"zero_stage": 2, "offload_optimizer": "nvme"}, "NVMe optimizer stays in host RAM"),
        ({"zero_stage": 2, "offload_optimizer": "cpu", "offloaded": 3}, "only ZeRO-3"),
        ({"tp": 2, "sequence_parallel": True}, "no sequence parallelism"),
        ({"cp": 2}, "cp 2"),
    ],
)
def test_refusals(axes: dict[str, Any], word: str) -> None:
    job = make_job()
    with pytest.raises(ValueError, match="DeepSpeed cannot express this plan") as refusal:
        deepspeed_config(job, make_plan(job, **axes))
    assert word in str(refusal.value)


def test_fp32_accumulation_needs_zero() -> None:
    job = make_job(grad_dtype="fp32")
    with pytest.raises(ValueError, match="fp32 gradient accumulation"):
        deepspeed_config(job, make_plan(job, zero_stage=0))


def test_json_is_plain(bundles: dict[str, Any]) -> None:
    """No NaN, no float where an integer belongs, and text that JSON reads back."""
    for name in WITH_JSON:
        text = bundles[name][2]["deepspeed_config.json"]
        data = json.loads(text)
        assert text.endswith("}\n")
        for section, key, value in paths(data):
            if key.endswith("_size") or key.endswith("_steps") or key.endswith("_parameters"):
                assert isinstance(value, int), (section, key)
