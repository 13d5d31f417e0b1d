"""A report as text, Markdown and SARIF."""

from __future__ import annotations

import json

from planner.advisor.formats_markdown import markdown
from planner.advisor.formats_sarif import sarif
from planner.advisor.formats_text import text
from planner.advisor.report import Report

FORMATS = ("text", "json", "markdown", "sarif")


def render(report: Report, fmt: str) -> str:
    """A report in one of :data:`FORMATS`.

    Raises
    ------
    ValueError
        If the format is not known.
    """
    if fmt == "json":
        return report.model_dump_json(indent=2)
    if fmt == "sarif":
        return json.dumps(sarif(report), indent=2, ensure_ascii=False)
    if fmt == "markdown":
        return markdown(report)
    if fmt == "text":
        return text(report)
    raise ValueError(f"format {fmt!r}: expected one of {', '.join(FORMATS)}")
