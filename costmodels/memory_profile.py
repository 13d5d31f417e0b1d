"""How a training stack allocates: the ``memory`` section of its YAML file."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from costmodels.sourced import check_sources

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
Module = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act"]


class Logits(BaseModel):
    """Bytes for one logit of the loss.

    ``forward``: at the end of the forward, the most that is alive; ``saved``: of it, what stays
    for backward; ``backward``: the most alive while the loss is differentiated; ``rest``: what
    stays while the layers are differentiated; ``metrics``: the most alive while the training loop
    computes metrics from the logits of a finished backward; ``lost``: blocks of an earlier
    micro-batch's loss, and of a layer's unfused scores, that its gradients moved into, beyond
    those gradients. ``chunks`` > 0: logits exist for that many times fewer tokens at once; -1:
    chunk length by Liger's rule. ``table``: bytes for an element of the output table that a
    chunked loss accumulates its gradient in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    forward: float = Field(ge=0)
    saved: float = Field(ge=0)
    backward: float = Field(ge=0)
    rest: float = Field(default=0.0, ge=0)
    metrics: float = Field(default=0.0, ge=0)
    lost: float = Field(default=0.0, ge=0)
    chunks: int = Field(default=0, ge=-1)
    table: float = Field(default=0.0, ge=0)


class MemoryProfile(BaseModel):
    """What of the memory depends on the software rather than on the model.

    Bytes throughout. ``sources`` names where each given field comes from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Literal["ddp", "deepspeed", "megatron", "fsdp"]

    # kernels: see costmodels.kernels.Kernels
    layout: Literal["family", "fused"] = "family"
    autocast: bool = False  # 16-bit precision casts fp32 weights rather than storing 16-bit ones
    norm: Literal["eager", "fused"] = "eager"
    mlp: Literal["eager", "fused"] = "eager"
    norm_element: float = Field(default=0.0, ge=0)  # of eager norms, instead of the family's
    score_element: float = Field(default=0.0, ge=0)
    score_working: float = Field(default=6.0, ge=0)  # more per score in eager attention's backward
    output_copies: int = Field(default=0, ge=0)
    lone_output: bool = False  # a micro-batch of one sequence needs no such copy
    rotary_each: bool = False  # every layer gathers its own rotary tables by position
    cp_copies: int = Field(default=0, ge=0)  # of the attention output, under context parallelism
    qkv_kept: bool = True
    kv_expanded: bool = False  # keys and values are copied to all heads before a fused kernel
    fp8_inputs: bool = False  # linears keep their inputs in 8 bits
    selective: Literal["attention", "activations", "half", "modules"] = "attention"
    recompute_modules: tuple[Module, ...] = ("core_attn",)  # under selective: modules
    checkpoints_offloaded: bool = False  # checkpointed layers keep their inputs on the host

    # tensor parallelism
    linear_inputs: Literal["gathered", "sharded"] = "gathered"  # under sequence parallelism
    gather_buffer: bool = False  # what a sequence-parallel input is gathered into stays
    logits_sharded: bool = False
    embedding_split: bool = True  # the token embedding over tensor-parallel ranks
    split_logits: float = Field(default=0.0, ge=0)  # more for a logit where that splits it
    vocab_multiple: int = Field(default=0, ge=0)  # the vocabulary is padded to this times tp

    # pipeline
    stage_outputs: bool = False  # a stage's output stays until its backward
    outputs_split: bool = False  # those outputs are divided over tensor-parallel ranks
    engine_alone: bool = False  # the pipeline engine runs a single stage, too
    stage_buffers: float = Field(default=0.0, ge=0)  # times the stages, for what stages keep
    phases_apart: bool = False  # accumulating, forward, backward and step share no memory
    stage_inputs: bool = False  # what a stage received stays beside the copy it works on
    last_outputs: float = Field(default=0.0, ge=0)  # per logit, outputs the schedule holds on to

    # states, bytes per parameter
    weights: dict[str, float]  # by precision, what the model's own parameters take
    master: dict[str, float]  # fp32 copy beside them
    gradients: dict[str, float]  # as accumulated, for grad_dtype auto
    moment_factor: float = Field(default=1.0, gt=0)  # optimizer state, relative to fp32 moments
    gradients_stay: bool = False  # allocated once, alive in every phase
    gradient_leftover: dict[str, float] = {}  # 16-bit gradients beside fp32 accumulators
    stale_gradients: dict[str, float] = {}  # without ZeRO, of the step before, until the next one
    reduced_apart: float = Field(default=0.0, ge=0)  # of gradients, sums over replicas beside them
    dummy_gradients: bool = False  # one placeholder a weight shape, once made always alive
    weight_cache: dict[str, float] = {}  # casts kept beside the weights, by precision
    step_foreach: bool = False  # the optimizer step makes a parameter-sized temporary
    # more temporaries of it for a parameter of a rank, beside foreach's and an fp32 gradient
    step_bytes: float = Field(default=0.0, ge=0)
    flat_bucket: float = Field(default=0.0, ge=0)  # what gradients are flattened into, at most

    # sharded parameters
    sync_each_micro_batch: bool = True  # fsdp: gradients are sharded after every micro-batch
    reduce_bytes: float = Field(default=4.0, gt=0)  # fsdp: per element of the reduction buffer
    reshard: bool = True  # fsdp: layers are freed after their forward
    whole_root: bool = True  # fsdp: embedding and head are one unit, gathered all the time
    tables_whole: bool = False  # fsdp: token tables are split over all ranks and gathered whole
    separate_units: bool = False  # fsdp: no root around the units: none gathered ahead or kept
    overlap_buckets: int = Field(default=1, ge=1)  # deepspeed: reduction buffers
    # deepspeed, ZeRO-1: see costmodels.flat_copies; queued: the host runs ahead of the reduction
    flat_copies: Literal["reused", "kept", "queued"] = "reused"

    # loss
    cross_entropy: Literal["eager", "fused", "chunked"] = "eager"
    logits: dict[str, Logits]

    # deepspeed: bucket sizes as the planner writes them, the library's own, or a Trainer's "auto";
    # "step": of the library's size, filled once a step, after the last backward
    buckets: Literal["planned", "default", "auto", "step"] = "planned"

    # what a tensor count does not show
    unexplained: float = Field(default=0.0, ge=0)  # allocated bytes that no term accounts for
    allocator_factor: float = Field(default=1.0, ge=1)
    # the step's flat tensors fit into no block freed before it, nor into such of its own, of so
    # many bytes for a parameter of a rank; absent: they do
    step_apart: float | None = Field(default=None, ge=0)
    varied_factor: float = Field(default=1.0, ge=1)  # pool of activations, batches of many lengths
    context: float = Field(ge=0)  # CUDA context, library workspaces
    communicator: float = Field(ge=0)  # each NCCL communicator
    host_process: float = Field(default=0.0, ge=0)  # host memory of one rank before any offload
    loading: Literal["whole", "shard", "device"] = "whole"  # see costmodels.host

    # validation: measured / predicted - 1 of comparable runs
    interval_low: float = Field(ge=0)
    interval_high: float = Field(ge=0)

    sources: dict[str, str]

    @model_validator(mode="after")
    def _sourced(self) -> MemoryProfile:
        check_sources(self, self.sources)
        for field in ("weights", "master", "gradients"):
            absent = [p for p in PRECISIONS if p not in getattr(self, field)]
            if absent:
                raise ValueError(f"{field}: no figure for {', '.join(absent)}")
        if self.cross_entropy not in self.logits:
            raise ValueError(f"logits: no figures for {self.cross_entropy}")
        return self
