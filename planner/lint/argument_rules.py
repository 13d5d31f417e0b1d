"""Argument lists of any program: what is said twice, or only a run would tell."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.rule import Facts, Hit, Rule


def repeated(facts: Facts) -> Iterator[Hit]:
    """A flag given twice."""
    for flaw in facts.doc.flaws:
        if flaw.kind == "repeated":
            yield Hit(flaw.path, {"flag": flaw.detail})


# Flags that say where things are, not how training runs.
_NO_MATTER: tuple[str, ...] = (
    "path",
    "file",
    "dir",
    "folder",
    "name",
    "save",
    "load",
    "port",
    "addr",
    "token",
)

_NO_MATTER += ("project", "entity", "id", "data", "dataset", "tokenizer_model", "cache", "rank")


def unresolved(facts: Facts) -> Iterator[Hit]:
    """A value only a run would give."""
    for flaw in facts.doc.flaws:
        name = str(flaw.path[0]) if flaw.path else ""
        if flaw.kind == "unresolved" and not name.endswith(_NO_MATTER):
            yield Hit(flaw.path, {"flag": flaw.detail})


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "args-repeated",
        "warning",
        "{flag} is given more than once; the last one counts",
        "take one out",
        "Python argparse: a later option overwrites an earlier one",
        repeated,
    ),
    Rule(
        "args-unresolved",
        "info",
        "the value of {flag} depends on the environment or a command; it is taken as unknown",
        "give the variable a value in the script, or pass the flag with --args",
        "POSIX shell, parameter expansion and command substitution",
        unresolved,
    ),
)
