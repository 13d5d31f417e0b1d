"""Rows that cannot be true as printed, by rules that hold for any source.

Their memory is left out with the reason; a step time they print is scored all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costmodels.costs import MemoryCosts
from costmodels.numeric import Array, Numeric
from costmodels.peak import phase_classes
from planner.validate.run import Run

TOO_LITTLE = "prints less than its weights, gradients and optimizer states"
REPEATED = "prints the figure of a run on fewer GPUs that shards nothing"

DIGITS = 4
ROUNDING = 0.97  # a printed figure may be rounded down this far


def own_states(costs: MemoryCosts, layers: Numeric, offloaded: Numeric) -> Array:
    """Weights, gradients and optimizer states of every stage at its optimizer step. [byte]"""
    classes = phase_classes(costs.phases[-1], layers, {}, offloaded)
    return classes["weights"] + classes["gradients"] + classes["optimizer"]


def prints_too_little(run: Run, states: float) -> bool:
    """Whether a run on one GPU prints less than what it must hold at its optimizer step.

    Only where every state is whole on the GPU, so that they are a count of parameters times bytes.

    Parameters
    ----------
    run : Run
        What ran, and its measured peak.
    states : float
        Weights, gradients and optimizer states. [byte]
    """
    offloaded = run.offload_optimizer or run.offload_parameters
    whole = run.n_gpus == 1 and not offloaded
    return whole and run.memory is not None and run.memory < ROUNDING * states


def without_repeats(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Leave out the memory of runs that repeat another's figure, to the fourth digit or beyond.

    Sharding divides at least the optimizer states, so a run that shards them and one that does
    not, alike in model, batch and all but the number of GPUs (and what that brings with it),
    cannot share a peak: the figure is that of the smaller run.
    """
    whole = {_alike(run): run.n_gpus for run in runs if _precise(run) and run.dp == 1}
    return tuple(
        replace(run, memory_skip=run.memory_skip or REPEATED)
        if _precise(run) and _sharded(run) and whole.get(_alike(run), run.n_gpus) < run.n_gpus
        else run
        for run in runs
    )


def _sharded(run: Run) -> bool:
    return run.dp > 1 and run.zero_stage > 0


def _precise(run: Run) -> bool:
    """Whether a figure has digits enough that two runs hardly share it by chance."""
    printed = run.row.text("peak_mem_gib").replace(".", "").lstrip("0")
    return run.memory is not None and len(printed) >= DIGITS


def _alike(run: Run) -> tuple[object, ...]:
    model = run.source, run.row.text("framework"), run.architecture, run.cluster.gpu.id
    training = run.precision, run.optimizer, run.seq_len, run.micro_batch, run.sequences
    return (*model, *training, run.tp, run.pp, run.cp, run.row.text("peak_mem_gib"))
