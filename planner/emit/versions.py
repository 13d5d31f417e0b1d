"""Which releases each emitter writes for, and what changed around them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True, slots=True)
class Target:
    """A framework, as installed from PyPI: releases from ``least`` up to before ``below``.

    ``changes`` say what differs outside them.
    """

    package: str
    least: str
    below: str
    changes: tuple[str, ...] = ()


DEEPSPEED = Target(
    "deepspeed",
    "0.19.0",
    "0.20.0",
    (
        "0.19 turned pin_memory of offload on by default and removed MiCS, elasticity, amp,"
        " compression_training and curriculum_learning",
        "before 0.16.4 there is no tensor_parallel section",
        "0.19.6 demands warmup_num_steps above 0",
    ),
)
TORCH = Target("torch", "2.9", "3.0", ("before 2.9 only PYTORCH_CUDA_ALLOC_CONF is read",))
MEGATRON = Target(
    "megatron-core",
    "0.16.0",
    "0.17.0",
    ("--pipeline-model-parallel-layout came with 0.13", "later releases need Python 3.12"),
)
TORCHTITAN = Target(
    "torchtitan",
    "0.3.0",
    "0.3.1",
    (
        "before 0.3 the configuration was a TOML file",
        "after 0.3.0 the batch fields have other names",
    ),
)
TRANSFORMERS = Target(
    "transformers",
    "5.20",
    "6.0",
    ("older releases say gradient_checkpointing where these say activation_checkpointing",),
)
ACCELERATE = Target("accelerate", "1.10", "2.0", ("FSDP_VERSION 2 came with 1.6",))
LLAMA_FACTORY = Target("llamafactory", "0.9.4", "1.0")
AXOLOTL = Target(
    "axolotl",
    "0.16",
    "1.0",
    ("older releases say flash_attention where these say attn_implementation",),
)

TARGETS: Mapping[str, tuple[Target, ...]] = {
    "deepspeed": (DEEPSPEED, TORCH),
    "megatron-deepspeed": (DEEPSPEED, TORCH),
    "megatron": (MEGATRON, TORCH),
    "fsdp2": (TORCHTITAN, TORCH),
    "torchtitan": (TORCHTITAN, TORCH),
    "hf": (TRANSFORMERS, DEEPSPEED),
    "accelerate": (ACCELERATE,),
    "llama-factory": (LLAMA_FACTORY, TRANSFORMERS, DEEPSPEED),
    "axolotl": (AXOLOTL, TRANSFORMERS),
    "slurm": (),
    "kubernetes": (),
}


def version_notes(name: str) -> list[str]:
    """What to know of the installed releases of a target's frameworks; nothing if they fit.

    A framework that is not installed here says nothing: plans are made on one machine and run on
    another.
    """
    notes = []
    for target in TARGETS[name]:
        try:
            installed = version(target.package)
        except PackageNotFoundError:
            continue
        if not accepts(target, installed):
            text = (
                f"{target.package} {installed} is installed; the files are written for"
                f" {target.least} to before {target.below}"
            )
            notes.append("; ".join((text, *target.changes)))
    return notes


def accepts(target: Target, installed: str) -> bool:
    """Whether a release lies in the target's range.

    >>> accepts(DEEPSPEED, "0.19.8"), accepts(DEEPSPEED, "0.18.2"), accepts(TORCH, "2.13.0+cpu")
    (True, False, True)
    """
    return _numbers(target.least) <= _numbers(installed) < _numbers(target.below)


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    if found is None:
        raise ValueError(f"version {text!r}: expected numbers such as 0.19.8")
    parts = [int(part) for part in found.group(1).split(".")]
    return tuple(parts + [0] * (3 - len(parts)))
