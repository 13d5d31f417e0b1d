"""A report as Markdown, for a pull request."""

from __future__ import annotations

from planner.advisor.formats_text import GIB, MOST_INFO, cut, duration, patch_lines, summary
from planner.advisor.judgement import Judgement
from planner.advisor.report import FileReport, Report

_ICONS = {"error": "❌", "warning": "⚠️", "info": "ℹ️"}


def markdown(report: Report) -> str:
    """A summary for a pull request."""
    out = ["### planner advise", "", summary(report), ""]
    for one in report.files:
        out += _markdown_file(one)
    return "\n".join(out).rstrip() + "\n"


def _markdown_file(one: FileReport) -> list[str]:
    name = _cell(one.file)
    if one.error:
        return [f"#### `{name}`", "", f"❌ {_cell(one.error)}", ""]
    out = [f"#### `{name}` ({one.kind}, context {one.context})", ""]
    if one.findings:
        out += ["| | place | what | fix |", "|---|---|---|---|"]
        infos = 0
        for finding in one.findings:
            infos += finding.severity == "info"
            if finding.severity == "info" and infos > MOST_INFO:
                continue
            place = f"{finding.line}" if finding.line is not None else ""
            key = f"`{_cell(finding.key)}` " if finding.key else ""
            out.append(
                f"| {_ICONS[finding.severity]} | {key}{place} | {_cell(cut(finding.effect))}"
                f" `{finding.id}` | {_cell(finding.fix)} |"
            )
        out.append("")
    else:
        out += ["No findings.", ""]
    if one.judgement is not None:
        out += [*_markdown_judgement(one.judgement), ""]
    for advice in one.advice:
        out.append(f"- **{_cell(advice.title)}**: buys {advice.buys}; costs {advice.costs}")
        out += [f"  - `{_cell(line)}`" for line in patch_lines(advice, one.file)]
    out += [f"{c.rank}. {_cell(c.cause)} (check: {_cell(c.check)})" for c in one.causes]
    return [*out, ""]


def _markdown_judgement(judged: Judgement) -> list[str]:
    rows = [
        f"| GPU memory | {judged.verdict} | {judged.peak_memory_bytes / GIB:.1f} of"
        f" {judged.memory_limit_bytes / GIB:.1f} GiB |"
    ]
    rows += [
        f"| host RAM, {line.what} | {'fits' if line.fits else 'does not fit'} |"
        f" {line.bytes / GIB:.0f} of {line.limit_bytes / GIB:.0f} GiB a node |"
        for line in judged.host
    ]
    if judged.step_time_s is not None:
        rows.append(f"| step | | {duration(judged.step_time_s)} |")
    return ["| | verdict | |", "|---|---|---|", *rows]


def _cell(value: str) -> str:
    """Text that cannot break a table, nor become markup."""
    flat = " ".join(str(value).split())
    return flat.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
