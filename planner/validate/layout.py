"""The parallel layout and the batch of a row: what is empty follows from the rest."""

from __future__ import annotations

import math
import re

from costmodels.stack import load_stack
from planner.validate.cells import Cells
from planner.validate.run import Skip

# Its models are whole on every GPU unless the script builds a pipeline or the configuration asks
# for tensor parallelism (deepspeed/runtime/pipe/module.py, runtime/tensor_parallel/config.py).
ASKED_FOR = ("deepspeed",)
SHARDED = 2  # ZeRO stages from here do without tensor and pipeline parallelism
LAYOUT = ("dp", "tp", "pp", "cp", "ep", "virtual_stages")
SHARES = ("dp", "tp", "pp", "cp")  # their product is the number of GPUs
BATCH = ("micro_batch", "grad_accum", "global_batch_seqs")


def gpus_of(cells: Cells) -> int | None:
    """Number of GPUs: as printed, or the product of the degrees where dp, tp and pp are."""
    printed = cells.whole("n_gpus")
    if printed is not None:
        return printed
    degrees = [cells.row.whole(name) for name in ("dp", "tp", "pp")]
    if None in degrees:
        return None
    cells.assumed.append("n_gpus")
    return math.prod([*map(int, filter(None, degrees)), cells.whole("cp", 1) or 1])


def layout_of(cells: Cells, gpus: int, stack: str) -> dict[str, int]:
    """Degrees of parallelism; one that is missing follows from the others.

    The product must be the number of GPUs. Expert parallelism divides the data-parallel group.
    Where only one of tp and pp is missing beside a printed dp, it is what the others leave. Where
    the stack that ran has neither tensor nor pipeline parallelism unless asked, or shards gradients
    or weights over all GPUs (ZeRO, FSDP), and where there is one GPU, missing ones are 1.

    Raises
    ------
    Skip
        If the row leaves the layout open, or contradicts itself.
    """
    row = cells.row
    printed = [name for name in ("dp", "tp", "pp") if row.text(name)]
    layout = {name: cells.whole(name, 1) or 1 for name in LAYOUT}
    if not printed:
        alone = gpus == 1 or _data_parallel_only(stack, cells.whole("zero_stage", 0) or 0)
        if not alone:
            raise Skip("missing: dp, tp, pp")
        cells.assumed += ["tp", "pp"]
    if "dp" not in printed:
        cells.assumed.append("dp")
        layout["dp"] = max(1, gpus // math.prod(layout[n] for n in ("tp", "pp", "cp")))
    elif layout["dp"] * layout["tp"] * layout["pp"] == gpus:
        layout["dp"] = layout["dp"] // layout["cp"] or 1  # its data-parallel ranks count cp too
    product = math.prod(layout[name] for name in SHARES)
    if product != gpus and "dp" in printed:
        product *= _left_over(cells, layout, gpus, product)
    if product != gpus:
        raise Skip("inconsistent as printed")
    return layout


def _left_over(cells: Cells, layout: dict[str, int], gpus: int, product: int) -> int:
    """The degree that one empty cell of tp and pp must hold; 1 where there is none."""
    empty = [n for n in ("tp", "pp") if not cells.row.text(n) and n not in cells.kind.defaults]
    if gpus % product:
        return 1
    if len(empty) > 1:
        raise Skip("missing: tp, pp")
    for name in empty:
        cells.assumed.append(name)
        layout[name] = gpus // product
        return layout[name]
    return 1


def _data_parallel_only(stack: str, zero_stage: int) -> bool:
    """Whether runs that print no layout had every GPU hold the whole model, or a shard of it."""
    profile = load_stack(stack)
    model = profile.expresses.tensor_parallel or profile.expresses.pipeline
    model = model and stack not in ASKED_FOR
    return not model or profile.memory.engine == "fsdp" or zero_stage >= SHARDED


def batch_of(cells: Cells, dp: int, pp: int) -> tuple[int, int]:
    """Micro-batch and micro-batches of a step, whatever is missing from the global batch.

    Raises
    ------
    Skip
        If the row leaves the micro-batch open.
    """
    micro, accum = cells.row.whole("micro_batch"), cells.row.whole("grad_accum")
    total = cells.row.whole("global_batch_seqs")
    pattern = cells.kind.local_batch
    if micro is None and pattern and (local := re.search(pattern, cells.row.text("notes"))):
        cells.assumed.append("micro_batch")
        return max(1, int(local[1]) // pp), min(pp, int(local[1]))
    if micro is None and total and (accum or total <= dp):
        cells.assumed.append("micro_batch")
        micro = max(1, total // (dp * (accum or 1)))
    if micro is None:
        micro = cells.whole("micro_batch")
    if micro is None:
        raise Skip("missing: micro_batch")
    if accum is None and total:
        accum = max(1, total // (dp * micro))
    if accum is None:
        accum = cells.whole("grad_accum", 1)
    return micro, accum or 1
