"""Every rule on DeepSpeed files: one file that breaks it, and typical files that break none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import advise
from planner.advisor.readers import read_arguments, read_text
from planner.advisor.source import Source
from planner.lint import Context, Device, Finding, lint, lint_deepspeed
from planner.lint.deepspeed_keys import SECTIONS
from planner.lint.document import Document
from planner.lint.run import DEEPSPEED_RULES, all_rules

MICRO = {"train_micro_batch_size_per_gpu": 1}
BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True}}
V100 = Device("V100-16G", frozenset({"fp32", "fp16"}), 16e9, 4)
A100 = Device("A100-80G", frozenset({"fp32", "tf32", "fp16", "bf16"}), 80e9, 8)


def zero(stage: int, **keys: Any) -> dict[str, Any]:
    """A usable file with a zero_optimization section."""
    return {**MICRO, **BF16, "zero_optimization": {"stage": stage, **keys}}


def offload(stage: int, **keys: Any) -> dict[str, Any]:
    """One with optimizer offload."""
    return zero(stage, offload_optimizer={"device": "cpu", **keys})


def flags(text: str) -> Document:
    """Trainer flags."""
    return read_arguments(text, kind="trainer")


# rule, severity, key, file, context
CASES: list[tuple[str, str, str, dict[str, Any], Context]] = [
    # keys
    ("ds-unknown-key", "error", "zero_optimization.reduce_bucket_sise",
     zero(2, reduce_bucket_sise=1000000), Context()),
    ("ds-unknown-key", "error", "bf16.enable", {**MICRO, "bf16": {"enable": True}}, Context()),
    ("ds-unknown-key", "error", "zero_optimization.offload_optimizer.buffer_size",
     offload(3, buffer_size=1), Context()),
    ("ds-unknown-key", "error", "zero_optimization.gradient_clipping",
     zero(1, gradient_clipping=1.0), Context()),
    ("ds-ignored-key", "warning", "gradient_cliping", {**zero(1), "gradient_cliping": 1.0},
     Context()),
    ("ds-ignored-key", "warning", "activation_checkpointing.partition_activation",
     {**zero(1), "activation_checkpointing": {"partition_activation": True}}, Context()),
    ("ds-removed-key", "error", "elasticity", {**zero(1), "elasticity": {"enabled": False}},
     Context()),
    ("ds-removed-key", "error", "zero_optimization.mics_shard_size", zero(3, mics_shard_size=8),
     Context()),
    ("ds-renamed-key", "warning", "zero_optimization.stage3_gather_fp16_weights_on_model_save",
     zero(3, stage3_gather_fp16_weights_on_model_save=True), Context()),
    ("ds-key-too-new", "error", "zero_optimization.zenflow", offload(2) | {
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"},
                              "zenflow": {"topk_ratio": 0.1}}},
     Context(deepspeed_version="0.16.4")),
    ("ds-key-too-new", "warning", "torch_autocast",
     {**MICRO, "torch_autocast": {"enabled": True}}, Context(deepspeed_version="0.15.0")),
    ("ds-wrong-type", "error", "train_micro_batch_size_per_gpu",
     {**zero(1), "train_micro_batch_size_per_gpu": "4"}, Context()),
    ("ds-wrong-type", "error", "zero_optimization.stage", zero(2) | {
        "zero_optimization": {"stage": "two"}}, Context()),
    ("ds-wrong-type", "error", "zero_optimization", {**MICRO, **BF16, "zero_optimization": 2},
     Context()),
    ("ds-wrong-type", "error", "zero_optimization.reduce_bucket_size",
     zero(2, reduce_bucket_size=1.5), Context()),
    ("ds-out-of-range", "error", "zero_optimization.stage", zero(1) | {
        "zero_optimization": {"stage": 4}}, Context()),
    ("ds-out-of-range", "error", "train_micro_batch_size_per_gpu",
     {**zero(1), "train_micro_batch_size_per_gpu": 0}, Context()),
    ("ds-bad-choice", "error", "zero_optimization.offload_optimizer.device",
     zero(2, offload_optimizer={"device": "gpu"}), Context()),
    ("ds-bad-choice", "error", "communication_data_type",
     {**zero(1), "communication_data_type": "float16"}, Context()),
    ("ds-zero-as-switch", "warning", "zero_optimization",
     {**MICRO, **BF16, "zero_optimization": True}, Context()),
    ("ds-auto-default", "info", "zero_optimization.reduce_bucket_size",
     zero(2, reduce_bucket_size="auto"), Context()),
    ("ds-auto-default", "warning", "bf16.enabled", {**MICRO, "bf16": {"enabled": "auto"}},
     Context()),
    ("ds-auto-value", "error", "gradient_accumulation_steps",
     {**zero(1), "gradient_accumulation_steps": "auto"}, Context()),
    ("ds-auto-value", "error", "scheduler.params.warmup_num_steps",
     {**zero(1), "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}},
     Context("megatron")),
    # batch
    ("ds-batch-missing", "error", "", dict(BF16), Context()),
    ("ds-batch-missing", "error", "gradient_accumulation_steps",
     {"gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}}, Context("hf")),
    ("ds-wrong-type", "warning", "zero_optimization.stage",
     zero(3) | {"zero_optimization": {"stage": "3"}}, Context("hf")),
    ("ds-wrong-type", "error", "zero_optimization.reduce_bucket_size",
     zero(2, reduce_bucket_size="5e8"), Context()),
    ("ds-one-rank", "info", "zero_optimization.stage", zero(3), Context(world=1)),
    ("ds-batch-product", "error", "train_batch_size",
     {**zero(1), "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
      "gradient_accumulation_steps": 1}, Context(world=8)),
    ("ds-batch-product", "error", "train_batch_size", {**BF16, "train_batch_size": 256},
     Context(world=7)),
    ("ds-batch-product", "error", "train_batch_size",
     {**BF16, "train_batch_size": 100, "train_micro_batch_size_per_gpu": 8}, Context()),
    ("ds-batch-autotp", "warning", "train_batch_size",
     {**zero(1), "train_batch_size": 8, "tensor_parallel": {"autotp_size": 2}}, Context()),
    # precision
    ("ds-fp16-and-bf16", "error", "fp16.enabled", {**zero(1), **FP16}, Context()),
    ("ds-no-half-precision", "warning", "fp16.enabled",
     {**MICRO, "fp16": {"enabled": False}, "zero_optimization": {"stage": 2}}, Context()),
    ("ds-half-missing", "warning", "bf16", {**MICRO, "bf16": {"enabled": "auto"}},
     Context("hf", trainer=flags("--fp16 --per_device_train_batch_size 1"))),
    ("ds-half-unsupported", "error", "bf16.enabled", zero(2), Context(device=V100)),
    ("ds-loss-scale-start", "info", "fp16.initial_scale_power",
     {**MICRO, "fp16": {"enabled": True, "initial_scale_power": 32}}, Context()),
    ("ds-loss-scale-bounds", "error", "fp16.loss_scale_window",
     {**MICRO, "fp16": {"enabled": True, "loss_scale_window": 0}}, Context()),
    ("ds-master-weights", "error", "bf16.bf16_master_weights_and_grads",
     {**MICRO, "bf16": {"enabled": True, "bf16_master_weights_and_grads": True},
      "zero_optimization": {"stage": 1}}, Context()),
    ("ds-accumulation-dtype", "error", "data_types.grad_accum_dtype",
     {**zero(0), "data_types": {"grad_accum_dtype": "fp32"}}, Context()),
    ("ds-param-dtype", "error", "data_types.param_dtype",
     {**zero(1), "data_types": {"param_dtype": "fp16"}}, Context()),
    # optimizer, scheduler
    ("ds-unknown-optimizer", "error", "optimizer.type",
     {**zero(1), "optimizer": {"type": "AdmaW"}}, Context()),
    ("ds-untested-optimizer", "error", "optimizer.type",
     {**zero(1), "optimizer": {"type": "SGD"}}, Context()),
    ("ds-client-optimizer", "error", "zero_optimization.offload_optimizer", offload(1),
     Context(client_optimizer="torch.optim.AdamW")),
    ("ds-max-grad-norm", "error", "optimizer.params.max_grad_norm",
     {**zero(1), "optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}}, Context()),
    ("ds-lamb-loss-scale", "error", "fp16.loss_scale",
     {**MICRO, "fp16": {"enabled": True, "loss_scale": 128}, "optimizer": {"type": "Lamb"}},
     Context()),
    ("ds-muon-reduce-scatter", "error", "optimizer.type",
     {**zero(3), "optimizer": {"type": "Muon"}}, Context()),
    ("ds-torch-adam-offload", "info", "optimizer.params.torch_adam",
     {**offload(2), "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}, Context()),
    ("ds-unknown-scheduler", "error", "scheduler.type",
     {**zero(1), "scheduler": {"type": "Cosine"}}, Context()),
    ("ds-unknown-scheduler", "error", "scheduler.type",
     {**zero(1), "scheduler": {"type": "WarmupLinearLR"}}, Context()),
    ("ds-unknown-scheduler", "info", "scheduler.type",
     {**zero(1), "scheduler": {"type": "StepLR"}}, Context()),
    ("ds-version-old", "warning", "", zero(2), Context(deepspeed_version="0.3.0")),
    ("ds-scheduler-parameter", "error", "scheduler.params",
     {**zero(1), "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 5}}},
     Context()),
    ("ds-optimizer-parameter", "error", "optimizer.params.learning_rate",
     {**zero(1), "optimizer": {"type": "AdamW", "params": {"learning_rate": 1e-5}}}, Context()),
    ("ds-optimizer-parameter", "error", "optimizer.params.learning_rate",
     {**zero(0), "optimizer": {"type": "SGD", "params": {"learning_rate": 1e-5}}}, Context()),
    ("ds-warmup-steps", "error", "scheduler.params.warmup_num_steps",
     {**zero(1), "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}},
     Context()),
    ("ds-total-steps", "error", "scheduler.params.total_num_steps",
     {**zero(1), "scheduler": {"type": "WarmupDecayLR", "params": {
         "total_num_steps": 100, "warmup_num_steps": 100}}}, Context()),
    ("ds-scheduler-overrides", "warning", "scheduler.type",
     {**zero(1), "scheduler": {"type": "WarmupLR", "params": {}}},
     Context("hf", trainer=flags("--lr_scheduler_type cosine --bf16"
                                 " --per_device_train_batch_size 1"))),
    # ZeRO, offload, pipeline
    ("ds-offload-param-stage", "warning", "zero_optimization.offload_param",
     zero(1, offload_param={"device": "cpu"}), Context()),
    ("ds-offload-stage-0", "warning", "zero_optimization.offload_optimizer", offload(0),
     Context()),
    ("ds-nvme-stage", "warning", "zero_optimization.offload_optimizer.device",
     zero(2, offload_optimizer={"device": "nvme", "nvme_path": "/local"}), Context()),
    ("ds-nvme-path", "error", "zero_optimization.offload_param.device",
     zero(3, offload_param={"device": "nvme"}), Context()),
    ("ds-nvme-aio", "info", "zero_optimization.offload_optimizer.device",
     zero(3, offload_optimizer={"device": "nvme", "nvme_path": "/local"}), Context()),
    ("ds-offload-idle", "warning", "zero_optimization.offload_optimizer",
     zero(2, offload_optimizer={"pin_memory": True}), Context()),
    ("ds-partial-offload-stage", "error", "zero_optimization.offload_optimizer.ratio",
     offload(2, ratio=0.5), Context()),
    ("ds-partial-offload-stage", "warning", "zero_optimization.offload_optimizer.super_offload",
     offload(1, super_offload=True), Context()),
    ("ds-ratio-granularity", "info", "zero_optimization.offload_optimizer.ratio",
     offload(3, ratio=0.5), Context()),
    ("ds-offload-cost", "info", "zero_optimization.offload_optimizer", offload(2), Context()),
    ("ds-stage-3-key", "info", "zero_optimization.stage3_max_live_parameters",
     zero(1, stage3_max_live_parameters=1e9), Context()),
    ("ds-stage-3-key", "warning", "zero_optimization.zero_quantized_weights",
     zero(2, zero_quantized_weights=True), Context()),
    ("ds-stage-0-key", "info", "zero_optimization.reduce_bucket_size",
     zero(0, reduce_bucket_size=5e8), Context()),
    ("ds-bucket-large", "info", "zero_optimization.allgather_bucket_size",
     zero(2, allgather_bucket_size=2000000000), Context()),
    ("ds-bucket-small", "info", "zero_optimization.reduce_bucket_size",
     zero(2, reduce_bucket_size=50000), Context()),
    ("ds-prefetch-offload", "warning", "zero_optimization.stage3_prefetch_bucket_size",
     zero(3, offload_param={"device": "cpu"}, stage3_prefetch_bucket_size=1e9), Context()),
    ("ds-sub-group-huge", "warning", "zero_optimization.sub_group_size",
     zero(3, sub_group_size=1e14), Context()),
    ("ds-live-parameters", "warning", "zero_optimization.stage3_max_live_parameters",
     zero(3, offload_param={"device": "cpu"}, stage3_max_live_parameters=1e11), Context()),
    ("ds-gather-on-save", "info", "zero_optimization.stage3_gather_16bit_weights_on_model_save",
     zero(3, stage3_gather_16bit_weights_on_model_save=False), Context()),
    ("ds-clipping-missing", "info", "", {**MICRO, "bf16": {"enabled": "auto"}}, Context("hf")),
    ("ds-overlap-buffer", "info", "zero_optimization.overlap_comm", zero(2, overlap_comm=True),
     Context()),
    ("ds-pin-memory", "info", "zero_optimization.offload_optimizer.pin_memory",
     offload(2, pin_memory=False), Context()),
    ("ds-frozen-buckets", "warning", "zero_optimization.reduce_bucket_size",
     zero(3, reduce_bucket_size=5120 * 5120, stage3_param_persistence_threshold=51200),
     Context("hf", hidden_size=4096)),
    ("ds-pipeline-stage", "error", "zero_optimization.stage",
     {**zero(3), "pipe-parallel-size": 2}, Context("megatron")),
    ("ds-pipeline-reentrant", "warning", "pipeline.activation_checkpoint_interval",
     {**zero(1), "pipeline": {"activation_checkpoint_interval": 1}}, Context()),
    ("ds-pipeline-seeds", "warning", "pipeline.seed_layers",
     {**zero(1), "pipeline": {"seed_layers": True}}, Context()),
    ("ds-hpz", "error", "zero_optimization.zero_hpz_partition_size",
     zero(3, zero_hpz_partition_size=8), Context(world=12)),
    ("ds-hpz", "warning", "zero_optimization.zero_hpz_partition_size",
     zero(3, zero_hpz_partition_size=4), Context(world=16, device=A100)),
    ("ds-quantized-gradients", "error", "zero_optimization.reduce_scatter",
     zero(3, zero_quantized_gradients=True, reduce_scatter=False), Context()),
    ("ds-legacy-stage-1", "error", "zero_optimization.legacy_stage1", zero(1, legacy_stage1=True),
     Context()),
    ("ds-elastic-checkpoint", "warning", "zero_optimization.elastic_checkpoint",
     zero(3, elastic_checkpoint=True), Context()),
    ("ds-grad-norm", "error", "zero_optimization.compute_grad_norm",
     {**zero(1, compute_grad_norm=False), "gradient_clipping": 1.0}, Context()),
    ("ds-bucket-odd", "error", "zero_optimization.allgather_bucket_size",
     zero(2, allgather_bucket_size=4999999), Context()),
    ("ds-predivide", "error", "prescale_gradients", {**zero(2), "prescale_gradients": True},
     Context()),
    ("ds-summed-gradients", "error", "gradient_allreduce_op",
     {**zero(3), "gradient_allreduce_op": "sum"}, Context()),
    ("ds-zenflow", "warning", "zero_optimization.zenflow",
     zero(2, zenflow={"topk_ratio": 0.1}), Context()),
    ("ds-zenflow", "error", "zero_optimization.zenflow.select_interval",
     zero(2, offload_optimizer={"device": "cpu"}, zenflow={"select_interval": 4}), Context()),
    ("ds-activation-checkpointing", "warning", "activation_checkpointing",
     {**zero(2), "activation_checkpointing": {"cpu_checkpointing": True}}, Context("hf")),
    ("ds-partitioned-activations", "warning", "activation_checkpointing.partition_activations",
     {**zero(1), "pipe_parallel_size": 2, "activation_checkpointing": {
         "partition_activations": True}}, Context("megatron")),
    ("ds-degrees", "error", "pipe_parallel_size",
     {**zero(1), "pipe_parallel_size": 3}, Context("megatron", world=8)),
    # Hugging Face
    ("hf-mismatch", "error", "optimizer.params.lr",
     {**zero(1), "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}},
     Context("hf", trainer=flags("--learning_rate 2e-5 --bf16 --per_device_train_batch_size 1"))),
    ("hf-mismatch", "error", "train_batch_size", {**zero(1), "train_batch_size": 8},
     Context("hf", world=4, trainer=flags("--bf16 --per_device_train_batch_size 1"))),
    ("hf-explicit-value", "info", "train_micro_batch_size_per_gpu", zero(1), Context("hf")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "severity", "key", "file", "context"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES]
)
def test_each_rule_finds_its_fault(
    rule: str, severity: str, key: str, file: dict[str, Any], context: Context
) -> None:
    found = [f for f in lint_deepspeed(file, context) if f.id == rule and f.key == key]
    assert [f.severity for f in found] == [severity]
    assert found[0].effect
    assert "{" not in found[0].effect
    assert found[0].source


def test_every_rule_has_a_case() -> None:
    tested = {case[0] for case in CASES} | {"ds-duplicate-key", "ds-json-extension"}
    tested |= {"ds-byte-mark"}
    assert tested == {rule.id for rule in DEEPSPEED_RULES}


def test_rule_ids_are_unique() -> None:
    ids = [rule.id for rule in DEEPSPEED_RULES]
    assert len(ids) == len(set(ids))
    assert len({rule.id for rule in all_rules()}) == len(all_rules())


AUTO = "auto"
HF_BASE = {
    "train_batch_size": AUTO,
    "train_micro_batch_size_per_gpu": AUTO,
    "gradient_accumulation_steps": AUTO,
    "gradient_clipping": AUTO,
    "zero_allow_untested_optimizer": True,
    "fp16": {"enabled": AUTO, "loss_scale": 0, "initial_scale_power": 16},
    "bf16": {"enabled": AUTO},
}
HF_ZERO3 = {
    "stage": 3,
    "overlap_comm": True,
    "reduce_bucket_size": AUTO,
    "stage3_prefetch_bucket_size": AUTO,
    "stage3_param_persistence_threshold": AUTO,
    "sub_group_size": 1e9,
    "max_live_parameters": 1e9,
    "stage3_gather_16bit_weights_on_model_save": True,
}
TYPICAL: list[tuple[dict[str, Any], Context]] = [
    ({**HF_BASE, "zero_optimization": {"stage": 2, "overlap_comm": True}}, Context("hf")),
    ({**HF_BASE, "zero_optimization": HF_ZERO3}, Context("hf")),
    (
        {**HF_BASE, "zero_optimization": {**HF_ZERO3, "offload_param": {"device": "cpu"}}},
        Context("hf", trainer=flags("--bf16 --per_device_train_batch_size 2"), world=8),
    ),
    ({**HF_BASE, "zero_optimization": HF_ZERO3}, Context("accelerate")),
    (zero(0), Context()),
    (zero(1), Context(world=8, device=A100)),
    (offload(1), Context()),
    (offload(2), Context(client_optimizer="DeepSpeedCPUAdam")),
    (zero(3, zero_hpz_partition_size=8), Context(world=16, device=A100)),
    ({"train_batch_size": 64, "gradient_accumulation_steps": 2, **BF16}, Context(world=8)),
    ({**zero(1), "pipe_parallel_size": 2, "model_parallel_size": 2}, Context("megatron", world=8)),
]


@pytest.mark.parametrize(("file", "context"), TYPICAL)
def test_typical_files_get_no_error_and_no_warning(file: dict[str, Any], context: Context) -> None:
    assert [f for f in lint_deepspeed(file, context) if f.severity != "info"] == []


def _lint_text(text: str, context: Context) -> tuple[Finding, ...]:
    return lint(read_text(Source("ds.json", text)).document, context)


def test_duplicate_keys_of_the_file() -> None:
    text = '{"train_batch_size": 8,\n "bf16": {"enabled": true,\n "enabled": false}}'
    found = [f for f in _lint_text(text, Context()) if f.id == "ds-duplicate-key"]
    assert [(f.key, f.line, f.severity) for f in found] == [("bf16.enabled", 3, "error")]


def test_comments_are_read_by_deepspeed_and_refused_by_hugging_face() -> None:
    text = '{"train_batch_size": 8, // global\n "bf16": {"enabled": true}}'
    levels = {
        framework: [f.severity for f in _lint_text(text, Context(framework)) if "exten" in f.id]
        for framework in ("plain", "hf")
    }
    assert levels == {"plain": ["info"], "hf": ["error"]}


def test_auto_is_filled_as_hugging_face_fills_it() -> None:
    from planner.lint.deepspeed_facts import DeepSpeedFacts
    from planner.lint.document import from_mapping

    trainer = flags("--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16")
    context = Context("hf", trainer=trainer, world=8, hidden_size=4096)
    document = from_mapping({**HF_BASE, "zero_optimization": HF_ZERO3})
    facts = DeepSpeedFacts(document, context)
    values = {".".join(map(str, f.path)): f.value for f in facts.autos}
    assert values["train_batch_size"] == 64
    assert values["bf16.enabled"] is True
    assert values["fp16.enabled"] is False
    assert values["zero_optimization.reduce_bucket_size"] == 16777216
    assert values["zero_optimization.stage3_prefetch_bucket_size"] == 15099494
    assert values["zero_optimization.stage3_param_persistence_threshold"] == 40960


def test_either_name_of_a_stage_3_key_is_the_same_key() -> None:
    for name in ("max_live_parameters", "stage3_max_live_parameters"):
        found = lint_deepspeed(zero(3, **{name: 1e12}), Context())
        assert [f.key for f in found if f.id == "ds-live-parameters"] == [
            f"zero_optimization.{name}"
        ]


def test_tables_hold_their_own_defaults() -> None:
    for section in SECTIONS.values():
        for key in section.keys.values():
            if isinstance(key.default, int | float) and not isinstance(key.default, bool):
                assert key.low is None or key.default >= key.low
                assert key.high is None or key.default <= key.high
            if key.choices and key.default is not None:
                assert key.default in key.choices


@pytest.mark.parametrize(
    ("encoding", "context", "severity"),
    [
        ("utf-8-sig", "hf", "error"),
        ("utf-8-sig", "plain", "info"),
        ("utf-16", "hf", "error"),
        ("utf-16", "plain", "error"),
    ],
)
def test_byte_order_marks(tmp_path: Path, encoding: str, context: str, severity: str) -> None:
    path = tmp_path / "d.json"
    path.write_bytes('{"bf16": {"enabled": true}}'.encode(encoding))
    found = [f for f in advise(path, context=context).files[0].findings if f.id == "ds-byte-mark"]
    assert [f.severity for f in found] == [severity]
