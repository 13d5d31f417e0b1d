"""What does not fit the schema, in one line: all that is missing, then what is wrong."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_SHOWN = 3  # wrong values spelled out; missing fields are all named


def one_line(error: ValidationError, raw: Any) -> str:
    """Every missing field by entry, and the first few wrong values.

    Parameters
    ----------
    error : ValidationError
        Of a user's file.
    raw : object
        What the file holds, for the ids of its entries.
    """
    missing: dict[str, list[str]] = {}
    wrong: list[str] = []
    for found in error.errors():
        entry, field = _where(found["loc"], raw)
        if found["type"] == "missing":
            missing.setdefault(entry, []).append(field)
        else:
            at = ".".join(filter(None, (entry, field))) or "file"
            wrong.append(f"{at}: {_text(found)}")
    parts = [f"{entry or 'file'}: missing {', '.join(names)}" for entry, names in missing.items()]
    parts += wrong[:_SHOWN]
    more = f" (and {len(wrong) - _SHOWN} more)" if len(wrong) > _SHOWN else ""
    return "; ".join(parts) + more


def _where(loc: tuple[int | str, ...], raw: Any) -> tuple[str, str]:
    """("gpus[0] z9", "memory.unit") of ("gpus", 0, "memory", "unit")."""
    if len(loc) < 2:
        return "", ".".join(map(str, loc))
    kind, number, *field = loc
    if not isinstance(number, int):
        return "", ".".join(map(str, loc))
    entry = raw[kind][number]
    identifier = entry.get("id", "") if isinstance(entry, dict) else ""
    return f"{kind}[{number}] {identifier}".strip(), ".".join(map(str, field))


def _text(found: ErrorDetails) -> str:
    value = found["input"]
    if found["type"] == "model_type" and len(found["loc"]) > 2 and isinstance(value, int | float):
        return f"write it as {{value: {value}, unit: ..., kind: ..., source: ...}}"
    if found["type"] == "extra_forbidden":
        return "unknown field"
    return " ".join(found["msg"].removeprefix("Value error, ").split())
