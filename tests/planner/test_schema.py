"""The published JSON Schema is that of the models, and results keep to it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from planner import solve
from planner.plan import Result

SCHEMA = Path(__file__).parents[2] / "docs" / "result.schema.json"


def test_the_published_schema_is_current() -> None:
    """Regenerate with ``python -m tests.planner.test_schema``."""
    assert json.loads(SCHEMA.read_text()) == Result.model_json_schema()


def test_results_keep_to_the_schema() -> None:
    schema = json.loads(SCHEMA.read_text())
    for fields in (
        {"model": "gpt3-1.3b", "gpus": "8xA100-80G"},
        {"model": "70b", "gpus": "1xRTX4090", "forbid": "offload_optimizer"},
    ):
        result = solve(fields)
        jsonschema.validate(json.loads(result.model_dump_json()), schema)


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(Result.model_json_schema(), indent=2) + "\n")
