"""A report as text, for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

from planner.advisor.judgement import Judgement
from planner.advisor.report import Advice, FileReport, Report
from planner.lint.finding import Edit, Finding
from planner.lint.rule import short

GIB = 2**30
LONGEST = 400  # characters of a sentence in text and Markdown
MOST_INFO = 12  # in text and Markdown; JSON and SARIF hold all


def text(report: Report) -> str:
    """For a terminal."""
    blocks = ["\n".join(_file_lines(one)) for one in report.files]
    if len(report.files) > 1:
        blocks.append(summary(report))
    return "\n\n".join(blocks)


def summary(report: Report) -> str:
    levels = [_state(one) for one in report.files]
    parts = [
        f"{levels.count(level)} {name}"
        for level, name in (
            ("error", "with errors"),
            ("warning", "with warnings"),
            ("info", "with notes only"),
            ("unfit", _agree(levels.count("unfit"), "does not fit", "do not fit")),
            ("ok", "clean"),
            ("unreadable", "unreadable"),
        )
        if level in levels
    ]
    return f"{len(levels)} {_agree(len(levels), 'file', 'files')}: {', '.join(parts)}"


def _state(one: FileReport) -> str:
    """A file's worst fault: what it says, or that it does not fit."""
    unfit = one.judgement is not None and not one.judgement.fits
    return "unfit" if unfit and one.level != "error" else one.level


def _agree(count: int, single: str, several: str) -> str:
    return single if count == 1 else several


def duration(seconds: float) -> str:
    """A step's time as people say it.

    >>> duration(0.25), duration(12.34), duration(2100), duration(9000)
    ('0.25 s', '12.3 s', '35 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _fact(value: object) -> str:
    """A value as JSON writes it, on one line of text."""
    return json.dumps(value) if isinstance(value, str) else short(value)


def cut(text: str) -> str:
    """A long sentence cut for a terminal; JSON and SARIF hold all of it."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _file_lines(one: FileReport) -> Iterator[str]:
    if one.error:
        yield one.error
        return
    how = "inferred" if one.context_inferred else "given"
    yield f"{one.file}: {one.kind} file, context {one.context} ({how})"
    shown = [f for f in one.findings if f.severity != "info"]
    infos = [f for f in one.findings if f.severity == "info"]
    for finding in (*shown, *infos[:MOST_INFO]):
        yield from _finding_lines(finding, one.file)
    if len(infos) > MOST_INFO:
        yield f"  ... and {len(infos) - MOST_INFO} more notes (--json shows all)"
    if not one.findings:
        yield "  no findings"
    known = [f for f in one.filled if f.value is not None]
    if known:
        filled = ", ".join(f"{f.key} = {_fact(f.value)}" for f in known)
        yield f"  auto becomes: {filled}"
    if one.judgement is not None:
        yield from judgement_lines(one.judgement)
        if one.assumed:
            yield f"  assumed: {'; '.join(one.assumed)}"
    for index, advice in enumerate(one.advice, 1):
        if index == 1:
            yield "  better plans near it, low cost first:"
        yield from _advice_lines(index, advice, one.file)
    for cause in one.causes:
        if cause.rank == 1:
            yield "  likely causes:"
        yield f"    {cause.rank}. {cause.cause}"
        yield f"       check: {cause.check}"
        yield f"       remedy: {cause.remedy}"
    for note in one.notes:
        yield f"  note: {note}"


def _finding_lines(finding: Finding, file: str) -> Iterator[str]:
    place = f":{finding.line}:{finding.column or 1}" if finding.line is not None else ""
    name = finding.file if finding.file != file else ""
    where = f"{name}{place}".lstrip(":")
    key = f" {finding.key}" if finding.key else ""
    yield f"  {finding.severity:<7} {where}{key}: {cut(finding.effect)} [{finding.id}]"
    if finding.fix and finding.severity != "info":
        yield f"          fix: {cut(finding.fix)}"


def judgement_lines(judged: Judgement) -> Iterator[str]:
    low, high = judged.peak_memory_interval_bytes.low, judged.peak_memory_interval_bytes.high
    side = "to spare" if judged.by_bytes >= 0 else "short"
    yield (
        f"  GPU memory: {judged.verdict}: {judged.peak_memory_bytes / GIB:.1f} GiB"
        f" ({low / GIB:.1f} to {high / GIB:.1f}) of {judged.memory_limit_bytes / GIB:.1f},"
        f" {abs(judged.by_bytes) / GIB:.1f} GiB {side}, peak in {judged.peak_phase}"
    )
    parts = sorted(judged.memory.items(), key=lambda item: -item[1])
    yield "    " + ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size > 2**26)
    for line in judged.host:
        word = "fits" if line.fits else "does not fit"
        yield (
            f"  host RAM, {line.what}: {word}: {line.bytes / GIB:.0f} of"
            f" {line.limit_bytes / GIB:.0f} GiB a node"
        )
    if judged.nvme_bytes:
        yield f"  NVMe: {judged.nvme_bytes / GIB:.0f} GiB a node"
    if judged.step_time_s is not None:
        interval = judged.step_time_interval_s
        span = ""
        if interval is not None:
            span = f" ({duration(interval.low)} to {duration(interval.high)})"
        parts_ = ", ".join(f"{p.name} {p.share:.0%}" for p in judged.largest_parts)
        yield f"  step: {duration(judged.step_time_s)}{span}: {parts_}"


def _advice_lines(index: int, advice: Advice, file: str) -> Iterator[str]:
    step = "" if advice.step_time_s is None else f", step {duration(advice.step_time_s)}"
    yield (
        f"    {index}. {advice.title}: {advice.verdict},"
        f" {advice.peak_memory_bytes / GIB:.1f} GiB{step}"
    )
    yield f"       buys {advice.buys}; costs {advice.costs}"
    for line in patch_lines(advice, file):
        yield f"       {line}"


def patch_lines(advice: Advice, file: str) -> list[str]:
    """The patch, a line per change: keys of a file, flags of a script."""
    out = []
    for part in advice.files:
        prefix = "" if part.file == file else f"{part.file}: "
        keyed = part.file.lower().endswith((".json", ".yaml", ".yml", ":deepspeed"))
        for edit in part.edits:
            launch = part.file.endswith(":launch")  # its options take true and false as words
            line = _key_line(edit) if keyed else _flag_line(edit, advice.dashed, launch)
            out.append(prefix + line)
    return out + [f"add {flag}" if flag.startswith("--") else flag for flag in advice.flags]


def _key_line(edit: Edit) -> str:
    key = ".".join(map(str, edit.path))
    return f"{key}: {json.dumps(edit.value)}" if edit.action == "set" else f"{edit.action} {key}"


def _flag_line(edit: Edit, dashed: bool, worded: bool = False) -> str:
    """A change of a flag as it is typed."""
    name = str(edit.path[-1])
    if name == "distributed_type":
        return f"--use_{str(edit.value).lower()}"
    flag = f"--{name.replace('_', '-') if dashed else name}"
    if edit.action != "set":
        return f"remove {flag}"
    value = edit.value if isinstance(edit.value, str) else json.dumps(edit.value)
    return flag if edit.value is True and not worded else f"{flag} {value}"
