"""Text of the emitted files: JSON and YAML by their libraries, shell and Python by templates."""

from __future__ import annotations

import json
import shlex
from functools import cache
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    import jinja2


def dump_json(data: object) -> str:
    """JSON, two spaces deep, in the given order.

    >>> dump_json({"a": 1})
    '{\\n  "a": 1\\n}\\n'
    """
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def dump_yaml(data: object, header: str = "") -> str:
    """Block-style YAML in the given order, after ``header`` as comment lines."""
    lines = "".join(f"# {line}\n" for line in header.splitlines())
    return lines + yaml.safe_dump(data, sort_keys=False, width=100, allow_unicode=True)


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # only what writes scripts pays for it

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("planner.emit"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    return environment


def render(template: str, **values: object) -> str:
    """A template of ``planner/emit/templates``, every value of which must be given."""
    return _environment().get_template(template).render(**values)
