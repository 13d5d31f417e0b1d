"""The training recipe a plan does not decide: learning rate, betas, clipping.

A plan fixes what costs memory and time. These values only make the emitted files complete; they
are the usual ones for pre-training and the first thing a user will change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GRADIENT_CLIPPING = 1.0  # Brown et al. 2020 (GPT-3), appendix B; Touvron et al. 2023, section 2.2
WARMUP_STEPS = 100
TRAIN_STEPS = 1000  # placeholder length of the run where a framework demands one
LOG_EVERY = 10


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of one optimizer. ``betas`` are empty where it has none."""

    lr: float
    weight_decay: float = 0.1
    betas: tuple[float, ...] = ()
    eps: float | None = None
    momentum: float | None = None


# Touvron et al. 2023, arXiv 2307.09288, section 2.2: AdamW 3e-4, betas 0.9 and 0.95, decay 0.1,
# eps 1e-5; eps 1e-8 is the default of torch and DeepSpeed. Lion: Chen et al. 2023, arXiv
# 2302.06675, section 5: a third to a tenth of Adam's rate, 3 to 10 times its decay. Muon: Liu et
# al. 2025, arXiv 2502.16982: Adam's rate with matched update size, momentum 0.95.
RECIPES: Mapping[str, Recipe] = {
    "sgd": Recipe(lr=0.1, weight_decay=0.0),
    "momentum": Recipe(lr=0.1, weight_decay=0.0, momentum=0.9),
    "adam": Recipe(lr=3e-4, weight_decay=0.0, betas=(0.9, 0.95), eps=1e-8),
    "adamw": Recipe(lr=3e-4, betas=(0.9, 0.95), eps=1e-8),
    "adafactor": Recipe(lr=1e-3, weight_decay=0.0),
    "adam8bit": Recipe(lr=3e-4, betas=(0.9, 0.95), eps=1e-8),
    "lion": Recipe(lr=1e-4, weight_decay=0.3, betas=(0.9, 0.99)),
    "muon": Recipe(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, momentum=0.95),
}
