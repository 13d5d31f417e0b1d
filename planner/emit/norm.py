"""The norms' epsilon in the words of each target.

Defaults differ (1e-6 and 1e-5 in transformers, 1e-5 in Megatron and in torchtitan's Llama, 1e-6
in its Qwen3), so it is always said.
"""

from __future__ import annotations

from costmodels.architecture import Architecture
from planner.emit.launch import Argument
from planner.emit.refusal import require
from planner.hf_norm import TORCH, epsilon_key


def hf_norm(arch: Architecture) -> dict[str, float]:
    """The epsilon's key and value in a transformers 5 configuration.

    Raises
    ------
    ValueError
        If the model type has one epsilon only, and it is another.
    """
    key = epsilon_key(arch.family)
    if key:
        return {key: arch.norm_eps}
    require(
        arch.norm_eps == TORCH,
        f"transformers' {arch.family}",
        f"its norms add {TORCH:g} to the variance, not {arch.norm_eps:g}",
    )
    return {}


def norm_argument(arch: Architecture, flag: str) -> Argument:
    """The epsilon as an argument of either Megatron."""
    return (flag, str(arch.norm_eps))
