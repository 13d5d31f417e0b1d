"""torchtitan flags and the model file beside them."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from emit_plans import make_job, make_plan
from emit_spread import FSDP2

from planner.emit.torchtitan import check, emit_torchtitan, plan_arguments, stage_modules


def of(case: str) -> dict[str, str | None]:
    return {flag: values[0] if values else None for flag, *values in plan_arguments(*FSDP2[case]())}


@pytest.mark.parametrize("case", FSDP2)
def test_degrees_multiply_to_the_world(case: str) -> None:
    _, plan = FSDP2[case]()
    found = of(case)
    names = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel")
    names += ("context_parallel", "pipeline_parallel")
    product = 1
    for name in names:
        product *= int(str(found[f"--parallelism.{name}_degree"]))
    assert product == plan.gpus


@pytest.mark.parametrize("case", FSDP2)
def test_batch(case: str) -> None:
    job, plan = FSDP2[case]()
    found = of(case)
    total, local = found["--training.global_batch_size"], found["--training.local_batch_size"]
    assert total == str(job.global_batch)
    per_replica = int(str(total)) // plan.dp
    if plan.pp > 1:
        assert int(str(local)) == per_replica
        assert found["--parallelism.pipeline_parallel_microbatch_size"] == str(plan.micro_batch)
        assert "--training.disable_cuda_graphs" in found  # torchtitan/trainer.py demands it
    else:
        assert int(str(local)) * plan.grad_accum == per_replica


@pytest.mark.parametrize(
    ("case", "reshard", "shard"), [("zero3", "always", "8"), ("zero2", "never", "8")]
)
def test_zero_stage_is_resharding(case: str, reshard: str, shard: str) -> None:
    found = of(case)
    assert found["--parallelism.fsdp_reshard_after_forward"] == reshard
    assert found["--parallelism.data_parallel_shard_degree"] == shard


@pytest.mark.parametrize(("stage", "reshard"), [(2, "never"), (3, "default")])
def test_a_pipeline_keeps_layers_gathered(stage: int, reshard: str) -> None:
    """What its time and memory are predicted for: torchtitan's default frees none there."""
    job, plan = FSDP2["zero3"]()
    piped = plan.model_copy(update={"dp": plan.dp // 2, "pp": 2, "zero_stage": stage})
    found = dict((flag, values[0]) for flag, *values in plan_arguments(job, piped) if values)
    assert found["--parallelism.fsdp_reshard_after_forward"] == reshard


def test_replicas_are_not_sharded() -> None:
    found = of("replicated")
    assert found["--parallelism.data_parallel_shard_degree"] == "1"
    assert found["--parallelism.data_parallel_replicate_degree"] == "8"


@pytest.mark.parametrize("case", FSDP2)
def test_the_model_file_is_python(case: str, bundles: dict[str, Any]) -> None:
    job, _, files = bundles[f"fsdp2/{case}"]
    tree = ast.parse(files["titan_model.py"])
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    arch = job.architecture
    assert constants == {
        "LAYERS": arch.layers,
        "HIDDEN": arch.hidden,
        "HEADS": arch.heads,
        "KV_HEADS": arch.kv_heads,
        "HEAD_DIM": arch.head_dim,
        "FFN": arch.ffn,
        "VOCAB": arch.vocab,
        "TIED": arch.tied_embeddings,
        "NORM_EPS": arch.norm_eps,
    }
    assert {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} >= {"plan"}
    keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    bases = [ast.literal_eval(word.value) for word in keywords if word.arg == "theta"]
    assert bases == [arch.rope_theta]


def test_stages_hold_every_module_once() -> None:
    job, plan = FSDP2["interleaved"]()
    stages = stage_modules(job.architecture, plan)
    assert len(stages) == plan.pp * plan.virtual_stages
    flat = [name for stage in stages for name in stage]
    assert flat[0] == "tok_embeddings"
    assert flat[-2:] == ["norm", "lm_head"]
    assert flat[1:-2] == [f"layers.{i}" for i in range(job.architecture.layers)]


def test_loss_and_fp8_are_in_the_model_file(bundles: dict[str, Any]) -> None:
    assert "ChunkedLossWrapper" in bundles["fsdp2/chunked"][2]["titan_model.py"]
    assert "ChunkedLossWrapper" not in bundles["fsdp2/zero3"][2]["titan_model.py"]
    assert "Float8LinearConverter" in bundles["fsdp2/fp8"][2]["titan_model.py"]
    assert 'optimizer_name="Adam"' in bundles["fsdp2/chunked"][2]["titan_model.py"]


@pytest.mark.parametrize(
    ("model", "fields", "axes", "word"),
    [
        ("llama2-7b", {}, {"zero_stage": 1}, "ZeRO-0, 2 or 3"),
        ("llama2-7b", {}, {"precision": "fp16"}, "fp16"),
        ("llama2-7b", {}, {"attention": "eager"}, "attention"),
        ("llama2-7b", {"optimizer": "lion"}, {}, "lion"),
        ("llama2-7b", {"dropout": 0.1}, {}, "dropout"),
        ("llama2-7b", {}, {"offload_optimizer": "cpu"}, "together"),
        ("llama2-7b", {}, {"recompute": ({"every_2": 32},)}, "every_2"),
        ("llama2-7b", {}, {"recompute": ({"full": 31, "none": 1},)}, "alike"),
        ("gpt2-xl", {"seq_len": 1024}, {}, "Llama- or Qwen3-type"),
        ("mixtral-8x7b", {}, {}, "Llama- or Qwen3-type"),
        ("llama3.2-1b", {}, {"pp": 2}, "share the embedding"),
    ],
)
def test_refusals(model: str, fields: dict[str, Any], axes: dict[str, Any], word: str) -> None:
    job = make_job(model, stack="fsdp2", **fields)
    with pytest.raises(ValueError, match=r"torchtitan 0\.3\.0 cannot express") as refusal:
        check(job, make_plan(job, "fsdp2", **{"zero_stage": 3, **axes}))
    assert word in str(refusal.value)


def test_files(bundles: dict[str, Any]) -> None:
    assert set(bundles["fsdp2/zero3"][2]) == {
        "launch.sh",
        "titan_model.py",
        "accelerate_fsdp2.yaml",
    }
    job, plan = FSDP2["pipeline"]()
    assert set(emit_torchtitan(job, plan)) == {"launch.sh", "titan_model.py"}
