"""The answer: a plan, what it is predicted to cost, and how it was proven.

These models are the JSON the command line prints; units are in the key names. A change here is a
change of ``SCHEMA_VERSION`` and an entry in the changelog.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = "1.0"

Verdict = Literal["fits", "tight", "does not fit"]
Status = Literal["optimal", "feasible", "infeasible", "unknown"]


class Frozen(BaseModel):
    """Base of all outputs."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Stage(Frozen):
    """One pipeline stage: what it holds and what it is predicted to need."""

    stage: int
    first_layer: int
    layers: int
    recompute: dict[str, int]  # layers at each checkpoint granularity
    offloaded_layers: int  # layers whose optimizer state is on the host
    embedding: bool
    head: bool
    time_s: float  # one micro-batch, forward and backward
    peak_memory_bytes: int  # device bytes of one GPU of this stage


class Plan(Frozen):
    """Every axis decided."""

    stack: str
    gpus: int
    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    micro_batch: int
    grad_accum: int
    virtual_stages: int
    zero_stage: int
    precision: str
    attention: str
    recompute: str  # none | selective | full | every_2 | every_4 | mixed
    sequence_parallel: bool
    offload_optimizer: str
    offload_parameters: str
    stages: tuple[Stage, ...]

    @property
    def recompute_layers(self) -> dict[str, int]:
        """Layers at each granularity, all stages together."""
        total: dict[str, int] = {}
        for stage in self.stages:
            for granularity, count in stage.recompute.items():
                total[granularity] = total.get(granularity, 0) + count
        return total

    @property
    def even(self) -> bool:
        """Whether all stages hold the same layers at the same granularities."""
        first = self.stages[0]
        return all(
            (s.layers, s.recompute, s.offloaded_layers)
            == (first.layers, first.recompute, first.offloaded_layers)
            for s in self.stages
        )


class Interval(Frozen):
    """Where the true value is expected, nine times in ten."""

    low: float
    high: float


class HostLine(Frozen):
    """One use of host RAM, per node, against what the node has."""

    what: Literal["loading", "training", "saving"]
    bytes: int
    limit_bytes: int
    fits: bool


class Predicted(Frozen):
    """What a plan is predicted to cost. Memory is per GPU, of the worst stage."""

    step_time_s: float | None
    step_time_interval_s: Interval | None
    tokens_per_s_per_gpu: float | None
    model_tflops_per_gpu: float | None
    mfu: float | None
    peak_memory_bytes: int  # device kind: what must fit
    peak_memory_interval_bytes: Interval
    memory_limit_bytes: int
    memory_kind: Literal["device"]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    verdict: Verdict
    memory: dict[str, int]  # the six classes at the peak; they sum to peak_memory_bytes
    peak_phase: str
    peak_stage: int
    phases: dict[str, int]  # device bytes of every phase, worst stage of each
    host_memory_bytes: int  # per node, training
    host: tuple[HostLine, ...]
    nvme_bytes: int  # per node
    time: dict[str, float]  # parts of the step; they sum to step_time_s [s]


class Proof(Frozen):
    """What was proven, over which candidates."""

    status: Status
    bound_s: float | None
    gap: float | None
    shapes: int
    pruned_by_rule: int
    pruned_by_bound: int
    pruned_by_memory: int
    solved: int
    confirmed: bool | None  # CP-SAT finds nothing better in the optimum's shape; None: no time
    fastest_step_time_s: float | None  # the proven optimum, before the ladder chose
    epsilon: float  # the plan is within this fraction of it
    rules: dict[str, int]  # candidates each rule removed


class Rung(Frozen):
    """One rung of the low-cost-first ladder: the best plan with nothing heavier.

    Where none fits safely, the nearest one: without a time, ``bought`` says what is short.
    """

    rung: str
    verdict: Verdict
    peak_memory_bytes: int | None
    step_time_s: float | None
    bought: str


class Alternative(Frozen):
    """Another plan worth knowing, proven best of its shape."""

    plan: Plan
    step_time_s: float
    peak_memory_bytes: int
    note: str


class Assumption(Frozen):
    """A value no source states, that the prediction rests on."""

    what: str
    value: str
    why: str


class Relaxation(Frozen):
    """A change to the job under which a plan exists."""

    change: str
    step_time_s: float
    peak_memory_bytes: int


class Infeasible(Frozen):
    """Why there is no plan."""

    reason: str
    short_by_bytes: int | None  # per GPU, of the nearest plan's point estimate; 0 if tight or less
    may_lack_bytes: int | None = None  # per GPU, at its interval's upper end; 0 unless it is tight
    host_short_by_bytes: int | None  # per node, of the same plan
    nearest: Plan | None
    relaxations: tuple[Relaxation, ...]


class Result(Frozen):
    """All that ``solve`` and ``estimate`` return."""

    schema_version: str = SCHEMA_VERSION
    status: Status
    job: dict[str, Any]
    plan: Plan | None
    predicted: Predicted | None
    proof: Proof | None
    ladder: tuple[Rung, ...] = ()
    article: str | None = None
    alternatives: tuple[Alternative, ...] = ()
    unrestricted: Alternative | None = None  # the stacks searched, without their limits
    infeasible: Infeasible | None = None
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
