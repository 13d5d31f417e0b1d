"""What is left out together."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from costmodels.numeric import Array
from planner.validate.run import Run
from planner.validate.score import grouped

MOST_FOLDS = 10


def folds(runs: Sequence[Run]) -> Array:
    """The fold of every run: whole groups together, at most ten folds for each kind."""
    result = np.zeros(len(runs), dtype=int)
    first = 0
    for places in grouped([run.kind.name for run in runs]).values():
        groups = grouped([runs[i].group for i in places])
        order = sorted(groups, key=lambda group: zlib.crc32(repr(group).encode()))
        for i, group in enumerate(order):
            result[places[groups[group]]] = first + i % MOST_FOLDS
        first += min(len(order), MOST_FOLDS)
    return result
