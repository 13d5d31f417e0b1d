"""The same plan for other targets: files, refusals, and what gets lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from emit_plans import make_job, make_plan
from emit_spread import DEEPSPEED, FSDP2, MEGATRON

from planner.emit import TARGETS, convert, emit, emit_notes, targets
from planner.emit.families import DECODER_LAYERS, decoder_layer

HF_AUTO = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def test_every_target_answers(bundles: dict[str, Any]) -> None:
    """Files, or one line of reason; never an empty answer."""
    for name, (job, plan, _) in bundles.items():
        for target, reason in targets(job, plan).items():
            if reason:
                assert len(reason.splitlines()) == 1, (name, target)
                with pytest.raises(ValueError, match=r"."):
                    convert(job, plan, target)
            else:
                assert convert(job, plan, target).files, (name, target)


def test_the_plans_own_stack_is_emit(bundles: dict[str, Any]) -> None:
    for name in ("deepspeed/zero2", "megatron/3d", "fsdp2/zero3"):
        job, plan, files = bundles[name]
        assert convert(job, plan, plan.stack).files == files


def test_an_unknown_target_lists_those_there_are() -> None:
    job, plan = DEEPSPEED["zero2"]()
    with pytest.raises(ValueError, match=r"accelerate.*slurm"):
        convert(job, plan, "colossalai")


def test_another_stack_says_whose_figures_they_are() -> None:
    job, plan = DEEPSPEED["zero1"]()
    moved = convert(job, plan, "megatron")
    assert "--use-distributed-optimizer" in moved.files["launch.sh"]
    assert any("planner estimate" in note for note in moved.notes)


def test_another_stack_refuses_with_the_reason() -> None:
    job, plan = DEEPSPEED["zero2"]()
    assert "ZeRO-2" in targets(job, plan)["megatron"]
    job, plan = MEGATRON["3d"]()
    assert "AutoTP" in targets(job, plan)["deepspeed"]
    for target in ("hf", "axolotl", "llama-factory", "accelerate"):
        assert targets(job, plan)[target]


def test_auto_is_only_for_the_trainer() -> None:
    job, plan = DEEPSPEED["zero2"]()
    files = convert(job, plan, "hf").files
    config = json.loads(files["ds_config_hf.json"])
    assert all(config[key] == "auto" for key in HF_AUTO)
    assert config["bf16"]["enabled"] == "auto"
    assert config["optimizer"]["params"]["lr"] == "auto"
    assert isinstance(config["zero_optimization"]["reduce_bucket_size"], int)
    assert '"auto"' not in emit(job, plan)["deepspeed_config.json"]


def test_training_arguments_say_the_batch_of_the_plan() -> None:
    job, plan = DEEPSPEED["zero2"]()
    arguments = json.loads(convert(job, plan, "hf").files["training_args.json"])
    batch = arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]
    assert batch * plan.gpus == job.global_batch
    assert arguments["bf16"] is True
    assert arguments["deepspeed"] == "ds_config_hf.json"


@pytest.mark.parametrize(
    ("recompute", "on", "every", "lost"),
    [
        ({"none": 32}, False, None, False),
        ({"full": 32}, True, None, False),
        ({"full": 16, "none": 16}, True, 2, False),  # every second layer, from the first
        ({"full": 11, "none": 21}, True, 3, False),  # layers 0, 3, ... 30
        ({"full": 20, "none": 12}, True, None, True),
        ({"selective": 32}, True, None, True),
        ({"every_2": 32}, True, None, True),
    ],
)
def test_trainer_checkpointing(
    recompute: dict[str, int], on: bool, every: int | None, lost: bool
) -> None:
    job = make_job()
    conversion = convert(job, make_plan(job, recompute=(recompute,)), "hf")
    arguments = json.loads(conversion.files["training_args.json"])
    assert arguments["activation_checkpointing"] is on
    kwargs = arguments.get("activation_checkpointing_kwargs", {})
    assert kwargs.get("every_n_layers") == every
    assert not on or kwargs["use_reentrant"] is False
    assert any("full checkpointing" in note for note in conversion.notes) is lost


def test_accelerate_deepspeed_leaves_the_json_its_values() -> None:
    """Accelerate refuses values that are named both in its file and in the JSON."""
    job, plan = DEEPSPEED["zero3-64-gpus"]()
    files = convert(job, plan, "accelerate").files
    data = yaml.safe_load(files["accelerate_deepspeed.yaml"])
    assert data["distributed_type"] == "DEEPSPEED"
    assert data["num_processes"] == 64
    assert data["num_machines"] == 8
    assert data["deepspeed_config"]["deepspeed_config_file"] in files
    assert data["deepspeed_config"]["zero3_init_flag"] is True
    assert "mixed_precision" not in data


@pytest.mark.parametrize(
    ("case", "reshard", "checkpointing", "offload"),
    [
        ("zero3", True, False, False),
        ("zero2", False, False, False),
        ("tp", True, True, False),
        ("offload", True, False, True),
    ],
)
def test_accelerate_fsdp2(case: str, reshard: bool, checkpointing: bool, offload: bool) -> None:
    job, plan = FSDP2[case]()
    data = yaml.safe_load(convert(job, plan, "accelerate").files["accelerate_fsdp2.yaml"])
    fsdp = data["fsdp_config"]
    assert fsdp["fsdp_version"] == 2
    assert fsdp["fsdp_reshard_after_forward"] is reshard
    assert fsdp["fsdp_activation_checkpointing"] is checkpointing
    assert fsdp["fsdp_offload_params"] is offload
    assert fsdp["fsdp_transformer_layer_cls_to_wrap"] == "LlamaDecoderLayer"
    sizes = data.get("parallelism_config", {})
    product = 1
    for name in ("dp_replicate", "dp_shard", "tp", "cp"):
        product *= sizes.get(f"parallelism_config_{name}_size", 1)
    assert not sizes or product == data["num_processes"]


def test_llama_factory_and_axolotl_agree_with_the_plan() -> None:
    job, plan = DEEPSPEED["zero2"]()
    for target, file, micro in (
        ("llama-factory", "llama_factory.yaml", "per_device_train_batch_size"),
        ("axolotl", "axolotl.yaml", "micro_batch_size"),
    ):
        conversion = convert(job, plan, target)
        data = yaml.safe_load(conversion.files[file])
        assert data[micro] * data["gradient_accumulation_steps"] * plan.gpus == job.global_batch
        assert data["deepspeed"] in conversion.files
        assert data["bf16"] is True
        assert any("placeholder" in note for note in conversion.notes)


def test_axolotl_takes_fsdp2_as_such() -> None:
    job, plan = FSDP2["zero3"]()
    conversion = convert(job, plan, "axolotl")
    data = yaml.safe_load(conversion.files["axolotl.yaml"])
    assert data["fsdp_version"] == 2
    assert data["fsdp_config"]["reshard_after_forward"] is True
    assert "deepspeed" not in data


def test_the_trainer_counts_every_rank_as_data_parallel() -> None:
    job, plan = DEEPSPEED["autotp"]()
    for target in ("hf", "llama-factory", "axolotl"):
        assert "tp times" in targets(job, plan)[target]


def test_kubernetes_has_a_replica_a_node() -> None:
    job, plan = MEGATRON["3d"]()
    conversion = convert(job, plan, "kubernetes")
    data = yaml.safe_load(conversion.files["pytorchjob.yaml"])
    replicas = data["spec"]["pytorchReplicaSpecs"]
    assert replicas["Master"]["replicas"] + replicas["Worker"]["replicas"] == 4
    container = replicas["Master"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert "launch.sh" in container["command"][-1]
    assert "launch.sh" in conversion.files


def test_several_nodes_get_a_batch_script(bundles: dict[str, Any]) -> None:
    assert "job.sbatch" in bundles["megatron/3d"][2]
    assert "job.sbatch" not in bundles["megatron/dp"][2]
    job, plan, _ = bundles["megatron/dp"]
    assert "#SBATCH --nodes=1" in convert(job, plan, "slurm").files["job.sbatch"]


def test_notes_say_what_the_files_do_not(bundles: dict[str, Any]) -> None:
    job, plan, _ = bundles["deepspeed/recompute-some"]
    assert any("train.py" in note for note in emit_notes(job, plan))
    job, plan, files = bundles["fsdp2/pipeline"]
    assert "accelerate_fsdp2.yaml" not in files
    assert any("accelerate_fsdp2.yaml" in note for note in emit_notes(job, plan))


def test_conversions_are_deterministic() -> None:
    job, plan = DEEPSPEED["zero2"]()
    for target in TARGETS:
        if not targets(job, plan)[target]:
            assert convert(job, plan, target) == convert(job, plan, target)


def test_an_unknown_family_is_named() -> None:
    arch = make_job().architecture
    assert decoder_layer(arch) == "LlamaDecoderLayer"
    from dataclasses import replace

    with pytest.raises(ValueError, match="rwkv"):
        decoder_layer(replace(arch, family="rwkv"))
    assert len(set(DECODER_LAYERS.values())) >= 25
