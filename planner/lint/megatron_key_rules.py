"""Megatron flags that are misspelt."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.hf_value_rules import CLOSE
from planner.lint.megatron_flags import VA
from planner.lint.names import names, nearest
from planner.lint.rule import Facts, Hit, Rule

_SIGNS = ("no_", "disable_", "use_")  # in front of flags that exist both ways


def misspelt(facts: Facts) -> Iterator[Hit]:
    """Flags close to one of Megatron's, but not it; scripts add flags of their own."""
    known = names("megatron")
    for name in facts.doc.data:
        bare = _bare(str(name))
        if name in known or bare in known:
            continue
        close = nearest(str(name), known, CLOSE)
        if close is None or close in facts.doc.data or bare in close or close in str(name):
            continue
        if bare != _bare(close):
            yield Hit((name,), {"close": close.replace("_", "-")})


def _bare(name: str) -> str:
    for sign in _SIGNS:
        name = name.removeprefix(sign)
    return name


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "mg-misspelt-flag",
        "warning",
        "this is no flag of Megatron; --{close} is meant, perhaps",
        "write --{close}, or leave it if the script reads it",
        VA,
        misspelt,
    ),
)
