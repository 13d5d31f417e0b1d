"""Causes of running out of GPU and of host memory."""

from __future__ import annotations

from planner.advisor.symptom_case import Case, Known
from planner.lint.document import as_bool, as_int


def _short(case: Case) -> float:
    """1 if it is predicted not to fit, 0.6 if tight or unknown, 0.2 if it should fit."""
    if case.judged is None:
        return 0.6
    return {"does not fit": 1.0, "tight": 0.6, "fits": 0.2}[case.judged.verdict]


def _states(case: Case) -> float:
    if case.get("offload_optimizer") in ("cpu", "nvme"):
        return 0.05
    share = case.part("optimizer") + case.part("gradients") + case.part("weights")
    return share * _short(case) * (1.2 if case.stage < 3 else 0.9)


def _activations(case: Case) -> float:
    rate = 0.5 if case.get("recompute") in ("full", "every_2", "every_4") else 1.2
    return case.part("activations") * rate * max(0.4, _short(case))


def _logits(case: Case) -> float:
    fused = case.get("cross_entropy") in ("fused", "chunked")
    if fused:
        return 0.02
    tokens = (as_int(case.get("micro_batch")) or 1) * (as_int(case.get("seq_len")) or 4096)
    return min(0.75, 0.25 + tokens / 65536 * 0.5)


def _one_gpu(case: Case) -> float:
    return 0.85 if case.stage and case.gpus == 1 else 0.0


def _buffers(case: Case) -> float:
    large = case.found("ds-bucket-large", "ds-prefetch-offload", "ds-sub-group-huge")
    large = large or case.found("ds-live-parameters")
    return 0.7 if large else case.part("buffers") * 0.8


def _fragments(case: Case) -> float:
    return 0.45 if case.judged is not None and case.judged.verdict == "tight" else 0.25


def _foreach(case: Case) -> float:
    plain = case.get("stack") == "fsdp2" or (case.stage == 0 and not case.offloads)
    return 0.35 * _short(case) if plain else 0.0


def _adapter_replica(case: Case) -> float:
    lora = case.get("tuning") not in (None, "full")
    return 0.8 if lora and case.stage < 3 and case.gpus > 1 else 0.0


_MEMORY = "torch.cuda.memory_summary() and max_memory_allocated() right after"


OOM: tuple[Known, ...] = (
    Known(
        "weights, gradients and optimizer states alone come close to the card",
        _states,
        f"{_MEMORY} the first optimizer step; states are made there, so it dies on step 1",
        "a higher ZeRO stage, an 8-bit optimizer, or optimizer offload",
        "OpenRLHF issue 698; pytorch/torchtune issue 389",
        remedies={
            "fsdp": "FULL_SHARD, an 8-bit optimizer, or CPU offload",
            "megatron": "the distributed optimizer, more tensor or pipeline ranks",
            "none": "DeepSpeed ZeRO or FSDP, an 8-bit optimizer",
        },
    ),
    Known(
        "activations of the micro-batch",
        _activations,
        f"{_MEMORY} the forward pass; halve the micro-batch or the length and compare",
        "activation checkpointing, a smaller micro-batch with more accumulation",
        "Korthikanti et al. 2022, Reducing Activation Recomputation, section 4",
    ),
    Known(
        "logits and their fp32 copies: tokens x vocabulary x about 10 bytes",
        _logits,
        "the traceback ends in the loss or in its backward; memory jumps there",
        "a fused or chunked cross-entropy (use_liger_kernel), or a smaller micro-batch",
        "hiyouga/LlamaFactory issue 2580; pytorch/torchtitan pull request 996",
    ),
    Known(
        "one GPU: sharding over one rank shards nothing",
        _one_gpu,
        "the launcher's process count; torch.distributed.get_world_size()",
        "start one process per GPU, or offload",
        "baichuan-inc/Baichuan2 issue 113",
    ),
    Known(
        "buckets, prefetch or live parameters take gigabytes of their own",
        _buffers,
        "memory before the first forward pass against the states' size",
        "default bucket sizes, or auto under Hugging Face",
        "DeepSpeed 0.19.8, deepspeed/runtime/zero/config.py",
        ("deepspeed",),
    ),
    Known(
        "the whole model is one FSDP unit: the wrap policy is missing",
        lambda case: 0.95 if case.found("acc-no-wrap") else 0.0,
        "print(model): one FullyShardedDataParallel around everything",
        "fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP",
        "lm-sys/FastChat issue 3310",
    ),
    Known(
        "nothing runs in half precision",
        lambda case: (
            0.9
            if case.get("precision") == "fp32"
            or case.found("ds-no-half-precision", "ds-half-missing")
            else 0.0
        ),
        "next(model.parameters()).dtype inside the loop",
        "bf16, or fp16 on cards without it",
        "deepspeedai/DeepSpeed issue 5484",
    ),
    Known(
        "frozen weights are replicated on every GPU below stage 3",
        _adapter_replica,
        "memory right after loading equals the whole model in 16 bit",
        "stage 3 or FSDP; with 4-bit weights only FSDP",
        "InternLM/xtuner issue 88; hiyouga/LlamaFactory issue 3880",
        ("deepspeed", "none"),
    ),
    Known(
        "parameter offload is set but not used below stage 3",
        lambda case: 0.8 if case.found("ds-offload-param-stage", "acc-stage-3-only") else 0.0,
        "memory after loading does not fall when the section is added",
        "stage 3",
        "huggingface/trl issue 1268",
    ),
    Known(
        "fragmentation: reserved memory is far above allocated",
        _fragments,
        "the error's line 'reserved but unallocated'; memory_summary()",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "PyTorch documentation, CUDA semantics, memory management",
    ),
    Known(
        "the foreach optimizer step makes one more copy of the parameters for a moment",
        _foreach,
        "it dies inside optimizer.step(); foreach=False or fused=True passes",
        "a fused optimizer",
        "pytorch/torchtune issue 389",
    ),
    Known(
        "long samples: a batch near the longest length comes late",
        lambda case: 0.3 if case.doc.get("sample_packing") is not True else 0.05,
        "it dies after many steps; log the length of each batch",
        "cut at a length, or pad all batches to it once to see the peak",
        "artidoro/qlora issue 225; huggingface/transformers issue 28872",
    ),
    Known(
        "saving gathers a full state dict on the GPU",
        lambda case: 0.35 if case.found("acc-full-state-dict") or case.stage == 3 else 0.0,
        "training runs; it dies at the first checkpoint",
        "a sharded state dict, or rank 0 with CPU offload",
        "lm-sys/FastChat issue 1242",
    ),
)


HOST_OOM: tuple[Known, ...] = (
    Known(
        "offloaded states: 12 to 18 bytes per parameter on each node, pinned",
        lambda case: 0.95 if case.offloads else 0.0,
        "free -g during initialisation; dmesg shows the OOM killer, exit code -9",
        "more nodes (the states are shared out), NVMe, or an 8-bit optimizer on the GPU",
        "deepspeedai/DeepSpeed issue 3448; axolotl-ai-cloud/axolotl issue 1439",
    ),
    Known(
        "loading: every rank reads the whole checkpoint",
        lambda case: 0.8 if case.gpus > 1 and not _initialised_sharded(case) else 0.3,
        "host memory grows with the number of ranks before the first step",
        "zero.Init (TrainingArguments made before from_pretrained), low_cpu_mem_usage,"
        " fsdp_cpu_ram_efficient_loading",
        "Roblox/FAI-RL issue 66; Lightning-AI/litgpt issue 438",
        ("deepspeed", "fsdp", "none"),
        {
            "fsdp": "fsdp_cpu_ram_efficient_loading, low_cpu_mem_usage",
            "none": "low_cpu_mem_usage; start the ranks of a node one after another",
        },
    ),
    Known(
        "saving a full state dict gathers the model on one host",
        lambda case: (
            0.5
            if case.found("acc-full-state-dict")
            or as_bool(case.key("zero_optimization", "stage3_gather_16bit_weights_on_model_save"))
            else 0.15
        ),
        "it dies at the first checkpoint",
        "a sharded state dict; convert afterwards",
        "lm-sys/FastChat issue 1242",
    ),
    Known(
        "pinned memory cannot be paged out and is rounded up",
        lambda case: 0.4 if case.offloads else 0.0,
        "Unevictable and Mlocked in /proc/meminfo; ulimit -l",
        "pin_memory false where RAM is short, at the cost of speed",
        "DeepSpeed 0.19.8, deepspeed/runtime/zero/offload_config.py (pin_memory)",
    ),
    Known(
        "data loader workers, each with its copy of the data set",
        lambda case: 0.5 if (as_int(case.flag("dataloader_num_workers")) or 0) > 8 else 0.15,
        "ps: resident size of the workers; it grows over an epoch",
        "fewer workers, memory-mapped data",
        "PyTorch documentation, torch.utils.data (memory of worker processes)",
    ),
)


def _initialised_sharded(case: Case) -> bool:
    yaml = case.doc if case.doc.kind == "accelerate" else case.ctx.partner("accelerate")
    if yaml is not None:
        flag = yaml.get("deepspeed_config", "zero3_init_flag")
        flag = flag or yaml.get("fsdp_config", "fsdp_cpu_ram_efficient_loading")
        return bool(as_bool(flag))
    return case.stage == 3 and case.ctx.framework == "hf"
