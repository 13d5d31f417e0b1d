"""What no single file says: who reads it, on what machine, beside which other files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.lint.deepspeed_keys import VERSION
from planner.lint.document import Document, Value

FRAMEWORKS = ("hf", "accelerate", "plain", "megatron")


@dataclass(frozen=True, slots=True)
class Device:
    """What the rules need to know of the GPU and its node."""

    name: str
    supports: frozenset[str]  # precisions
    memory_bytes: float
    gpus_per_node: int
    architecture: str = ""  # Ampere, Hopper, ...
    flash: bool = True  # FlashAttention 2 or later runs on it
    linked: bool = True  # NVLink or the like between the GPUs of a node


@dataclass(frozen=True, slots=True)
class Context:
    """Who reads a file, and what stands beside it.

    ``framework``: hf (Hugging Face Trainer), accelerate, plain (``deepspeed.initialize``) or
    megatron (Megatron-DeepSpeed, gpt-neox). ``trainer`` holds trainer flags where they are known.
    ``world`` counts processes; ``hidden_size`` and ``layers`` are the model's.
    """

    framework: str = "plain"
    inferred: bool = False
    deepspeed_version: str = VERSION
    client_optimizer: str | None = None
    trainer: Document | None = None
    partners: tuple[Document, ...] = ()
    world: int | None = None
    device: Device | None = None
    hidden_size: int | None = None
    layer_class: str | None = None  # of the model's decoder layers in transformers
    environment: Mapping[str, str] | None = None  # what a launch script sets; None if no script

    @property
    def hugging_face(self) -> bool:
        """Whether Hugging Face code fills ``auto`` values."""
        return self.framework in ("hf", "accelerate")

    def partner(self, kind: str) -> Document | None:
        """The first file of a kind standing beside the one looked at."""
        return next((doc for doc in self.partners if doc.kind == kind), None)

    def flag(self, name: str, default: Value = None) -> Value:
        """A trainer flag's value; ``default`` when it, or every flag, is unknown."""
        return default if self.trainer is None else self.trainer.get(name, default=default)


def check_framework(name: str) -> str:
    """A framework's name, or a ValueError listing them."""
    if name not in FRAMEWORKS:
        raise ValueError(f"context {name!r}: expected one of {', '.join(FRAMEWORKS)}")
    return name
