"""What YAML itself lets through."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.rule import Facts, Hit, Rule, set_key


def _flaws(facts: Facts, kind: str) -> Iterator[Hit]:
    for flaw in facts.doc.flaws:
        if flaw.kind == kind:
            value = facts.doc.get(*flaw.path)
            once = (set_key(*flaw.path, value=value),) if kind == "duplicate-key" else ()
            yield Hit(flaw.path, {"name": flaw.detail}, once)


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "yaml-duplicate-key",
        "warning",
        "{name} appears twice; PyYAML keeps the last without a word",
        "take one out",
        "PyYAML 6.0, constructor.py (construct_mapping)",
        lambda facts: _flaws(facts, "duplicate-key"),
    ),
    Rule(
        "yaml-cycle",
        "error",
        "alias *{name} stands inside the value it names: the value has no end",
        "write the value out",
        "YAML 1.2.2, section 3.2.1 (a node may contain itself)",
        lambda facts: _flaws(facts, "cycle"),
    ),
    Rule(
        "yaml-second-document",
        "warning",
        "a second document begins here; only the first is read",
        "take it out",
        "PyYAML 6.0, __init__.py (safe_load reads one document)",
        lambda facts: _flaws(facts, "second-document"),
    ),
)
