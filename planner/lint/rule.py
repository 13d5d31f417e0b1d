"""The shape of a rule on documents, and how its hits become findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from planner.lint.context import Context
from planner.lint.document import Document, Path, dotted
from planner.lint.finding import SEVERITIES, Edit, Finding, Severity

F = TypeVar("F")  # the facts a rule looks at
WHOLE = 10_000  # characters of a value in a sentence: no limit for what people write
MOST_HITS = 50  # of one rule in one file: a file of another kind would give thousands


@dataclass(frozen=True, slots=True)
class Facts:
    """A document in its context: all that most rules need."""

    doc: Document
    ctx: Context


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a rule applies, with the numbers its sentences name."""

    path: Path = ()
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    patch: tuple[Edit, ...] = ()
    severity: Severity | None = None  # where it differs from the rule's
    document: Document | None = None  # where it is not the one looked at


@dataclass(frozen=True, slots=True)
class Rule(Generic[F]):
    """One rule. ``effect`` and ``fix`` are sentences with {names} that a hit fills in."""

    id: str
    severity: Severity
    effect: str
    fix: str
    source: str
    find: Callable[[F], Iterable[Hit]]


def set_key(*path: str | int, value: object) -> Edit:
    """The edit that gives a key a value."""
    return Edit(action="set", path=path, value=value)


def remove_key(*path: str | int) -> Edit:
    """The edit that takes a key out."""
    return Edit(action="remove", path=path)


def move_key(path: Path, to: Path) -> Edit:
    """The edit that renames a key or moves it to another section."""
    return Edit(action="move", path=path, move_to=to)


def apply_rules(rules: Sequence[Rule[F]], facts: F, document: Document) -> tuple[Finding, ...]:
    """All findings of the rules, worst first, then in file order."""
    found = [
        _finding(rule, hit, hit.document or document)
        for rule in rules
        for hit in islice(rule.find(facts), MOST_HITS)
    ]
    unique = {(f.id, f.file, f.key, f.effect): f for f in found}
    return order(unique.values())


def order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings worst first, then by file and place."""
    return tuple(
        sorted(
            findings,
            key=lambda f: (SEVERITIES.index(f.severity), f.file, f.line or 0, f.column or 0, f.id),
        )
    )


def _finding(rule: Rule[F], hit: Hit, document: Document) -> Finding:
    place = document.where(hit.path)
    values = _Safe(hit.values)
    key = dotted(hit.path)
    if document.format == "arguments" and hit.path:
        # options of accelerate launch stand in the sections of its YAML, under their own names
        name = hit.path[-1 if document.kind in ("accelerate", "launch") else 0]
        key = document.spelling.get(str(name), f"--{name}")
    return Finding(
        id=rule.id,
        severity=hit.severity or rule.severity,
        file=document.name,
        key=key,
        line=place.line if place else None,
        column=place.column if place else None,
        effect=rule.effect.format_map(values),
        fix=rule.fix.format_map(values),
        patch=hit.patch,
        source=rule.source,
    )


class _Safe(dict[str, Any]):
    """Values for a sentence, each on one line; whole, since JSON and SARIF hold all of it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__({k: short(v, WHOLE) for k, v in values.items()})


def short(value: object, limit: int = 60) -> str:
    """A value as one short line.

    >>> short(1260000000), short(5e8), short(True), short(0.9)
    ('1260000000', '5e8', 'true', '0.9')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
