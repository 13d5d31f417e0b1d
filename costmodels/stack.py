"""A training software stack, as data: what it can express, what it allocates, how it spends time.

One YAML file a stack in ``costmodels/stacks/``; every number carries its source beside it. How
sure predictions are is filled in from ``costmodels/intervals.yaml``.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from costmodels.intervals import with_intervals
from costmodels.memory_profile import MemoryProfile
from costmodels.time_profile import TimeProfile


class Expresses(BaseModel):
    """What a plan for this stack can say; anything else constrains the program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plannable: bool  # False: only describes runs that others measured
    layers_per_stage: Literal["free", "edges", "uniform"] = "uniform"
    recompute: tuple[str, ...] = ("none", "full")  # granularities it can run
    recompute_pipelined: tuple[str, ...] | None = None  # those with pp > 1, if fewer
    recompute_layers: Literal["free", "block", "all"] = "all"
    offloaded_layers: Literal["free", "all"] = "all"
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    pipeline: bool = False
    interleaving: bool = False
    tensor_parallel: bool = False
    sequence_parallel: bool = False
    offload_optimizer: tuple[str, ...] = ("none",)
    offload_parameters: tuple[str, ...] = ("none",)
    precisions: tuple[str, ...] = ("fp32", "tf32", "fp16", "bf16")
    optimizers: tuple[str, ...] = ()  # () = all
    families: tuple[str, ...] = ()  # model families it has an implementation of; () = all
    kernels: tuple[str, ...] = ("flash", "efficient", "eager")  # of attention
    family_kernels: dict[str, tuple[str, ...]] = {}  # those a family is limited to
    why: dict[str, str] = {}

    def kernels_of(self, family: str) -> tuple[str, ...]:
        """Attention kernels the stack runs for a model family."""
        return self.family_kernels.get(family, self.kernels)


class Stack(BaseModel):
    """One training stack."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    versions: str
    expresses: Expresses
    memory: MemoryProfile
    time: TimeProfile


@cache
def load_stack(name: str) -> Stack:
    """The stack of that name.

    Raises
    ------
    ValueError
        If there is no such stack; the message lists those there are.
    """
    folder = resources.files("costmodels") / "stacks"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(f"unknown stack {name!r}: expected one of {', '.join(stack_names())}")
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Stack.model_validate(with_intervals(name, data))


@cache
def stack_names() -> tuple[str, ...]:
    """All stacks, sorted."""
    folder = resources.files("costmodels") / "stacks"
    return tuple(sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".yaml")))
