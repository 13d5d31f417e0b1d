"""The verdict and the advice for a file, or why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.advisor.advice import advise_on
from planner.advisor.bundled import job_of
from planner.advisor.fsdp_limits import hybrid, kept_gradients, one_node, whole_unit
from planner.advisor.judge import Target, gather, megatron_shape
from planner.advisor.judgement import Judgement
from planner.advisor.limits import judge_nearest
from planner.advisor.missing import blocked
from planner.advisor.readers import Reading
from planner.advisor.report import Advice
from planner.advisor.settings import Settings
from planner.lint import Context, Finding
from planner.lint.document import Document
from planner.lint.megatron_flags import number

if TYPE_CHECKING:
    from costmodels.architecture import Architecture
    from hardware_db import Cluster
    from planner.advisor.options import Options

Outcome = tuple[Judgement | None, tuple[Advice, ...], tuple[Finding, ...], list[str]]


def verdict_of(
    reading: Reading,
    ctx: Context,
    settings: Settings,
    options: Options,
    cluster: Cluster,
    findings: tuple[Finding, ...],
) -> Outcome:
    """Judgement, better plans, findings that only the cost models make, and notes."""
    notes: list[str] = []
    target = _target(reading, options, settings, notes)
    tuning = settings.get("tuning")
    if tuning not in (None, "full"):
        return None, (), (), [*notes, f"no verdict: {tuning} tuning is not predicted yet"]
    reason = blocked(findings)
    if reason:
        return None, (), (), [*notes, f"no verdict: {reason}"]
    if whole_unit(findings):
        why = "without a wrap policy the whole model is one FSDP unit, which is not modelled"
        return None, (), (), [*notes, f"no verdict: {why}"]
    if target is None:
        return None, (), (), [*notes, "no verdict: give --model"]
    if settings.gpus and settings.gpus != cluster.gpus:
        notes.append(f"the file speaks of {settings.gpus} processes, {cluster.gpus} GPUs are given")
    gpus = cluster.gpus
    if cluster.nodes > 1 and settings.get("stack") == "fsdp2" and hybrid(reading, ctx):
        gpus = cluster.gpus_per_node
        target = replace(target, fields=one_node(target.fields, cluster))
        notes.append(
            "hybrid sharding shards inside a node only; judged as one node, without the time in"
            " which nodes add up their gradients"
        )
    try:
        supports = cluster.node.gpu.supports
        best = next((name for name in ("bf16", "fp16") if name in supports), "fp32")
        fields, fix = gather(settings, replace(target, precision=best), gpus)
    except ValueError as error:
        return None, (), (_refused(reading.document, str(error), settings, ()),), notes
    plain = _replicas(reading, ctx, settings)
    notes += [plain] if plain and cluster.gpus > 1 else []
    tried = judge_nearest(fields, fix, target, ctx)
    notes += tried.notes
    if tried.refused:
        found = _refused(reading.document, tried.refused, settings, tried.axes)
        return None, (), (found,), notes
    if tried.judged is None or tried.job is None:
        return None, (), (), notes
    judged = tried.judged
    notes += tried.job.notes
    kept = kept_gradients(reading, ctx, tried.fix, tried.job)
    notes += [kept] if kept else []
    better: tuple[Advice, ...] = ()
    if options.advice:
        better = advise_on(tried.fields, tried.fix, judged, target, reading, ctx)
        if not better and not judged.fits:
            notes.append(
                "no small change of this file makes it fit; `planner solve` searches all plans"
            )
    return judged, better, (), notes


def _target(
    reading: Reading, options: Options, settings: Settings, notes: list[str]
) -> Target | None:
    """The model and the GPUs: from the options, else from the file."""
    fields: dict[str, Any] = {**options.fields, "gpus": options.gpus}
    doc = reading.document
    if options.model:
        return Target({**fields, "model": options.model})
    if doc.kind == "megatron":
        shape = megatron_shape(doc)
        if shape is not None and not _same(shape, _planned(reading)):
            if settings.get("seq_len") is None and number(doc, "max_position_embeddings"):
                fields["seq_len"] = number(doc, "max_position_embeddings")
            notes.append(f"model read from the flags: {shape.layers} layers of {shape.hidden}")
            return Target(fields, shape)
    named = _named(doc) or _planned(reading)
    if named is None:
        return None
    from planner.catalogue import resolve_model

    try:
        model = resolve_model(named).architecture.name
    except ValueError as error:
        notes.append(f"the file's model: {error}")
        return None
    where = "the file names it" if _named(doc) else "the plan beside it says"
    notes.append(f"model {model}, as {where}")
    if reading.launch is not None and reading.launch.target.startswith("torchtitan"):
        notes.append(
            "torchtitan's flags are not read: the settings are those of the plan beside it"
        )
    return Target({**fields, "model": named})


def _named(doc: Document) -> str | None:
    """A model that the file names; a path on the user's machine is not opened."""
    for name in ("model_name_or_path", "base_model", "pretrained_model_name_or_path"):
        value = doc.get(name)
        if isinstance(value, str) and value and not value.startswith((".", "/", "~")):
            return None if value.endswith((".json", ".yaml", ".yml")) else value
    value = doc.get("job", "model")
    return value if isinstance(value, str) else None


def _planned(reading: Reading) -> str | None:
    """The model of the plan beside the file."""
    model = job_of(reading).get("model")
    return model if isinstance(model, str) else None


def _same(shape: Architecture, model: str | None) -> bool:
    """Whether flags still describe the model that the plan beside them names."""
    from planner.catalogue import resolve_model

    try:
        planned = resolve_model(model).architecture if model else None
    except ValueError:
        return False
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn")
    return planned is not None and all(
        getattr(shape, size) == getattr(planned, size) for size in sizes
    )


def _replicas(reading: Reading, ctx: Context, settings: Settings) -> str:
    """That no engine is chosen, so that PyTorch's own data parallelism runs; or empty."""
    stack, stage = settings.values.get("stack"), settings.values.get("zero_stage")
    docs = (reading.document, *ctx.partners)
    if any(doc.kind in ("deepspeed", "megatron", "plan") for doc in docs):
        return ""
    if stack is None or (stack.value, stack.how) != ("deepspeed", "default"):
        return ""
    if stage is None or stage.value != 0:
        return ""
    return (
        "neither DeepSpeed nor FSDP is chosen, so PyTorch's DistributedDataParallel runs; judged as"
        " DeepSpeed's stage 0, the nearest that is modelled: memory and time may differ"
    )


def _refused(doc: Document, reason: str, settings: Settings, axes: tuple[str, ...]) -> Finding:
    """The finding for a configuration that the framework or the hardware refuses."""
    reason = reason.removeprefix("advise: ").removeprefix("not a valid configuration: ")
    held = [settings.values[axis] for axis in axes if axis in settings.values]
    said = next((s for s in held if s.key and s.file == doc.name), None)
    key = said.key if said is not None else ""
    typed = next((name for name, flag in doc.spelling.items() if flag == key), "")
    place = doc.where((typed,) if typed else tuple(key.split("."))) if key else None
    return Finding(
        id="not-valid",
        severity="error",
        file=doc.name,
        key=key,
        line=place.line if place else (1 if doc.text else None),
        column=place.column if place else None,
        effect=" ".join(reason.split()),
        fix="change what it names",
        source="the planner's rules of stacks and hardware",
    )
