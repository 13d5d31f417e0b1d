"""Checkpointing that a table leaves unsaid: the fewest layers with which a run fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.validate.predict import predict_memory
from planner.validate.run import Run


def spared(run: Run) -> Run:
    """The run with as many layers checkpointed as it needs to fit, if it needs any.

    Whoever made a recipe checkpoints no more than its card requires: the same number of layers on
    every stage, the first ones of it (megatron/core/transformer/transformer_block.py,
    recompute_method block). A run that fits as it is, or not even with all layers, stays.
    """
    if _fits([run])[0]:
        return run
    most = max(run.layers)
    runs = [_with(run, count) for count in range(1, most + 1)]
    enough = np.flatnonzero(_fits(runs))
    if not len(enough):
        return run
    least = runs[int(enough[0])]
    return replace(least, assumed=tuple(sorted({*run.assumed, "checkpointed layers"})))


def _fits(runs: list[Run]) -> list[bool]:
    _, device, problems = predict_memory(runs)
    limits = [run.cluster.memory_limit for run in runs]
    return [
        bool(problem) or bool(size <= limit)
        for size, limit, problem in zip(device, limits, problems, strict=True)
    ]


def _with(run: Run, count: int) -> Run:
    """``count`` layers of the longest stage checkpointed, of others the same share."""
    whole = run.architecture.layers
    done = round(whole * count / max(run.layers))
    return replace(run, recompute="full", mix=(("full", done), ("none", whole - done)))
