"""From files and options to a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.advisor.bundled import with_gpus
from planner.advisor.context import context_of
from planner.advisor.judgement import Judgement
from planner.advisor.launch_options import line_of
from planner.advisor.missing import missing_files
from planner.advisor.options import Options, checked_fields, hidden_size_of, typed_arguments
from planner.advisor.paths import expand
from planner.advisor.readers import Reading, read_arguments, read_file
from planner.advisor.report import Advice, Cause, FileReport, FilledAuto, Report
from planner.advisor.settings import Settings
from planner.advisor.settings_read import settings_of
from planner.advisor.source import Unreadable
from planner.lint import Context, Finding, hf_value_rules, lint
from planner.lint.context import check_framework
from planner.lint.deepspeed_facts import DeepSpeedFacts
from planner.lint.deepspeed_keys import VERSION
from planner.lint.deepspeed_schema import version_tuple
from planner.lint.document import dotted
from planner.lint.finding import worst
from planner.lint.rule import Facts, apply_rules, order

if TYPE_CHECKING:
    from hardware_db import Cluster


def advise(
    files: str | Path | Iterable[str | Path],
    *,
    model: str | None = None,
    gpus: str | None = None,
    context: str | None = None,
    deepspeed_version: str = VERSION,
    client_optimizer: str | None = None,
    args: str | Sequence[str] | None = None,
    partners: Sequence[str | Path] = (),
    symptom: str | None = None,
    advice: bool = True,
    **fields: Any,
) -> Report:
    """Judge configuration files people already have.

    Parameters
    ----------
    files : path or paths
        Files of any kind the advisor reads; patterns such as ``configs/*.json`` are expanded.
    model, gpus : str, optional
        As for ``solve``. Without GPUs the files are only linted. A model that a file names is
        used if none is given.
    context : str, optional
        hf, accelerate, plain or megatron: who reads a DeepSpeed file. Inferred if not given.
    deepspeed_version : str
        The release the files are read by.
    client_optimizer : str, optional
        Class of the optimizer that the script makes itself.
    args : str or sequence of str, optional
        Trainer flags that the files are used with, as typed or as a list of words.
    partners : sequence of paths
        Further files of the same run.
    symptom : str, optional
        oom, nan, slow, host-oom or hang: rank its likely causes.
    advice : bool
        Whether to look for better plans.
    **fields
        Further fields of :class:`planner.spec.JobSpec`, such as ``seq_len``.

    Returns
    -------
    Report
        One report per file, in the order given.

    Raises
    ------
    TypeError
        If an argument is none of these.
    ValueError
        If an option is wrong; one line. An unreadable file is reported, not raised.
    """
    options = options_of(
        context=context,
        deepspeed_version=deepspeed_version,
        client_optimizer=client_optimizer,
        args=args,
        partners=partners,
        symptom=symptom,
        advice=advice,
        model=model,
        gpus=gpus,
        **fields,
    )
    cluster = cluster_of(gpus, options.fields) if gpus else None
    if model:
        hidden_size_of(model)
    return Report(files=tuple(report_on(path, options, cluster) for path in expand(files)))


def options_of(
    *,
    context: str | None = None,
    deepspeed_version: str = VERSION,
    client_optimizer: str | None = None,
    args: str | Sequence[str] | None = None,
    partners: Sequence[str | Path] = (),
    symptom: str | None = None,
    advice: bool = True,
    model: str | None = None,
    gpus: str | None = None,
    **fields: Any,
) -> Options:
    """Options checked, the partner files read."""
    return Options(
        context=check_framework(context) if context is not None else None,
        deepspeed_version=_version(deepspeed_version),
        client_optimizer=client_optimizer,
        arguments=read_arguments(typed_arguments(args)) if args else None,
        partners=tuple(read_file(Path(p), follow=False).document for p in partners),
        symptom=_symptom(symptom),
        advice=advice,
        model=model,
        gpus=gpus,
        fields=checked_fields(fields),
    )


def _version(text: str) -> str:
    version_tuple(text)
    return text


def _symptom(name: str | None) -> str | None:
    from planner.advisor.symptoms import SYMPTOMS

    if name is not None and name not in SYMPTOMS:
        raise ValueError(f"symptom {name!r}: expected one of {', '.join(SYMPTOMS)}")
    return name


def report_on(path: Path, options: Options, cluster: Cluster | None) -> FileReport:
    """The report of one file."""
    try:
        reading = read_file(path)
    except Unreadable as error:
        return FileReport(file=str(path), level="unreadable", error=str(error))
    said: tuple[str, ...] = ()
    if cluster is None:
        options, said = with_gpus(reading, options)
        try:
            cluster = cluster_of(options.gpus, options.fields) if options.gpus else None
        except ValueError as error:
            said = (f"no verdict: {error}",)
    ctx = context_of(reading, options, cluster)
    findings = all_findings(reading, ctx)
    findings = order((*findings, *missing_files(reading, ctx)))
    settings = settings_of(reading, ctx)
    notes = [f"{name} is named but was not read" for name in reading.missing]
    notes += (*reading.notes, *said)
    extra: tuple[Finding, ...] = ()
    judged: Judgement | None = None
    better: tuple[Advice, ...] = ()
    if cluster is not None:
        from planner.advisor.verdict import verdict_of

        judged, better, extra, more = verdict_of(reading, ctx, settings, options, cluster, findings)
        notes += more
    findings = order((*findings, *extra))
    return FileReport(
        file=str(path),
        kind=reading.document.kind,
        context=ctx.framework,
        context_inferred=ctx.inferred,
        deepspeed_version=ctx.deepspeed_version,
        level=worst(findings) or "ok",
        findings=findings,
        filled=filled_autos(reading, ctx),
        settings=dict(settings.values),
        unknown=settings.unknown,
        assumed=tuple(settings.assumed),
        judgement=judged,
        advice=better,
        causes=_causes(options.symptom, reading, ctx, settings, judged, findings),
        notes=tuple(notes),
    )


def _causes(
    symptom: str | None,
    reading: Reading,
    ctx: Context,
    settings: Settings,
    judged: Judgement | None,
    findings: tuple[Finding, ...],
) -> tuple[Cause, ...]:
    if symptom is None:
        return ()
    from planner.advisor.symptom_case import Case
    from planner.advisor.symptoms import causes

    return causes(symptom, Case(reading.document, ctx, settings, judged, findings))


def cluster_of(gpus: str, fields: Mapping[str, Any]) -> Cluster:
    from hardware_db import parse_gpus

    return parse_gpus(gpus, extra=fields.get("hardware"))


def all_findings(reading: Reading, ctx: Context) -> tuple[Finding, ...]:
    """Findings of a file and of the partner files it names."""
    found = list(lint(reading.document, ctx))
    if reading.launch is not None:
        found += lint(line_of(reading.launch), ctx)
    own = {p.name for p in reading.partners}
    for partner in ctx.partners:
        if partner.name in own and partner.kind in ("deepspeed", "accelerate"):
            others = tuple(p for p in ctx.partners if p is not partner)
            beside = replace(ctx, partners=(*others, reading.document))
            found += lint(partner, beside)
    typed = ctx.trainer
    if typed is not None and typed.name == "--args" and reading.document.kind != "trainer":
        found += apply_rules(hf_value_rules.RULES, Facts(typed, ctx), typed)
    unique = {(f.id, f.file, f.key, f.effect): f for f in found}
    return order(unique.values())


def filled_autos(reading: Reading, ctx: Context) -> tuple[FilledAuto, ...]:
    """What each ``auto`` becomes, in the file and in the DeepSpeed file beside it."""
    docs = [d for d in (reading.document, *ctx.partners) if d.kind == "deepspeed"]
    return tuple(
        FilledAuto(file=doc.name, key=dotted(f.path), value=f.value, by=f.by)
        for doc in docs
        for f in DeepSpeedFacts(doc, ctx).autos
    )
