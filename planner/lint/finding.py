"""What a rule found: the form in which files, tools and people get it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # worst first


class Edit(BaseModel):
    """One change of a file: set, remove or rename the key at a path.

    ``move_to`` moves the value to another path. For an argument list the path is the flag's name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Literal["set", "remove", "move"]
    path: tuple[str | int, ...]
    value: Any = None
    move_to: tuple[str | int, ...] | None = None


class Finding(BaseModel):
    """One thing a user should know about a file.

    ``severity``: an *error* means that the framework refuses or crashes, or that the hardware
    cannot do it; a *warning* that it is accepted, but a setting is ignored or works against its
    purpose; an *info* names a default or an effect worth knowing. Line and column count from 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    severity: Severity
    file: str
    key: str
    line: int | None = None
    column: int | None = None
    effect: str
    fix: str = ""
    patch: tuple[Edit, ...] = ()
    source: str


def worst(findings: tuple[Finding, ...]) -> Severity | None:
    """The highest severity present.

    >>> worst(()) is None
    True
    """
    for severity in SEVERITIES:
        if any(finding.severity == severity for finding in findings):
            return severity
    return None
