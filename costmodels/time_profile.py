"""How a training stack spends time: the ``time`` section of its YAML file."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from costmodels.memory_bound import Coefficients
from costmodels.sourced import check_sources

FITTED = ("gemm_factor", "memory_factor", "tp_factor", "tp_latency", "host_layer", "host_tp")


class LayerBytes(BaseModel):
    """Bytes the memory-bound kernels of a layer move for one element, by width.

    Each a triple: per hidden element outside the tensor-parallel region, per element of the
    attention's inputs and outputs, per element of the feed-forward's inner width. [byte]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    forward: Coefficients
    backward: Coefficients


class TimeProfile(BaseModel):
    """What of the time depends on the software rather than on the hardware.

    The fields of ``FITTED`` are the ones a calibration adjusts; everything else is read from the
    stack's code or documentation. Times are in seconds, factors multiply a time except
    ``gemm_factor``, which multiplies the GPU's sustained share of peak.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # rates: fitted, or left at their neutral value
    gemm_factor: float = Field(default=1.0, gt=0)
    gemm_by_arch: dict[str, float] = {}  # the same for GPU families, by name: Hopper
    clock: float = Field(default=1.0, gt=0)  # of the GPU's usual rate: a lower power limit
    bandwidth: float = Field(default=1.0, gt=0)  # of the GPU's memory rate: another memory
    gemm_fp8: float = Field(default=1.0, gt=0)  # the same for 8-bit products, in place of by_arch
    head_factor: float = Field(default=1.0, gt=0)  # the same for the product that gives logits
    memory_factor: float = Field(default=1.0, gt=0)
    tp_factor: float = Field(default=1.0, ge=0)
    tp_latency: float = Field(default=0.0, ge=0)  # of a layer pass's sums, beyond the links'
    host_layer: float = Field(default=3e-4, ge=0)  # issuing one layer's forward
    host_tp: float = Field(default=0.0, ge=0)  # more of it for each further tensor-parallel rank
    host_tp_node: float = Field(default=0.0, ge=0)  # more for each further node of a tp group
    host_tp_pipeline: float = Field(default=0.0, ge=0)  # more a tp rank, pp > 1 on several nodes
    host_zero3: float = Field(default=0.0, ge=0)  # more where ZeRO-3 hooks every module

    # kernels
    flash: tuple[str, ...] = ("FA3", "FA2", "FA1")  # the first the GPU has is the one that runs
    flash_factor: float = Field(default=1.0, gt=0)  # on its rate
    score_bytes: tuple[float, float] = (33.0, 33.0)  # eager attention, forward and backward
    softmax_multiple: int = Field(default=1, ge=1)  # sequences x heads the fused one asks for
    plain: LayerBytes  # GPT-like: one input projection in the feed-forward
    gated: LayerBytes  # Llama-like
    eager_norm: bool = False  # norms as separate 32-bit kernels
    fused_projections: bool = False  # one product for q, k, v and one for gate and up
    logit_bytes: float = Field(default=24.0, gt=0)  # per logit, both passes, "auto" cross-entropy
    logits_gathered: bool = False  # every tensor-parallel rank holds all logits
    context: Literal["ring", "all_gather", "all_to_all"] = "ring"  # how cp moves keys and values

    # tensor and pipeline parallelism
    tp_backward: float = Field(default=2.0, ge=0)  # all-reduces of a layer's backward
    tp_hidden: float = Field(default=0.0, ge=0, le=1)  # share of them under weight gradients
    sp_forward: float = Field(default=4.0, gt=0)  # gathers and scatters of a layer's forward
    sp_backward: float = Field(default=5.0, ge=0)  # the same of its backward
    head_split: bool = True  # tensor parallelism divides the head
    hop_split: bool = False  # each tensor-parallel rank sends its share between stages
    hop_exposed: float = Field(default=1.0, ge=0, le=1)  # share of a hop nothing hides
    hop_delay: float = Field(default=0.0, ge=0)  # more for each send or receive between stages
    hop_delay_nodes: int = Field(default=1, ge=1)  # on at least so many nodes

    # checkpointing: whether a layer's last product, whose result nothing needs, is repeated too
    repeats_output: bool = True

    # data parallelism
    gradient_bytes: dict[str, float]  # of an accumulated gradient, by precision
    wire_bytes: dict[str, float] = {}  # the same as replicas reduce it, where it is cast for that
    reduce: Literal["all_reduce", "reduce_scatter"] = "reduce_scatter"  # at ZeRO 1 and 2
    reduce_calls: float = Field(default=0.0, ge=0)  # separate reductions of a layer's gradients
    gather_calls: float = Field(default=0.0, ge=0)  # separate gathers of its weights at ZeRO 1, 2
    dp_exposed: float = Field(default=1.0, ge=0, le=1)  # share of it nothing hides
    accumulation_bytes: dict[str, float] = {}  # of a parameter, micro-batch by micro-batch
    zero2_each_micro_batch: bool = False
    stage_reshards: bool = False  # FSDP frees a layer's weights after forwards of a pipeline too

    # optimizer on the host. Its gradients cross once a step (once); or, at ZeRO-2 and 3, every
    # micro-batch fetches the sum, adds on the GPU and copies it back (gpu_sum), or copies its own
    # down for the CPU to add (cpu_sum)
    host_gradients: Literal["once", "gpu_sum", "cpu_sum"] = "once"
    host_update: float = Field(default=1.0, gt=0)  # of the time DeepSpeed's CPU Adam takes
    host_overlap: bool = False  # transfers run under the update of other parameters

    # how sure a prediction is: measured / predicted - 1 of comparable held-out runs
    error: float = Field(default=0.12, ge=0)  # mean absolute; 12 to 15 % without calibration
    interval_low: float = Field(default=0.25, ge=0, lt=1)
    interval_high: float = Field(default=0.25, ge=0)

    sources: dict[str, str]  # where each figure comes from, fits with their held-out error

    @model_validator(mode="after")
    def _named(self) -> TimeProfile:
        check_sources(self, self.sources)
        return self
