"""A report as SARIF, for code scanning."""

from __future__ import annotations

import re
from typing import Any

from planner.advisor.formats_text import judgement_lines
from planner.advisor.report import FileReport, Report
from planner.lint.finding import Finding
from planner.lint.rule import Rule

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}

SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif(report: Report) -> dict[str, Any]:
    """SARIF 2.1.0, for code scanning."""
    from planner import __version__
    from planner.lint.run import all_rules

    used = {f.id for one in report.files for f in one.findings}
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": _described(rule)},
            "help": {"text": f"{_open(rule.fix)}. Source: {rule.source}"},
            "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        }
        for rule in all_rules()
        if rule.id in used
    ]
    known = {rule["id"] for rule in rules}
    rules += [{"id": name, "shortDescription": {"text": name}} for name in sorted(used - known)]
    results = [_result(finding) for one in report.files for finding in one.findings]
    results += [_verdict(one) for one in report.files if one.judgement and not one.judgement.fits]
    broken = [_notification(one) for one in report.files if one.error]
    invocation: dict[str, Any] = {"executionSuccessful": not broken}
    if broken:
        invocation["toolExecutionNotifications"] = broken
    driver = {
        "name": "planner advise",
        "version": __version__,
        "rules": [*rules, {"id": "does-not-fit", "shortDescription": {"text": "does not fit"}}],
    }
    run = {"tool": {"driver": driver}, "results": results, "invocations": [invocation]}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _described(rule: Rule[Any]) -> str:
    """What a rule looks for: the first line of its function, else its sentence left open."""
    said = (rule.find.__doc__ or "").strip().split("\n")[0]
    return said or _open(rule.effect)


def _open(sentence: str) -> str:
    """A sentence of a rule without the values that only a file gives."""
    return re.sub(r"\{[^{}]*\}", "...", sentence)


def _uri(file: str) -> str:
    from urllib.parse import quote

    return quote(file.replace("\\", "/"))


def _location(file: str, line: int | None, column: int | None) -> dict[str, Any]:
    region = {"startLine": line or 1, "startColumn": column or 1}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": region}}


def _result(finding: Finding) -> dict[str, Any]:
    fix = f" Fix: {finding.fix}." if finding.fix else ""
    return {
        "ruleId": finding.id,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.key}: {finding.effect}.{fix}".lstrip(": ")},
        "locations": [_location(finding.file, finding.line, finding.column)],
    }


def _verdict(one: FileReport) -> dict[str, Any]:
    judged = one.judgement
    assert judged is not None
    return {
        "ruleId": "does-not-fit",
        "level": "error",
        "message": {"text": "; ".join(line.strip() for line in judgement_lines(judged))},
        "locations": [_location(one.file, 1, 1)],
    }


def _notification(one: FileReport) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": one.error},
        "locations": [_location(one.file, 1, 1)],
    }
