"""What a row says about its layers: which are recomputed, and on which stage they are."""

from __future__ import annotations

import re
from typing import get_args

from costmodels.architecture import Architecture
from costmodels.costs import GRANULARITIES
from costmodels.memory_profile import Module
from planner.validate import partition
from planner.validate.cells import Cells
from planner.validate.kinds import Kind
from planner.validate.run import Skip


def mixed(cells: Cells) -> tuple[tuple[str, int], ...]:
    """Layers at each granularity, as a bundle's own row notes them."""
    told = re.search(r"recompute layers: ([^;]+)", cells.row.text("notes"))
    if cells.row.text("act_ckpt") != "mixed":
        return ()
    pairs = re.findall(r"(\w+) (\d+)", told[1]) if told else []
    if not pairs or any(name not in GRANULARITIES for name, _ in pairs):
        raise Skip("missing: recompute layers")
    return tuple((name, int(count)) for name, count in pairs)


def named_modules(text: str) -> tuple[str, ...]:
    """Modules that ``selective:`` names, joined by ``+`` or spaces.

    >>> named_modules("selective:moe_act+layernorm"), named_modules("selective")
    (('moe_act', 'layernorm'), ())
    """
    if not text.startswith("selective:"):
        return ()
    named = tuple(re.findall(r"\w+", text.partition(":")[2]))
    if not named or not set(named) <= set(get_args(Module)):
        raise Skip(
            f"act_ckpt is {text!r}: expected modules of {', '.join(sorted(get_args(Module)))}"
        )
    return named


def stages(cells: Cells, architecture: Architecture, pp: int, chunks: int) -> tuple[int, ...]:
    """Layers of each stage: as noted, or by the rule of the stack."""
    told = re.search(r"layers per stage: ((?:\d+ ?)+)", cells.row.text("notes"))
    if told is None:
        return _partition(cells.kind, architecture, pp, chunks)
    layers = tuple(int(n) for n in told[1].split())
    if len(layers) != pp or sum(layers) != architecture.layers:
        raise Skip("inconsistent as printed")
    return layers


def stage(cells: Cells, gpus: int, pp: int) -> int | None:
    """The stage of the rank whose memory a row prints, stages being blocks of ranks."""
    told = re.match(r"rank ?(\d+):", cells.row.text("notes"))
    if told is None:
        return None
    if int(told[1]) >= gpus:
        raise Skip("inconsistent as printed")
    return int(told[1]) * pp // gpus


def _partition(kind: Kind, architecture: Architecture, pp: int, chunks: int) -> tuple[int, ...]:
    if kind.partition == "weighed":
        return partition.weighed(architecture, pp)
    if kind.partition == "accounted":
        return partition.accounted(architecture.layers, pp, chunks)
    if kind.partition == "blocks":
        return partition.blocks(architecture.layers, pp, *kind.blocks)
    return partition.even(architecture.layers, pp)
