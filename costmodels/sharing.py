"""How tensor and sequence parallelism divide what a layer keeps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodels.configuration import Configuration
from costmodels.kernels import Batch, Kernels, Saved
from costmodels.numeric import Array, Numeric


def kernels_of(c: Configuration) -> Kernels:
    """The kernels a configuration runs on its stack."""
    profile = c.stack.memory
    wide = c.precision in ("fp32", "tf32")
    fp8 = c.precision == "fp8" and profile.fp8_inputs
    copied = np.where(profile.lone_output & (np.asarray(c.micro_batch) == 1), 0, 1)
    return Kernels(
        compute="fp32" if wide else "amp" if profile.autocast else "bf16",
        attention=c.attention,
        norm=profile.norm,
        mlp=profile.mlp,
        layout=profile.layout,
        output_copies=profile.output_copies * copied + profile.cp_copies * (np.asarray(c.cp) > 1),
        qkv_kept=profile.qkv_kept,
        rotary_each=profile.rotary_each,
        kv_expanded=profile.kv_expanded,
        norm_element=profile.norm_element,
        score_element=profile.score_element,
        input_bytes=1.0 if fp8 else 0.0,
        dropout=c.dropout,
    )


def batch_of(c: Configuration) -> Batch:
    """One micro-batch on one context-parallel rank."""
    return Batch(c.micro_batch, c.seq_len / np.asarray(c.cp), c.seq_len)


def ways(c: Configuration, split: str) -> Array:
    """Over how many ranks a tensor of that split is divided. [-]"""
    tp = np.asarray(c.tp)
    sequence = np.where(np.asarray(c.sequence_parallel) > 0, tp, 1)
    if split == "tensor":
        return tp
    if split == "kv":
        return np.asarray(np.minimum(tp, c.architecture.kv_heads))
    if split == "sequence":
        return sequence
    if split == "expert":
        return np.where(sequence > 1, tp / c.expert_tp, 1.0)
    if split == "input":
        return sequence if c.stack.memory.linear_inputs == "sharded" else np.ones_like(sequence)
    return np.ones_like(tp)


def on_rank(c: Configuration, tensors: Iterable[Saved]) -> Numeric:
    """Bytes of ``tensors`` on one rank."""
    size: Numeric = 0.0
    for tensor in tensors:
        size = size + tensor.size / ways(c, tensor.split)
    return size
