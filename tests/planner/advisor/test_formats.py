"""Text, JSON, Markdown and SARIF say the same and cannot be broken by a file's contents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner import advise
from planner.advisor.formats import FORMATS, render
from planner.advisor.report import Report


@pytest.fixture
def report(tmp_path: Path) -> Report:
    bad = tmp_path / "bad|name`.json"
    bad.write_text('{"train_batch_size": 8, "bf16": {"enabled": true},\n "a|b`<script>": 1}')
    clean = tmp_path / "clean.json"
    clean.write_text('{"train_batch_size": 8, "bf16": {"enabled": true}}')
    broken = tmp_path / "broken.json"
    broken.write_text('{"train_batch_size": ')
    return advise([bad, clean, broken])


def test_every_format_renders(report: Report) -> None:
    for fmt in FORMATS:
        assert render(report, fmt)
    with pytest.raises(ValueError, match="expected one of"):
        render(report, "xml")


def test_json_is_the_report(report: Report) -> None:
    assert Report.model_validate_json(render(report, "json")) == report


def test_text_names_place_rule_and_fix(report: Report) -> None:
    text = render(report, "text")
    assert "2:2" in text
    assert "[ds-ignored-key]" in text
    assert "fix: take it out" in text
    assert "3 files: 1 with warnings, 1 clean, 1 unreadable" in text


def test_markdown_cannot_be_broken_out_of(report: Report) -> None:
    lines = render(report, "markdown").splitlines()
    rows = [line for line in lines if line.startswith("| ⚠️")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 5
    assert "<script>" not in "\n".join(lines)


def test_sarif_has_rules_results_and_places(report: Report) -> None:
    log = json.loads(render(report, "sarif"))
    assert log["version"] == "2.1.0"
    run = log["runs"][0]
    results = run["results"]
    assert [r["ruleId"] for r in results] == ["ds-ignored-key"]
    assert results[0]["level"] == "warning"
    region = results[0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 2, "startColumn": 2}
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert {r["ruleId"] for r in results} <= set(rules)
    assert len(rules) == len(set(rules))
    assert not run["invocations"][0]["executionSuccessful"]


def test_sarif_matches_the_schema_of_its_core(report: Report) -> None:
    """Types of the required properties, as SARIF 2.1.0 section 3 has them."""
    import jsonschema

    text = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
    place = {
        "type": "object",
        "required": ["physicalLocation"],
        "properties": {
            "physicalLocation": {
                "type": "object",
                "required": ["artifactLocation", "region"],
                "properties": {
                    "artifactLocation": {"type": "object", "required": ["uri"]},
                    "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
                },
            }
        },
    }
    result = {
        "type": "object",
        "required": ["ruleId", "level", "message", "locations"],
        "properties": {
            "level": {"enum": ["error", "warning", "note", "none"]},
            "message": text,
            "locations": {"type": "array", "items": place},
        },
    }
    schema = {
        "required": ["version", "runs"],
        "properties": {
            "runs": {
                "items": {
                    "required": ["tool", "results"],
                    "properties": {"results": {"items": result}},
                }
            }
        },
    }
    jsonschema.validate(json.loads(render(report, "sarif")), schema)
