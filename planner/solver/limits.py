"""Which constraints of a program a decision keeps, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from planner.solver.program import Ints, ShapeProgram


def counts_hold(program: ShapeProgram, n: Ints, k: Ints, o: Ints) -> dict[str, bool]:
    """Layers, chunks, granularities, segments, users' bounds and offloaded layers."""
    totals = k.sum(axis=0)
    forbidden = totals[~program.granularity_allowed]
    return {
        "layers": bool(n.sum() == program.layers and (n >= 1).all()),
        "chunk": bool((n % program.chunk == 0).all()),
        "granularity": bool((k.sum(axis=1) == n).all() and (k >= 0).all()),
        "segment": bool((k % np.array(program.segments) == 0).all()),
        "granularity_allowed": not forbidden.any(),
        "granularity_min": bool((totals >= program.granularity_min).all()),
        "granularity_max": bool((totals <= program.granularity_max).all()),
        "offloaded": bool((o >= 0).all() and (o <= np.minimum(n, program.max_offloaded)).all()),
        "min_offloaded": bool(o.sum() >= program.min_offloaded),
    }


def rules_hold(program: ShapeProgram, n: Ints, k: Ints, o: Ints) -> dict[str, bool]:
    """What the stack can express."""
    middle = n[1:-1] if program.layers_rule == "edges" else n[:0]
    as_ruled = program.layers_rule != "uniform" or bool((n == program.even_layers).all())
    whole = bool((k == n[:, None]).all(axis=0).any())
    counted = any(_counted_alike(program, k, g) for g in (program.plain, *program.countable))
    same_o = bool((o == 0).all() or (o == n).all())
    return {
        "layers_rule": as_ruled and len(set(middle.tolist())) <= 1,
        "recompute_rule": {
            "free": True,
            "same": counted,
            "block": whole or counted,
            "all": whole,
        }[program.recompute_rule],
        "offload_rule": program.offload_rule == "free" or same_o,
    }


def _counted_alike(program: ShapeProgram, k: Ints, granularity: int) -> bool:
    """Whether all stages recompute the same number of layers at one granularity, none at others."""
    others = [g for g in range(k.shape[1]) if g not in (granularity, program.plain)]
    alike = granularity == program.plain or (k[:, granularity] == k[0, granularity]).all()
    return bool(alike and not k[:, others].any())
