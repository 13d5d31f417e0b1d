"""How many parameters a rank of each stage holds, and how many of them it steps."""

from __future__ import annotations

import numpy as np

from costmodels.configuration import Configuration
from costmodels.numeric import Numeric
from costmodels.params import (
    dense_on_rank,
    embedding_parameters,
    experts_on_rank,
    final_norm_parameters,
    head_parameters,
    mean_layer_parameters,
    stage_parameters,
)


class Held:
    """Parameters on one rank of each stage: of one layer, and of everything else.

    ``layer`` and ``rest`` are (dense, expert) pairs; the rest has the shape of the stages. [-]
    """

    __slots__ = ("cfg", "layer", "rest")

    def __init__(self, cfg: Configuration) -> None:
        arch = cfg.architecture
        first, last = cfg.stage == 0, cfg.stage == cfg.pp - 1
        ends = stage_parameters(arch, 0, first.astype(int), last.astype(int))
        mean = mean_layer_parameters(arch)
        self.cfg = cfg
        self.layer = (
            dense_on_rank(arch, mean, cfg.tp),
            experts_on_rank(mean, cfg.tp, cfg.ep),
        )
        self.rest = (dense_on_rank(arch, ends, cfg.tp), 0.0)

    def replicas(self, expert: bool) -> Numeric:
        """Ranks that hold the same parameters. [-]"""
        ways = np.asarray(self.cfg.dp) * self.cfg.cp
        return np.maximum(ways / self.cfg.ep, 1.0) if expert else ways

    def owned(self, pair: tuple[Numeric, Numeric]) -> Numeric:
        """Parameters whose optimizer state is this rank's. [-]"""
        sharded = np.asarray(self.cfg.zero_stage) >= 1
        dense, expert = pair
        return np.where(sharded, dense / self.replicas(False), dense) + np.where(
            sharded, expert / self.replicas(True), expert
        )


def root_parameters(cfg: Configuration) -> Numeric:
    """Parameters of the unit around the layers, embedding and head, on one rank. [-]"""
    arch = cfg.architecture
    ends = embedding_parameters(arch) + head_parameters(arch) + final_norm_parameters(arch)
    return dense_on_rank(arch, ends, cfg.tp)
