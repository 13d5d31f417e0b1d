"""Flags of a Megatron argument list as numbers and switches."""

from __future__ import annotations

from planner.lint.document import Document, as_bool, as_int


def number(doc: Document, name: str, default: int | None = None) -> int | None:
    """A flag's whole number; ``default`` when the flag is absent, None when it is unreadable."""
    return as_int(doc.get(name)) if doc.has(name) else default


def on(doc: Document, name: str) -> bool:
    """Whether a switch is given."""
    return bool(as_bool(doc.get(name)))


def deepspeed(doc: Document) -> bool:
    """Whether this is Megatron-DeepSpeed."""
    marks = ("deepspeed", "deepspeed_config", "zero_stage", "ds_sequence_parallel_size")
    return any(doc.has(name) for name in marks)


def is_open(doc: Document) -> bool:
    """Whether part of the list is in a variable without a value."""
    return any(flaw.kind == "unresolved" and not flaw.path for flaw in doc.flaws)


def tp(doc: Document) -> int | None:
    """Tensor-parallel ranks."""
    return number(doc, "tensor_model_parallel_size", 1)


def pp(doc: Document) -> int | None:
    """Pipeline stages."""
    return number(doc, "pipeline_model_parallel_size", 1)


def cp(doc: Document) -> int | None:
    """Context-parallel ranks; DeepSpeed's sequence parallelism counts as such."""
    if doc.has("ds_sequence_parallel_size"):
        return number(doc, "ds_sequence_parallel_size", 1)
    return number(doc, "context_parallel_size", 1)


VA = "Megatron-LM (August 2026), megatron/training/arguments.py (validate_args)"


TC = "megatron-core 0.16.1, megatron/core/transformer/transformer_config.py (__post_init__)"
