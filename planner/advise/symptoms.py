"""Likely causes of a symptom for one configuration, and the check that would confirm each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.advise.judgement import Judgement
from planner.advise.report import Cause
from planner.advise.settings import Settings
from planner.lint.context import Context
from planner.lint.document import Document, Value, as_bool, as_int, as_number
from planner.lint.finding import Finding

SYMPTOMS = ("oom", "nan", "slow", "host-oom", "hang")
MOST = 6


@dataclass(frozen=True, slots=True)
class Case:
    """What is known when causes are ranked."""

    doc: Document
    ctx: Context
    settings: Settings
    judged: Judgement | None
    findings: tuple[Finding, ...]

    def get(self, name: str) -> Value:
        """A setting, None if unknown."""
        return self.settings.get(name)

    def found(self, *ids: str) -> bool:
        """Whether one of these rules found something."""
        return any(finding.id in ids for finding in self.findings)

    def part(self, name: str) -> float:
        """Share of a memory class at the predicted peak; a third where nothing is predicted."""
        if self.judged is None:
            return 1 / 3
        total = sum(self.judged.memory.values()) or 1
        return self.judged.memory.get(name, 0) / total

    def time(self, *names: str) -> float:
        """Share of parts of the predicted step; a fifth where nothing is predicted."""
        if self.judged is None or not self.judged.largest_parts:
            return 0.2
        return sum(p.share for p in self.judged.largest_parts if p.name in names)

    @property
    def offloads(self) -> bool:
        """Whether anything is offloaded."""
        tiers = (self.get("offload_optimizer"), self.get("offload_parameters"))
        return any(tier in ("cpu", "nvme") for tier in tiers)

    @property
    def stage(self) -> int:
        """ZeRO stage, 0 if unknown."""
        return as_int(self.get("zero_stage")) or 0

    @property
    def gpus(self) -> int:
        """Processes, 1 if unknown."""
        return self.ctx.world or self.settings.gpus or 1

    @property
    def nodes(self) -> int:
        """Nodes, as far as the GPUs given tell."""
        per_node = self.ctx.device.gpus_per_node if self.ctx.device else self.gpus
        return max(1, self.gpus // max(1, per_node))

    def key(self, *names: str) -> Value:
        """A key of the DeepSpeed file, in the file itself or beside it."""
        doc = self.doc if self.doc.kind == "deepspeed" else self.ctx.partner("deepspeed")
        return None if doc is None else doc.get(*names)

    def flag(self, name: str) -> Value:
        """A trainer flag or key of the same name."""
        return self.doc.get(name, default=self.ctx.flag(name))


@dataclass(frozen=True, slots=True)
class Known:
    """A cause as data: how likely it is for a case (0: not at all), and what to do."""

    cause: str
    likely: Callable[[Case], float]
    check: str
    remedy: str
    source: str


def causes(symptom: str, case: Case) -> tuple[Cause, ...]:
    """The most likely causes of a symptom, first the likeliest.

    Raises
    ------
    ValueError
        If the symptom is none of :data:`SYMPTOMS`.
    """
    if symptom not in TABLE:
        raise ValueError(f"symptom {symptom!r}: expected one of {', '.join(SYMPTOMS)}")
    scored = [(known.likely(case), known) for known in TABLE[symptom]]
    kept = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])[:MOST]
    return tuple(
        Cause(
            rank=rank,
            likelihood=round(min(score, 1.0), 2),
            cause=known.cause,
            check=known.check,
            remedy=known.remedy,
            source=known.source,
        )
        for rank, (score, known) in enumerate(kept, 1)
    )


def _big(value: Value, limit: float) -> bool:
    number = as_number(value)
    return number is not None and number >= limit


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
    return 0.9 if case.stage == 3 else 0.4


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
    ),
    Known(
        "GPUs without NVLink or peer access talk through host memory",
        lambda case: (
            0.7
            if case.gpus > 1
            and case.ctx.device is not None
            and case.ctx.device.name.upper().startswith(("RTX", "T4", "L4", "A10", "L40", "TITAN"))
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
        lambda case: 0.6 if case.stage == 3 and _mixture(case) else 0.0,
        "a trace: one small all-gather per expert",
        "expert parallelism, or the block as a stage-3 leaf module",
        "hiyouga/LlamaFactory issue 9374; deepspeedai/DeepSpeed issue 8064",
    ),
    Known(
        "the input pipeline starves the GPU",
        lambda case: 0.35 if not as_int(case.flag("dataloader_num_workers")) else 0.1,
        "time of next(iterator) against the step; utilisation comes and goes",
        "dataloader_num_workers 4 or more, tokenise beforehand",
        "PyTorch documentation, performance tuning guide",
    ),
)


def _mixture(case: Case) -> bool:
    text = str(case.flag("model_name_or_path") or case.flag("base_model") or "").lower()
    return any(word in text for word in ("mixtral", "moe", "a3b", "a22b", "deepseek", "x7b"))


HOST_OOM: tuple[Known, ...] = (
    Known(
        "offloaded states: 12 to 18 bytes per parameter on each node, pinned",
        lambda case: 0.95 if case.offloads else 0.05,
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
        lambda case: 0.4 if case.offloads else 0.05,
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


HANG: tuple[Known, ...] = (
    Known(
        "experts unused on some ranks: stage 3 waits for gathers that never come",
        lambda case: 0.95 if case.stage == 3 and _mixture(case) else 0.05,
        "py-spy dump on two ranks: they stand in different layers",
        "the block as a stage-3 leaf module (leaf_module, deepspeed_moe_layer_cls_names)",
        "hiyouga/LlamaFactory issue 1931",
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
            and case.ctx.device.name.upper().startswith(("RTX", "TITAN"))
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
    ),
)

TABLE: Mapping[str, tuple[Known, ...]] = {
    "oom": OOM,
    "nan": NAN,
    "slow": SLOW,
    "host-oom": HOST_OOM,
    "hang": HANG,
}
