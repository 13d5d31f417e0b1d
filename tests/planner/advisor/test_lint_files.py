"""Rules on Accelerate, LLaMA-Factory and axolotl YAML, launch lines, Megatron lists and plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner import advise
from planner.lint import Context, Device, Finding
from planner.lint.run import DEEPSPEED_RULES, all_rules

ACC_DS = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 2
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
ACC_FSDP = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 1
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
ACC_FSDP2 = ACC_FSDP.replace("fsdp_version: 1", "fsdp_version: 2").replace(
    "  fsdp_sharding_strategy: FULL_SHARD\n", "  fsdp_reshard_after_forward: true\n"
)
LF = """model_name_or_path: meta-llama/Meta-Llama-3-8B
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca_en_demo
template: llama3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
bf16: true
"""
AXOLOTL = """base_model: NousResearch/Meta-Llama-3.1-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
attn_implementation: flash_attention_2
micro_batch_size: 1
gradient_accumulation_steps: 8
optimizer: adamw_torch
bf16: true
gradient_checkpointing: true
"""
MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
    " --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
    " --micro-batch-size 1 --global-batch-size 64 --bf16"
)
MDS = MEGATRON + " --deepspeed --deepspeed_config ds.json --zero-stage 1"
TRAIN = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1"
PLAN = {
    **{"stack": "deepspeed", "gpus": 8, "dp": 8, "tp": 1, "pp": 1, "cp": 1, "ep": 1},
    **{"micro_batch": 1, "grad_accum": 8, "virtual_stages": 1, "zero_stage": 2},
    "stages": [],
}
V100 = "8xV100-32G"

# rule, severity, key, file name, text, options
Case = tuple[str, str, str, str, str, dict[str, str]]
CASES: list[Case] = [
    # Accelerate
    ("acc-unknown-key", "error", "mixed_precison", "a.yaml",
     ACC_DS.replace("mixed_precision", "mixed_precison"), {}),
    ("acc-ignored-key", "warning", "deepspeed_config.zero_stag", "a.yaml",
     ACC_DS.replace("zero_stage", "zero_stag"), {}),
    ("acc-ignored-key", "warning", "fsdp_config.fsdp_cpu_offload", "a.yaml",
     ACC_FSDP.replace("fsdp_version: 1", "fsdp_cpu_offload: true"), {}),
    ("acc-no-type", "error", "", "a.yaml", ACC_DS.replace("distributed_type: DEEPSPEED\n", ""),
     {}),
    ("acc-idle-section", "warning", "deepspeed_config", "a.yaml",
     ACC_DS.replace("type: DEEPSPEED", "type: MULTI_GPU"), {}),
    ("acc-bad-choice", "error", "mixed_precision", "a.yaml",
     ACC_DS.replace("bf16", "bfloat16"), {}),
    ("acc-bad-choice", "error", "deepspeed_config.zero_stage", "a.yaml",
     ACC_DS.replace("zero_stage: 2", "zero_stage: 5"), {}),
    ("acc-bad-number", "error", "num_processes", "a.yaml",
     ACC_DS.replace("num_processes: 8", "num_processes: eight"), {}),
    ("acc-file-conflict", "error", "deepspeed_config.zero_stage", "a.yaml",
     ACC_DS.replace("zero_stage: 2", "deepspeed_config_file: ds.json\n  zero_stage: 2"), {}),
    ("acc-precision-conflict", "error", "mixed_precision", "a.yaml",
     ACC_DS.replace("zero_stage: 2", "deepspeed_config_file: fp16.json"), {}),
    ("acc-stage-3-only", "warning", "deepspeed_config.zero3_init_flag", "a.yaml",
     ACC_DS.replace("zero_stage: 2", "zero_stage: 1\n  zero3_init_flag: true"), {}),
    ("acc-nvme-path", "error", "deepspeed_config.offload_param_device", "a.yaml",
     ACC_DS.replace("zero_stage: 2", "zero_stage: 3\n  offload_param_device: nvme"), {}),
    ("acc-accumulation-fixed", "info", "deepspeed_config.gradient_accumulation_steps", "a.yaml",
     ACC_DS.replace("zero_stage: 2", "zero_stage: 2\n  gradient_accumulation_steps: 2"), {}),
    ("acc-offload-cost", "info", "deepspeed_config.offload_optimizer_device", "a.yaml",
     ACC_DS.replace("zero_stage: 2", "zero_stage: 2\n  offload_optimizer_device: cpu"), {}),
    ("acc-use-cpu", "warning", "use_cpu", "a.yaml", ACC_FSDP + "use_cpu: true\n", {}),
    ("acc-processes", "error", "num_processes", "a.yaml",
     ACC_DS.replace("num_machines: 1", "num_machines: 3"), {}),
    ("acc-precision-unsupported", "error", "mixed_precision", "a.yaml", ACC_DS, {"gpus": V100}),
    ("acc-no-half-precision", "info", "mixed_precision", "a.yaml",
     ACC_FSDP.replace("bf16", "'no'"), {}),
    ("acc-fsdp2-refused", "error", "fsdp_config.fsdp_forward_prefetch", "a.yaml",
     ACC_FSDP2.replace("fsdp_version", "fsdp_forward_prefetch: true\n  fsdp_version"), {}),
    ("acc-fsdp2-dropped", "warning", "fsdp_config.fsdp_use_orig_params", "a.yaml",
     ACC_FSDP2.replace("fsdp_version", "fsdp_use_orig_params: true\n  fsdp_version"), {}),
    ("acc-ram-efficient", "error", "fsdp_config.fsdp_sync_module_states", "a.yaml",
     ACC_FSDP.replace("fsdp_version", "fsdp_sync_module_states: false\n  fsdp_version"), {}),
    ("acc-no-wrap", "warning", "fsdp_config", "a.yaml",
     ACC_FSDP.replace("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", ""), {}),
    ("acc-full-state-dict", "info", "fsdp_config.fsdp_state_dict_type", "a.yaml",
     ACC_FSDP.replace("SHARDED_STATE", "FULL_STATE"), {}),
    ("acc-forward-prefetch", "info", "fsdp_config.fsdp_forward_prefetch", "a.yaml",
     ACC_FSDP.replace("fsdp_version", "fsdp_forward_prefetch: true\n  fsdp_version"), {}),
    ("acc-checkpoint-offload", "error", "fsdp_config.fsdp_activation_checkpointing_offload",
     "a.yaml",
     ACC_FSDP2.replace("fsdp_version", "fsdp_activation_checkpointing_offload: true\n"
                                       "  fsdp_version"), {}),
    ("acc-parallelism", "error", "parallelism_config", "a.yaml",
     ACC_FSDP2 + "parallelism_config:\n  parallelism_config_dp_shard_size: 2\n"
                 "  parallelism_config_tp_size: 2\n", {}),
    ("acc-layer-class", "error", "fsdp_config.fsdp_transformer_layer_cls_to_wrap", "a.yaml",
     ACC_FSDP.replace("fsdp_version", "fsdp_transformer_layer_cls_to_wrap: GPT2Block\n"
                                      "  fsdp_version"), {"model": "llama2-7b"}),
    # YAML itself
    ("yaml-duplicate-key", "warning", "num_machines", "a.yaml", ACC_DS + "num_machines: 1\n", {}),
    ("yaml-cycle", "error", "fsdp_config.x", "a.yaml",
     ACC_FSDP.replace("fsdp_config:", "fsdp_config: &f\n  x: *f"), {}),
    ("yaml-second-document", "warning", "", "a.yaml", ACC_DS + "---\na: 1\n", {}),
    # trainer flags
    ("hf-fsdp-and-deepspeed", "error", "--fsdp", "t.sh",
     TRAIN + " --deepspeed ds.json --fsdp full_shard", {}),
    ("hf-fp16-and-bf16", "error", "--fp16", "t.sh", TRAIN + " --fp16 --bf16 True", {}),
    ("hf-precision-unsupported", "error", "--tf32", "t.sh", TRAIN + " --tf32 True",
     {"gpus": V100}),
    ("hf-checkpointing-twice", "error", "--gradient_checkpointing", "t.sh",
     "accelerate launch --config_file ac.yaml train.py --output_dir o --gradient_checkpointing",
     {}),
    ("hf-attention-unsupported", "error", "--attn_implementation", "t.sh",
     TRAIN + " --fp16 --attn_implementation flash_attention_2", {"gpus": V100}),
    ("hf-optimizer-replaced", "warning", "--optim", "t.sh",
     TRAIN + " --deepspeed off.json --optim adamw_bnb_8bit --bf16", {}),
    ("hf-accumulation-conflict", "error", "--gradient_accumulation_steps", "t.sh",
     "accelerate launch --config_file ga.yaml train.py --gradient_accumulation_steps=4", {}),
    ("hf-clipping-conflict", "error", "--max_grad_norm", "t.sh",
     "accelerate launch --config_file ga.yaml train.py --output_dir o --max_grad_norm 0.3", {}),
    ("hf-precision-conflict", "error", "--fp16", "t.sh",
     "accelerate launch --config_file ga.yaml train.py --output_dir o --fp16", {}),
    ("launch-unknown-option", "error", "--zero_stag", "t.sh",
     "accelerate launch --use_deepspeed --zero_stag 2 train.py --output_dir o", {}),
    ("launch-unknown-option", "error", "--nproc_per_nod_", "t.sh",
     "torchrun --nproc_per_nod_ 8 train.py --output_dir o", {}),
    ("launch-unknown-option", "error", "--num_gpu_s", "t.sh",
     "deepspeed --num_gpu_s 8 train.py --output_dir o", {}),
    ("launch-engines", "error", "--use_deepspeed", "t.sh",
     "accelerate launch --use_fsdp --use_deepspeed train.py --output_dir o", {}),
    ("launch-one-process", "error", "--num_processes", "t.sh",
     "accelerate launch --multi_gpu --num_processes 1 train.py --output_dir o", {}),
    ("launch-parallelism", "error", "--use_parallelism_config", "t.sh",
     "accelerate launch --use_parallelism_config train.py --output_dir o", {}),
    ("args-repeated", "warning", "--learning_rate", "t.sh",
     TRAIN + " --learning_rate 1e-5 --bf16 --learning_rate 2e-5", {}),
    ("args-unresolved", "info", "--gradient_accumulation_steps", "t.sh",
     TRAIN + " --gradient_accumulation_steps $STEPS", {}),
    # LLaMA-Factory
    ("lf-unknown-key", "error", "cutof_len", "l.yaml", LF.replace("cutoff_len", "cutof_len"), {}),
    ("lf-bad-choice", "error", "finetuning_type", "l.yaml", LF.replace(": full", ": fulll"), {}),
    ("lf-bad-number", "error", "gradient_accumulation_steps", "l.yaml",
     LF.replace("steps: 4", "steps: '4'"), {}),
    ("lf-zero-3-excludes", "error", "pure_bf16", "l.yaml",
     LF + "pure_bf16: true\ndeepspeed: z3.json\n", {}),
    ("lf-deepspeed-excludes", "error", "use_galore", "l.yaml",
     LF + "use_galore: true\ndeepspeed: z3.json\n", {}),
    ("lf-quantized", "error", "quantization_bit", "l.yaml", LF + "quantization_bit: 4\n", {}),
    ("lf-quantized-zero-3", "warning", "quantization_bit", "l.yaml",
     LF.replace("full", "lora") + "quantization_bit: 4\ndeepspeed: z3.json\n", {}),
    ("lf-no-half-precision", "warning", "bf16", "l.yaml",
     LF.replace("bf16: true", "bf16: false"), {}),
    ("lf-adapter-option", "error", "use_dora", "l.yaml", LF + "use_dora: true\n", {}),
    ("lf-checkpointing", "info", "disable_gradient_checkpointing", "l.yaml",
     LF + "disable_gradient_checkpointing: true\n", {}),
    # axolotl
    ("axolotl-unknown-key", "warning", "gradient_acumulation_steps", "x.yaml",
     AXOLOTL + "gradient_acumulation_steps: 2\n", {}),
    ("axolotl-both-engines", "error", "fsdp_config", "x.yaml",
     AXOLOTL + "deepspeed: z3.json\nfsdp_config:\n  offload_params: false\n", {}),
    ("axolotl-batch", "error", "batch_size", "x.yaml", AXOLOTL + "batch_size: 8\n", {}),
    ("axolotl-bad-number", "error", "sequence_len", "x.yaml",
     AXOLOTL.replace("4096", "0"), {}),
    ("axolotl-fp16-and-bf16", "error", "fp16", "x.yaml", AXOLOTL + "fp16: true\n", {}),
    ("axolotl-precision-unsupported", "error", "bf16", "x.yaml", AXOLOTL, {"gpus": V100}),
    ("axolotl-packing", "warning", "sample_packing", "x.yaml",
     AXOLOTL.replace("attn_implementation: flash_attention_2\n", ""), {}),
    ("axolotl-packing-rl", "error", "sample_packing", "x.yaml", AXOLOTL + "rl: dpo\n", {}),
    ("axolotl-8bit-fsdp", "error", "optimizer", "x.yaml",
     AXOLOTL.replace("adamw_torch", "adamw_bnb_8bit")
     + "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", {}),
    ("axolotl-muon", "error", "optimizer", "x.yaml",
     AXOLOTL.replace("adamw_torch", "muon") + "deepspeed: z3.json\n", {}),
    ("axolotl-exclusive", "error", "warmup_ratio", "x.yaml",
     AXOLOTL + "warmup_steps: 10\nwarmup_ratio: 0.1\n", {}),
    ("axolotl-quantized", "error", "adapter", "x.yaml", AXOLOTL + "adapter: qlora\n", {}),
    ("axolotl-no-half-precision", "warning", "bf16", "x.yaml",
     AXOLOTL.replace("bf16: true", "bf16: false"), {}),
    ("axolotl-checkpointing", "info", "gradient_checkpointing", "x.yaml",
     AXOLOTL.replace("checkpointing: true", "checkpointing: false"), {}),
    ("axolotl-checkpointing-twice", "warning", "gradient_checkpointing", "x.yaml",
     AXOLOTL + "fsdp_version: 2\nfsdp_config:\n  activation_checkpointing: true\n", {}),
    ("axolotl-fsdp-1", "info", "fsdp_config", "x.yaml",
     AXOLOTL + "fsdp_config:\n  offload_params: false\n", {}),
    ("hf-misspelt-flag", "warning", "--gradient_acumulation_steps", "t.sh",
     TRAIN + " --gradient_acumulation_steps 8", {}),
    ("hf-bad-number", "error", "--learning_rate", "t.sh", TRAIN + " --learning_rate fast", {}),
    ("hf-bad-number", "error", "--per_device_train_batch_size", "t.sh",
     "torchrun t.py --output_dir o --per_device_train_batch_size two", {}),
    ("hf-bad-choice", "error", "--optim", "t.sh", TRAIN + " --optim adamw_tourch", {}),
    ("hf-bad-choice", "error", "--lr_scheduler_type", "t.sh",
     TRAIN + " --lr_scheduler_type cosin", {}),
    ("hf-bad-choice", "error", "optim", "l.yaml", LF + "optim: adamw_tourch\n", {}),
    ("hf-no-wrap", "warning", "--fsdp", "t.sh", TRAIN + " --fsdp full_shard", {}),
    ("hf-fsdp-word", "error", "--fsdp", "t.sh", TRAIN + " --fsdp 'full_shard autowrap'", {}),
    # Megatron
    ("mg-misspelt-flag", "warning", "--tensor-model-paralel-size", "m.sh",
     MEGATRON + " --tensor-model-paralel-size 2", {}),
    ("mg-bad-number", "error", "--micro-batch-size", "m.sh",
     MEGATRON.replace("--micro-batch-size 1", "--micro-batch-size 0"), {}),
    ("mg-old-name", "error", "--model-parallel-size", "m.sh",
     MEGATRON + " --model-parallel-size 2", {}),
    ("mg-missing", "error", "", "m.sh", MEGATRON.replace("--micro-batch-size 1 ", ""), {}),
    ("mg-world", "error", "--tensor-model-parallel-size", "m.sh",
     MEGATRON + " --tensor-model-parallel-size 16", {}),
    ("mg-batch", "error", "--global-batch-size", "m.sh",
     MEGATRON.replace("size 64", "size 60"), {}),
    ("mg-heads", "error", "--num-query-groups", "m.sh",
     MEGATRON.replace("heads 32", "heads 36").replace("4096", "4608")
     + " --group-query-attention --num-query-groups 3 --tensor-model-parallel-size 2", {}),
    ("mg-groups-idle", "warning", "--num-query-groups", "m.sh",
     MEGATRON + " --num-query-groups 8", {}),
    ("mg-head-size", "error", "--hidden-size", "m.sh", MEGATRON.replace("size 4096", "size 4100"),
     {}),
    ("mg-sequence-parallel", "warning", "--sequence-parallel", "m.sh",
     MEGATRON + " --sequence-parallel", {}),
    ("mg-overlap-needs-sp", "error", "--tp-comm-overlap", "m.sh",
     MEGATRON + " --tensor-model-parallel-size 2 --tp-comm-overlap", {}),
    ("mg-moe-needs-sp", "error", "--num-experts", "m.sh",
     MEGATRON + " --tensor-model-parallel-size 2 --num-experts 8", {}),
    ("mg-sequence", "error", "--seq-length", "m.sh",
     MEGATRON.replace("4096 --max", "4100 --max").replace("dings 4096", "dings 8192")
     + " --context-parallel-size 4", {}),
    ("mg-positions", "error", "--max-position-embeddings", "m.sh",
     MEGATRON.replace("dings 4096", "dings 2048"), {}),
    ("mg-stage-layers", "error", "--num-layers", "m.sh",
     MEGATRON.replace("layers 32", "layers 30") + " --pipeline-model-parallel-size 4", {}),
    ("mg-interleaving", "error", "--num-layers-per-virtual-pipeline-stage", "m.sh",
     MEGATRON + " --num-layers-per-virtual-pipeline-stage 2", {}),
    ("mg-bubble", "warning", "--global-batch-size", "m.sh",
     MEGATRON.replace("batch-size 64", "batch-size 4") + " --pipeline-model-parallel-size 8", {}),
    ("mg-recompute", "error", "--recompute-granularity", "m.sh",
     MEGATRON + " --recompute-granularity full", {}),
    ("mg-core-attention", "info", "--recompute-activations", "m.sh",
     MEGATRON + " --recompute-activations", {}),
    ("mg-distributed-activations", "error", "--distribute-saved-activations", "m.sh",
     MEGATRON + " --distribute-saved-activations", {}),
    ("mg-needs", "error", "--optimizer-cpu-offload", "m.sh",
     MEGATRON + " --optimizer-cpu-offload", {}),
    ("mg-layer-offload", "error", "--cpu-offloading-num-layers", "m.sh",
     MEGATRON + " --cpu-offloading-num-layers 40", {}),
    ("mg-experts", "error", "--expert-model-parallel-size", "m.sh",
     MEGATRON + " --expert-model-parallel-size 8", {}),
    ("mg-connections", "warning", "--tensor-model-parallel-size", "m.sh",
     MEGATRON + " --tensor-model-parallel-size 2", {}),
    ("mg-precision", "error", "--fp16", "m.sh", MEGATRON + " --fp16", {}),
    ("mg-precision", "error", "--bf16", "m.sh", MEGATRON, {"gpus": V100}),
    ("mg-torch-fsdp2", "error", "--use-distributed-optimizer", "m.sh",
     MEGATRON + " --use-torch-fsdp2 --use-distributed-optimizer", {}),
    ("mg-zero-pipeline", "error", "--zero-stage", "m.sh",
     MDS.replace("stage 1", "stage 2") + " --pipeline-model-parallel-size 2", {}),
    ("mg-zero-disagrees", "error", "--zero-stage", "m.sh", MDS, {}),
    ("mg-no-pipeline", "error", "--no-pipeline-parallel", "m.sh",
     MDS + " --no-pipeline-parallel --pipeline-model-parallel-size 2", {}),
    # plans
    ("plan-count", "error", "plan.tp", "plan.json",
     json.dumps({"schema_version": "1", "plan": {**PLAN, "tp": 0}}), {}),
    ("plan-product", "error", "gpus", "p.json", json.dumps({**PLAN, "dp": 4}), {}),
    ("plan-gpus", "warning", "gpus", "p.json", json.dumps(PLAN), {"gpus": "4xA100-80G"}),
    ("plan-pipeline-stage", "error", "zero_stage", "p.json",
     json.dumps({**PLAN, "dp": 4, "pp": 2}), {}),
]  # fmt: skip

BESIDE = {
    "ds.json": {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}},
    "fp16.json": {"fp16": {"enabled": True}, "zero_optimization": {"stage": 2}},
    "z3.json": {
        "train_micro_batch_size_per_gpu": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3},
    },
    "off.json": {
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    },
}
YAMLS = {
    "ga.yaml": ACC_DS.replace(
        "zero_stage: 2", "zero_stage: 2\n  gradient_accumulation_steps: 2\n  gradient_clipping: 1.0"
    ),
    "ac.yaml": ACC_FSDP.replace(
        "fsdp_version", "fsdp_activation_checkpointing: true\n  fsdp_version"
    ),
}  # fmt: skip


def found(tmp_path: Path, name: str, text: str, options: dict[str, str]) -> list[Finding]:
    """Findings of a file with its partner files beside it."""
    for partner, content in BESIDE.items():
        (tmp_path / partner).write_text(json.dumps(content))
    for partner, content in YAMLS.items():
        (tmp_path / partner).write_text(content)
    path = tmp_path / name
    path.write_text(text)
    report = advise(path, advice=False, **options).files[0]
    assert not report.error
    return list(report.findings)


@pytest.mark.parametrize(
    ("rule", "severity", "key", "name", "text", "options"),
    CASES,
    ids=[f"{c[0]}-{c[2]}" for c in CASES],
)
def test_each_rule_finds_its_fault(
    tmp_path: Path,
    rule: str,
    severity: str,
    key: str,
    name: str,
    text: str,
    options: dict[str, str],
) -> None:
    hits = [f for f in found(tmp_path, name, text, options) if f.id == rule and f.key == key]
    assert [f.severity for f in hits] == [severity]
    assert hits[0].line is not None
    assert hits[0].source


def test_every_rule_has_a_case() -> None:
    tested = {case[0] for case in CASES} | {rule.id for rule in DEEPSPEED_RULES}
    assert tested == {rule.id for rule in all_rules()}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", ACC_DS),
        ("a.yaml", ACC_FSDP),
        ("a.yaml", ACC_FSDP2),
        ("l.yaml", LF),
        ("x.yaml", AXOLOTL),
        ("m.sh", "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" + MEGATRON),
        ("m.sh", "CUDA_DEVICE_MAX_CONNECTIONS=1 " + MEGATRON + " --tensor-model-parallel-size 2"
         " --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce"),
        ("t.sh", TRAIN + " --bf16 --gradient_checkpointing --deepspeed z3.json"),
        ("p.json", json.dumps(PLAN)),
    ],
)  # fmt: skip
def test_typical_files_get_no_error_and_no_warning(tmp_path: Path, name: str, text: str) -> None:
    assert [f for f in found(tmp_path, name, text, {}) if f.severity != "info"] == []


def test_line_of_a_flag_in_a_script(tmp_path: Path) -> None:
    text = "#!/bin/bash\ntorchrun train.py \\\n  --output_dir x \\\n  --fp16 \\\n  --bf16\n"
    hits = [f for f in found(tmp_path, "t.sh", text, {}) if f.id == "hf-fp16-and-bf16"]
    assert [(f.line, f.column) for f in hits] == [(4, 3)]


def test_context_needs_no_hardware() -> None:
    assert Context().device is None
    assert Device("x", frozenset(), 0.0, 8).gpus_per_node == 8
