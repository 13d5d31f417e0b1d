"""What the user adds to the files, checked."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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


_NOT_HERE = frozenset({"model", "gpus", "fix", "min", "max", "forbid"})


def checked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The job's further fields, their values checked even where nothing is predicted.

    Raises
    ------
    TypeError
        If a name is none of the job's.
    ValueError
        If a value is none of the field's; one line.
    """
    from hardware_db import parse_gpus
    from hardware_db.units import parse_rate, parse_size
    from planner.spec import JobSpec, make_spec

    known = JobSpec.model_fields.keys() - _NOT_HERE
    wrong = sorted(fields.keys() - known)
    if wrong:
        raise TypeError(f"advise() has no argument {', '.join(wrong)}")
    given = {name: value for name, value in fields.items() if value is not None}
    make_spec({**given, "model": "llama3.1-8b", "gpus": "1xA100-80G"}, "advise")
    parsers = {"host_memory": parse_size, "nvme": parse_size, "memory_limit": parse_size}
    parsers |= {"inter_bandwidth": parse_rate, "intra_bandwidth": parse_rate}
    for name in parsers.keys() & given.keys():
        try:
            parsers[name](given[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if "profile" in given:
        from planner.calibrate import load_profile

        load_profile(Path(given["profile"]))
    if "hardware" in given:
        parse_gpus("1xA100-80G", extra=given["hardware"])
    return given


def typed_arguments(args: str | Sequence[str]) -> str:
    """Trainer flags as one text.

    >>> typed_arguments(["--bf16", "--run_name", "my run"])
    "--bf16 --run_name 'my run'"

    Raises
    ------
    ValueError
        If it is neither text nor a list of words.
    """
    if isinstance(args, str):
        return args
    if isinstance(args, Mapping | bytes) or not isinstance(args, Iterable):
        raise ValueError("args: expected text or a list of words, such as '--bf16'")
    words = list(args)
    if not all(isinstance(word, str) for word in words):
        raise ValueError("args: expected words as text, such as ['--learning_rate', '1e-5']")
    return shlex.join(words)


def hidden_size_of(model: str) -> int:
    """Hidden size of a model argument, or a one-line ValueError."""
    from planner.catalogue import resolve_model

    return resolve_model(model).architecture.hidden


def layer_class_of(model: str) -> str | None:
    """Class of a model's decoder layers in transformers, None where it is not known."""
    from planner.catalogue import resolve_model
    from planner.emit.families import DECODER_LAYERS

    return DECODER_LAYERS.get(resolve_model(model).architecture.family)
