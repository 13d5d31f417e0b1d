"""A file's settings in the planner's words, with what stayed open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from planner.lint.document import Document, Path, Value, dotted

_COUNTS = ("dp", "tp", "pp", "cp", "ep", "micro_batch", "grad_accum", "virtual_stages")
_CHOICES = ("zero_stage", "precision", "attention", "recompute", "sequence_parallel")
AXES = (*_COUNTS, *_CHOICES, "offload_optimizer", "offload_parameters")
OTHERS = ("stack", "optimizer", "seq_len", "global_batch", "grad_dtype", "cross_entropy", "tuning")
NAMES = (*AXES, *OTHERS)

# Optimizers as frameworks name them, in the planner's words.
OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_hf": "adamw",
    "adamw_apex_fused": "adamw",
    "fusedadam": "adamw",
    "deepspeedcpuadam": "adamw",
    "adamw_bnb_8bit": "adam8bit",
    "adamw_8bit": "adam8bit",
    "paged_adamw_8bit": "adam8bit",
    "adamw_torch_8bit": "adam8bit",
    "paged_adamw_32bit": "adamw",
    "paged_adamw": "adamw",
    "lion_32bit": "lion",
    "lion_8bit": "lion",
    "paged_lion_8bit": "lion",
    "rmsprop": "momentum",
    "adagrad": "momentum",
}


class Setting(BaseModel):
    """One value: ``how`` is file, filled (an ``auto``), default (the framework's) or assumed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: int | float | str | bool
    how: str
    file: str = ""
    key: str = ""


@dataclass(slots=True)
class Settings:
    """Settings found so far; the first source of a value wins."""

    values: dict[str, Setting] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    gpus: int | None = None  # processes the files speak of

    def give(
        self, name: str, value: Value, doc: Document | None, path: Path = (), how: str = "file"
    ) -> None:
        """Record a value unless it is unknown or already there."""
        if value is None or name in self.values or isinstance(value, list | Mapping):
            return
        key = dotted(path)
        if doc is not None and doc.format == "arguments" and path:
            key = doc.spelling.get(str(path[0]), f"--{path[0]}")
        self.values[name] = Setting(
            value=value, how=how, file=doc.name if doc is not None else "", key=key
        )

    def get(self, name: str) -> Value:
        """A value, None if unknown."""
        return self.values[name].value if name in self.values else None

    def assume(self, name: str, value: Value, why: str) -> None:
        """Fill a gap, and say so."""
        if name not in self.values:
            self.values[name] = Setting(value=value, how="assumed")
            self.assumed.append(f"{name} {value}: {why}")

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names without a value."""
        return tuple(name for name in NAMES if name not in self.values)
