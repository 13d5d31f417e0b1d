"""The space: every shape the search may choose, as arrays over candidates.

A shape is one choice of the axes that enumerate. What happens inside a pipeline stage (layers,
checkpointed layers, offloaded layers) is decided by the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np

from costmodels.configuration import OFFLOAD_TIERS, Configuration
from costmodels.numeric import Array
from costmodels.stack import Stack
from planner.job import Job

MAX_MICRO_BATCH = 64  # sequences; a larger one is tried only when it is fixed
MAX_TP = 64
MAX_VIRTUAL_STAGES = 8


@dataclass(frozen=True, slots=True)
class Shapes:
    """n candidate shapes of one stack, precision and attention kernel; arrays of shape (n,)."""

    stack: Stack
    precision: str
    attention: str
    gpus: Array
    dp: Array
    tp: Array
    pp: Array
    cp: Array
    ep: Array
    micro_batch: Array
    grad_accum: Array
    virtual_stages: Array
    zero_stage: Array
    sequence_parallel: Array
    offload_optimizer: Array  # index into OFFLOAD_TIERS
    offload_parameters: Array

    def __len__(self) -> int:
        return len(self.dp)

    def take(self, where: Array) -> Shapes:
        """The candidates at an index or mask."""
        arrays = {name: getattr(self, name)[where] for name in ARRAYS}
        return replace(self, **arrays)

    def value(self, axis: str, index: int) -> int | str:
        """One candidate's value of an axis, in the spelling of the plan."""
        if axis in ("precision", "attention"):
            return str(getattr(self, axis))
        raw = int(getattr(self, axis)[index])
        return OFFLOAD_TIERS[raw] if axis.startswith("offload_") else raw

    def axis(self, axis: str) -> Array:
        """All values of an axis, tiers as words."""
        if axis in ("precision", "attention"):
            return np.full(len(self), getattr(self, axis))
        raw = np.asarray(getattr(self, axis))
        return np.asarray(OFFLOAD_TIERS)[raw] if axis.startswith("offload_") else raw

    def configuration(self, job: Job) -> Configuration:
        """The candidates as a configuration of arrays (n, 1); they must share one pp."""
        (pp,) = np.unique(self.pp)
        arrays = {
            name: getattr(self, name).astype(float)[:, None]
            for name in ARRAYS
            if name not in ("gpus", "pp")
        }
        return Configuration(
            architecture=job.architecture,
            cluster=job.cluster,
            stack=self.stack,
            precision=self.precision,
            attention=self.attention,
            optimizer=job.spec.optimizer,
            seq_len=job.seq_len,
            pp=int(pp),
            grad_dtype=job.spec.grad_dtype,
            dropout=job.spec.dropout,
            cross_entropy=job.spec.cross_entropy,
            tuning=job.spec.tuning,
            **arrays,
        )


ARRAYS = tuple(f.name for f in fields(Shapes) if f.name not in ("stack", "precision", "attention"))


def divisors(n: int) -> list[int]:
    """All divisors of n, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def attention_kernels(job: Job, stack: Stack, precision: str) -> tuple[str, ...]:
    """The best attention kernel there is, or those the user fixed.

    FlashAttention costs nothing, so no slower kernel is searched where it runs.
    """
    demand = job.spec.constraint("attention")
    if demand.allowed is not None:
        return tuple(str(v) for v in demand.allowed)
    gpu = job.cluster.node.gpu
    ranked = ["eager"]
    if gpu.memory_efficient_attention:
        ranked.insert(0, "efficient")
    if gpu.flash and precision in ("fp16", "bf16", "fp8"):
        ranked.insert(0, "flash")
    runs = stack.expresses.kernels_of(job.architecture.family)
    accepted = [k for k in ranked if demand.accepts(k) and k in runs]
    return tuple(accepted[:1])


def gpu_counts(job: Job) -> list[int]:
    """GPUs a plan may use: all of them, or with ``allow_idle`` any that fill whole nodes.

    The counts of a smaller cluster of the same kind are among those of a larger one, so more
    GPUs never make the proven optimum slower.
    """
    cluster = job.cluster
    if not job.spec.allow_idle:
        return [cluster.gpus]
    inside = list(range(1, cluster.gpus_per_node + 1))
    return inside + [cluster.gpus_per_node * n for n in range(2, cluster.nodes + 1)]


def _layouts(job: Job, stack: Stack) -> Array:
    """(gpus, tp, pp, dp, micro_batch, grad_accum) of every way to use the GPUs, shape (n, 6)."""
    batch, layers = job.global_batch, job.architecture.layers
    micro = job.spec.constraint("micro_batch").allowed
    largest = max((int(v) for v in micro), default=0) if micro else MAX_MICRO_BATCH
    tps = [t for t in divisors(job.architecture.heads) if t <= MAX_TP]
    rows = []
    for gpus in gpu_counts(job):
        for tp in tps:
            if gpus % tp:
                continue
            for pp in divisors(gpus // tp):
                if pp > layers:
                    break
                dp = gpus // tp // pp
                if batch % dp:
                    continue
                share = batch // dp
                rows += [(gpus, tp, pp, dp, b, share // b) for b in divisors(share) if b <= largest]
    return np.array(rows, dtype=np.int64).reshape(-1, 6)


def _techniques(job: Job, stack: Stack) -> Array:
    """(zero_stage, sequence_parallel, offload_optimizer, offload_parameters, virtual_stages)."""
    layers = job.architecture.layers
    stages = stack.expresses.zero_stages
    virtual = [1]
    if stack.expresses.interleaving:
        virtual += range(2, min(MAX_VIRTUAL_STAGES, layers // 2) + 1)
    tiers = [OFFLOAD_TIERS.index(t) for t in stack.expresses.offload_optimizer]
    parameter_tiers = [OFFLOAD_TIERS.index(t) for t in stack.expresses.offload_parameters]
    sequence = (0, 1) if stack.expresses.sequence_parallel else (0,)
    return np.array(
        list(product(stages, sequence, tiers, parameter_tiers, virtual)), dtype=np.int64
    )


def enumerate_shapes(job: Job) -> Iterator[Shapes]:
    """Every candidate shape, one batch for each stack, precision and attention kernel."""
    for stack in job.stacks:
        layouts, techniques = _layouts(job, stack), _techniques(job, stack)
        if not len(layouts):
            continue
        a = np.repeat(layouts, len(techniques), axis=0)
        b = np.tile(techniques, (len(layouts), 1))
        one = np.ones(len(a), dtype=np.int64)
        for precision in job.precisions:
            for attention in attention_kernels(job, stack, precision):
                yield Shapes(
                    stack=stack,
                    precision=precision,
                    attention=attention,
                    gpus=a[:, 0],
                    tp=a[:, 1],
                    pp=a[:, 2],
                    dp=a[:, 3],
                    cp=one,
                    ep=one,
                    micro_batch=a[:, 4],
                    grad_accum=a[:, 5],
                    zero_stage=b[:, 0],
                    sequence_parallel=b[:, 1],
                    offload_optimizer=b[:, 2],
                    offload_parameters=b[:, 3],
                    virtual_stages=b[:, 4],
                )
