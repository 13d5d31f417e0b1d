"""One training configuration, or a whole array of them.

Categorical fields are scalars. Numeric ones are scalars or arrays of shape (n, 1), so that they
broadcast against arrays over pipeline stages, shape (pp,), to (n, pp). ``pp`` is a scalar.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.architecture import Architecture
from costmodels.numeric import Array, Numeric
from costmodels.stack import Stack
from hardware_db import Cluster

OFFLOAD_TIERS = ("none", "cpu", "nvme")  # the integer code of a tier is its index


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything a cost depends on, except the decisions made per pipeline stage."""

    architecture: Architecture
    cluster: Cluster
    stack: Stack
    precision: str  # fp32 tf32 fp16 bf16 fp8
    attention: str  # flash | efficient | eager
    optimizer: str  # sgd momentum adam adamw adafactor adam8bit lion muon
    seq_len: int
    pp: int
    dp: Numeric = 1
    tp: Numeric = 1
    cp: Numeric = 1
    ep: Numeric = 1
    micro_batch: Numeric = 1
    grad_accum: Numeric = 1  # micro-batches per step and replica, m
    virtual_stages: Numeric = 1
    zero_stage: Numeric = 0
    sequence_parallel: Numeric = 0  # 0 or 1
    offload_optimizer: Numeric = 0  # index into OFFLOAD_TIERS
    offload_parameters: Numeric = 0
    grad_dtype: str = "auto"  # auto | bf16 | fp16 | fp32: dtype gradients accumulate in
    dropout: float = 0.0
    cross_entropy: str = "auto"  # auto | eager | fused | chunked
    tuning: str = "full"
    etp: Numeric = 0  # tensor-parallel ranks that share an expert; 0: all tp of them

    @property
    def tokens(self) -> Numeric:
        """Tokens of one micro-batch on one context-parallel rank. [token]"""
        return np.asarray(np.asarray(self.micro_batch) * self.seq_len / np.asarray(self.cp))

    @property
    def expert_tp(self) -> Numeric:
        """Tensor-parallel ranks over which one routed expert is split. [-]"""
        return np.where(np.asarray(self.etp) > 0, self.etp, self.tp)

    @property
    def stage(self) -> Array:
        """Pipeline stage indices 0 ... pp - 1, shape (pp,)."""
        return np.arange(self.pp)
