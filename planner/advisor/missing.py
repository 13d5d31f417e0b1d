"""What keeps a file from being judged: files that are not at hand, values that mean nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from planner.advisor.arguments import FILE_FLAGS
from planner.advisor.readers import Reading
from planner.lint.context import Context
from planner.lint.document import Document
from planner.lint.finding import Finding

# Findings that leave a value without meaning, and the keys a verdict rests on.
_VALUE_RULES = frozenset(
    {"ds-wrong-type", "ds-out-of-range", "ds-bad-choice", "acc-bad-number", "acc-bad-choice"}
    | {"hf-bad-number", "plan-count", "mg-bad-number", "axolotl-bad-number", "lf-bad-number"}
)
_JUDGED = frozenset(
    {
        "stage",
        "zero_stage",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "per_device_train_batch_size",
        "micro_batch_size",
        "global_batch_size",
        "device",
        "offload_optimizer",
        "offload_param",
        "zero_optimization",
        "enabled",
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "seq_length",
    }
)


def missing_files(reading: Reading, ctx: Context) -> tuple[Finding, ...]:
    """A warning for every configuration file that is named but not at hand."""
    given = {PurePath(doc.name).name for doc in ctx.partners}
    return tuple(
        _missing(name, where)
        for name, where in _absent(reading, ctx)
        if PurePath(name).name not in given
    )


def _absent(reading: Reading, ctx: Context) -> list[tuple[str, tuple[Document, str]]]:
    """Names without a file, each with the document and the key that hold it."""
    docs = (reading.document, *reading.partners)
    kinds = {doc.kind for doc in ctx.partners}
    out: dict[str, tuple[Document, str]] = {}
    for name in reading.missing:
        kind = _kind_of(name, docs)
        if kind not in kinds:
            out[name] = _holder(name, docs)
    for doc in docs:
        key = _open(doc)
        if key and "deepspeed" not in kinds:
            out[f"the file of {key}"] = (doc, key)
    return list(out.items())


def _open(doc: Document) -> str:
    """A DeepSpeed flag whose file only a run would know."""
    unresolved = {str(f.path[0]) for f in doc.flaws if f.kind == "unresolved" and f.path}
    for key in ("deepspeed", "deepspeed_config", "ds_config"):
        if key in unresolved and doc.get(key) is None and doc.kind != "megatron":
            return key
    return ""


def _kind_of(name: str, docs: Iterable[Document]) -> str:
    for doc in docs:
        for key, kind in FILE_FLAGS.items():
            if doc.get(key) == name or doc.get("deepspeed_config", key) == name:
                return kind
    return "accelerate" if name.lower().endswith((".yaml", ".yml")) else "deepspeed"


def _holder(name: str, docs: tuple[Document, ...]) -> tuple[Document, str]:
    for doc in docs:
        for key in FILE_FLAGS:
            if doc.get(key) == name:
                return doc, key
            if doc.get("deepspeed_config", key) == name:
                return doc, f"deepspeed_config.{key}"
    return docs[0], ""


def _missing(name: str, where: tuple[Document, str]) -> Finding:
    doc, key = where
    path = tuple(key.split(".")) if key else ()
    place = doc.where(path)
    shown = doc.spelling.get(key, f"--{key}") if key and doc.format == "arguments" else key
    return Finding(
        id="missing-file",
        severity="warning",
        file=doc.name,
        key=shown,
        line=place.line if place else None,
        column=place.column if place else None,
        effect=f"{name} is named but was not found: what it sets is unknown",
        fix="put it beside this file, or give it with --with",
        source="the files at hand",
    )


def blocked(findings: Iterable[Finding]) -> str:
    """Why no verdict can be given, as far as files and values go; empty if nothing is in the way.

    Only findings that leave a setting unknown count: a refusal of the framework does not keep the
    memory from being predicted.
    """
    for finding in findings:
        last = finding.key.rsplit(".", 1)[-1].lstrip("-").replace("-", "_")
        if finding.id in ("missing-file", "launch-engines"):
            return finding.effect
        if finding.id in _VALUE_RULES and finding.severity == "error" and last in _JUDGED:
            return f"{finding.key}: {finding.effect}"
    return ""
