"""What the user adds to the files, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from planner.lint.deepspeed_keys import VERSION
from planner.lint.document import Document


@dataclass(frozen=True, slots=True)
class Options:
    """What the user adds to the files. ``fields`` are those of a planner's job."""

    context: str | None = None
    deepspeed_version: str = VERSION
    client_optimizer: str | None = None
    arguments: Document | None = None
    partners: tuple[Document, ...] = ()
    symptom: str | None = None
    advice: bool = True
    model: str | None = None
    gpus: str | None = None
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def hidden_size_of(model: str) -> int:
    """Hidden size of a model argument, or a one-line ValueError."""
    from planner.catalogue import resolve_model

    return resolve_model(model).architecture.hidden


def layer_class_of(model: str) -> str | None:
    """Class of a model's decoder layers in transformers, None where it is not known."""
    from planner.catalogue import resolve_model
    from planner.emit.families import DECODER_LAYERS

    return DECODER_LAYERS.get(resolve_model(model).architecture.family)
