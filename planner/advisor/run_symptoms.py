"""Causes of slow steps, of NaN and of hanging."""

from __future__ import annotations

from planner.advisor.symptom_case import Case, Known
from planner.lint.document import Value, as_bool, as_int, as_number


def _big(value: Value, limit: float) -> bool:
    number = as_number(value)
    return number is not None and number >= limit


def _fp16(case: Case) -> float:
    return 0.9 if case.get("precision") == "fp16" else 0.0


NAN: tuple[Known, ...] = (
    Known(
        "fp16 overflows: the model was trained in bf16, whose range is wider",
        _fp16,
        "torch.isinf on the hidden states of each layer; the loss scale falls to 1",
        "bf16 where the GPU has it; else a dynamic loss scale and fp32 norms",
        "hiyouga/LlamaFactory issue 3422",
    ),
    Known(
        "a fixed loss scale, or one that starts far too high",
        lambda case: (
            0.85
            if case.found("ds-loss-scale-start")
            else 0.7 * bool(as_number(case.key("fp16", "loss_scale"))) * bool(_fp16(case))
        ),
        "the log's 'OVERFLOW! Skipping step' and its loss scale",
        "loss_scale 0 (dynamic), initial_scale_power 16",
        "DeepSpeed 0.19.8, deepspeed/runtime/precision_config.py",
        ("deepspeed", "megatron"),
        {"megatron": "no --loss-scale (dynamic), --initial-loss-scale 65536"},
    ),
    Known(
        "gradients are not clipped",
        lambda case: (
            0.6
            if case.found("ds-clipping-missing") or case.key("gradient_clipping") in (0, 0.0)
            else 0.1
        ),
        "log the gradient norm of each step: it rises before the loss does",
        "gradient_clipping 1.0",
        "DeepSpeed 0.19.8, deepspeed/runtime/constants.py (default 0)",
        remedies={
            "fsdp": "max_grad_norm 1.0",
            "none": "max_grad_norm 1.0",
            "megatron": "--clip-grad 1.0",
        },
    ),
    Known(
        "the learning rate is too high or has no warm-up",
        lambda case: (
            0.6
            if _big(case.flag("learning_rate"), 2e-4)
            or _big(case.key("optimizer", "params", "lr"), 2e-4)
            else 0.3
        ),
        "a tenth of the rate runs on",
        "a lower rate, a few hundred warm-up steps",
        "Zhang et al. 2022, OPT: Open Pre-trained Transformer Language Models, section 2.5",
    ),
    Known(
        "bf16 gradients are accumulated and reduced in bf16 over many micro-batches",
        lambda case: (
            0.4
            if case.get("precision") == "bf16"
            and case.get("stack") == "deepspeed"
            and (as_int(case.get("grad_accum")) or 1) > 8
            else 0.05
        ),
        "the run is stable with data_types.grad_accum_dtype fp32",
        "data_types.grad_accum_dtype fp32 (stage 1 or higher)",
        "DeepSpeed 0.19.8, deepspeed/runtime/engine.py (grad_accum_dtype)",
        ("deepspeed",),
    ),
    Known(
        "a batch without a single label gives 0/0",
        lambda case: 0.3,
        "count labels other than -100 in the batch that fails",
        "drop or lengthen such samples",
        "PyTorch documentation, CrossEntropyLoss (mean over no targets)",
    ),
    Known(
        "eager attention in 16 bit overflows in its scores",
        lambda case: 0.4 if case.get("attention") == "eager" else 0.0,
        "run one step with another attention kernel",
        "flash or memory-efficient attention",
        "Dao et al. 2022, FlashAttention, section 3",
    ),
)


def _network(case: Case) -> float:
    if case.nodes <= 1:
        return 0.0
    return 0.9 if case.stage == 3 else 0.0


SLOW: tuple[Known, ...] = (
    Known(
        "optimizer or parameter offload: PCIe and the CPU set the pace",
        lambda case: (0.9 if case.offloads else 0.0) * (0.5 + case.time("offload")),
        "GPU utilisation falls to zero between steps; wall_clock_breakdown shows the step",
        "take it out if the card holds the states; pin_memory true; stage 2 before stage 3",
        "h2oai/h2o-llmstudio pull request 288; deepspeedai/DeepSpeed issue 3901",
    ),
    Known(
        "NVMe offload is bound by the drive",
        lambda case: (
            0.95
            if "nvme" in (case.get("offload_optimizer"), case.get("offload_parameters"))
            else 0.0
        ),
        "iostat -x during the step; ds_io for what the drive can do",
        "CPU memory, several drives, larger aio blocks",
        "deepspeedai/DeepSpeed issues 2082 and 2159",
    ),
    Known(
        "stage 3 gathers every layer over the network, twice a micro-batch",
        _network,
        "nccl-tests all_gather between the nodes; the step with one node",
        "shard inside the node (hybrid sharding, hpZ), or a lower stage",
        "deepspeedai/DeepSpeed issues 5770 and 2928",
        remedies={"fsdp": "shard inside the node (HYBRID_SHARD), or SHARD_GRAD_OP"},
    ),
    Known(
        "communication is not hidden",
        lambda case: (
            case.time("dp", "tp", "cp", "ep", "pp") * 1.2
            + (0.3 if as_bool(case.key("zero_optimization", "overlap_comm")) is False else 0.0)
        ),
        "a trace (torch.profiler): nccl kernels with no compute beside them",
        "overlap_comm true; tensor parallelism inside the node only",
        "DeepSpeed 0.19.8, deepspeed/runtime/zero/config.py (overlap_comm)",
        remedies={
            "fsdp": "backward prefetch, a wrap policy by layer; HYBRID_SHARD between nodes",
            "megatron": "--overlap-grad-reduce; tensor parallelism inside the node only",
            "none": "larger buckets (ddp_bucket_cap_mb), more accumulation",
        },
    ),
    Known(
        "GPUs without NVLink or peer access talk through host memory",
        lambda case: (
            0.7
            if case.gpus > 1 and case.ctx.device is not None and not case.ctx.device.linked
            else 0.0
        ),
        "nvidia-smi topo -m; NCCL_DEBUG=INFO shows SHM instead of P2P",
        "more accumulation, a lower stage, fewer tensor-parallel ranks",
        "huggingface/transformers issue 9371; huggingface/accelerate issue 455",
    ),
    Known(
        "micro-batches too small to fill the GPU",
        lambda case: (
            0.55
            if (as_int(case.get("micro_batch")) or 1) == 1
            and (as_int(case.get("seq_len")) or 4096) <= 2048
            else 0.15
        ),
        "double the micro-batch: tokens per second rise by more than a few percent",
        "a larger micro-batch with less accumulation, or packing",
        "NVIDIA, Deep Learning Performance, matrix multiplication background",
    ),
    Known(
        "everything is computed twice: full activation checkpointing",
        lambda case: 0.35 if case.get("recompute") == "full" else 0.0,
        "the backward pass takes three times the forward pass",
        "checkpoint fewer layers, or selectively, if memory allows",
        "Korthikanti et al. 2022, Reducing Activation Recomputation, section 5",
    ),
    Known(
        "pipeline bubble",
        lambda case: (
            min(0.9, case.time("bubble") * 2) if (as_int(case.get("pp")) or 1) > 1 else 0.0
        ),
        "(stages - 1) / (micro-batches + stages - 1) of the step",
        "more micro-batches, virtual stages, or fewer stages",
        "Narayanan et al. 2021, section 2.2",
    ),
    Known(
        "eager attention",
        lambda case: 0.7 if case.get("attention") == "eager" else 0.0,
        "a trace: softmax and copies as long as the matrix products",
        "flash attention",
        "Dao et al. 2022, FlashAttention",
    ),
    Known(
        "fp32 arithmetic",
        lambda case: 0.85 if case.get("precision") == "fp32" else 0.0,
        "kernel names in a trace: sgemm instead of bf16 or tf32",
        "bf16 or fp16; tf32 at least",
        "NVIDIA A100 datasheet (19.5 against 312 TFLOP/s)",
    ),
    Known(
        "buckets or groups so small that latency rules",
        lambda case: 0.75 if case.found("ds-bucket-small") else 0.0,
        "a trace: thousands of short nccl kernels",
        "default sizes",
        "deepspeedai/DeepSpeed issue 912",
    ),
    Known(
        "offload through pageable memory",
        lambda case: 0.6 if case.found("ds-pin-memory") else 0.0,
        "copies at a few GB/s in a trace",
        "pin_memory true",
        "DeepSpeed 0.19.8, deepspeed/runtime/zero/offload_config.py",
    ),
    Known(
        "experts are gathered one by one under stage 3",
        lambda case: 0.6 if case.stage == 3 and case.mixture else 0.0,
        "a trace: one small all-gather per expert",
        "expert parallelism, or the block as a stage-3 leaf module",
        "hiyouga/LlamaFactory issue 9374; deepspeedai/DeepSpeed issue 8064",
        ("deepspeed",),
    ),
    Known(
        "the input pipeline starves the GPU",
        lambda case: 0.35 if not as_int(case.flag("dataloader_num_workers")) else 0.1,
        "time of next(iterator) against the step; utilisation comes and goes",
        "dataloader_num_workers 4 or more, tokenise beforehand",
        "PyTorch documentation, performance tuning guide",
    ),
)


HANG: tuple[Known, ...] = (
    Known(
        "experts unused on some ranks: stage 3 waits for gathers that never come",
        lambda case: 0.95 if case.stage == 3 and case.mixture else 0.0,
        "py-spy dump on two ranks: they stand in different layers",
        "the block as a stage-3 leaf module (leaf_module, deepspeed_moe_layer_cls_names)",
        "hiyouga/LlamaFactory issue 1931",
        ("deepspeed",),
    ),
    Known(
        "saving, generating or evaluating on rank 0 only",
        lambda case: 0.6 if case.stage == 3 or case.get("stack") == "fsdp2" else 0.3,
        "py-spy dump: rank 0 in save or generate, the others in a collective",
        "call it on every rank; synced_gpus for generation",
        "DeepSpeed documentation, model checkpointing (all processes must call it)",
    ),
    Known(
        "ranks with different numbers of batches or accumulation steps",
        lambda case: 0.45 if case.gpus > 1 else 0.0,
        "print the step on each rank; the last batch of an epoch is where it stops",
        "drop_last, the same number of samples on each rank",
        "PyTorch documentation, DistributedDataParallel (uneven inputs)",
    ),
    Known(
        "NCCL takes the wrong interface, or a firewall is between the nodes",
        lambda case: 0.7 if case.nodes > 1 else 0.05,
        "NCCL_DEBUG=INFO stops after 'Bootstrap'; ping over that interface",
        "NCCL_SOCKET_IFNAME, NCCL_IB_HCA",
        "NVIDIA NCCL documentation, troubleshooting",
    ),
    Known(
        "peer-to-peer copies hang on this board (IOMMU, ACS)",
        lambda case: (
            0.5
            if case.gpus > 1
            and case.ctx.device is not None
            and any(word in case.ctx.device.name.upper() for word in ("RTX", "TITAN"))
            else 0.15 * (case.gpus > 1)
        ),
        "NCCL_P2P_DISABLE=1 makes it run",
        "turn ACS off in the BIOS, or keep NCCL_P2P_DISABLE=1",
        "NVIDIA NCCL documentation, troubleshooting (PCI Access Control Services)",
    ),
    Known(
        "the number of processes differs from what the launcher or the file expects",
        lambda case: 0.6 if case.found("mg-world", "ds-degrees", "acc-processes") else 0.15,
        "the rendezvous waits: compare WORLD_SIZE on every node",
        "the same process count everywhere",
        "PyTorch documentation, torchrun (elastic launch)",
    ),
    Known(
        "the first step compiles or initialises, and only looks stuck",
        lambda case: 0.3 if case.offloads else 0.15,
        "top: one compiler per rank (DeepSpeedCPUAdam is built on first use)",
        "wait once, or build ahead with DS_BUILD_CPU_ADAM=1",
        "DeepSpeed documentation, installation (pre-install ops)",
        remedies=dict.fromkeys(("fsdp", "megatron", "none"), "wait for the first steps once"),
        checks=dict.fromkeys(
            ("fsdp", "megatron", "none"), "top: compilers (torch.compile, fused kernels) at work"
        ),
    ),
)
