"""Values of a DeepSpeed file: of the wrong kind, out of range, or written twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from planner.lint.deepspeed_entries import entries, is_strict
from planner.lint.deepspeed_facts import AUTO, DeepSpeedFacts
from planner.lint.deepspeed_schema import Key
from planner.lint.deepspeed_sources import CONFIG, UTILS, ZERO_CONFIG
from planner.lint.document import Path, Value, as_bool, as_int, as_number
from planner.lint.finding import Edit
from planner.lint.names import nearest
from planner.lint.rule import Hit, Rule, set_key, short

_ARTICLES = {
    "int": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "text": "text",
    "list": "a list",
    "map": "a mapping",
}


_WHOLE = re.compile(r"[+-]?\d{1,30}(\.0*)?")  # text that pydantic takes for a whole number


def mistyped(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Values of the wrong kind."""
    for path, name, value, key, section in entries(facts):
        if key is None or key.kind == "any" or value == AUTO:
            continue
        if len(path) == 1 and name == "zero_optimization" and isinstance(value, bool):
            continue
        if fits(value, key, lax=is_strict(facts, section)):
            if name == "stage" and isinstance(value, str) and facts.ctx.hugging_face:
                values = {"name": name, "value": repr(value), "kind": "a number, as compared"}
                yield Hit(path, values, _retyped(path, value, key), "warning")
            continue
        patch = _retyped(path, value, key)
        values = {"name": name, "value": repr(value), "kind": _ARTICLES[key.kind]}
        soft = not section.strict and key.kind in ("bool", "text", "list")
        yield Hit(path, values, patch, "warning" if soft else "error")


def fits(value: Value, key: Key, lax: bool) -> bool:
    """Whether a value is of a key's kind; ``lax`` is what pydantic coerces.

    >>> fits("8", Key("int"), lax=True), fits("8", Key("int"), lax=False)
    (True, False)
    """
    if value is None:
        return key.kind in ("map", "text", "list") or key.default is None
    if key.kind == "map":
        return isinstance(value, Mapping)
    if key.kind == "list":
        return isinstance(value, list)
    if key.kind == "text":
        return isinstance(value, str)
    if key.kind == "bool":
        return isinstance(value, bool) or (lax and as_bool(value) is not None)
    if isinstance(value, str | bool) and not lax:
        return False
    if isinstance(value, bool):
        return True
    if isinstance(value, str) and key.kind == "int" and not _WHOLE.fullmatch(value.strip()):
        return False
    number = as_int(value) if key.kind == "int" else as_number(value)
    return number is not None


def _retyped(path: Path, value: Value, key: Key) -> tuple[Edit, ...]:
    """The same value in the right kind, where there is one."""
    new: Value = None
    if key.kind == "int":
        new = as_int(value)
    elif key.kind == "number":
        new = as_number(value)
    elif key.kind == "bool":
        new = as_bool(value)
    return (set_key(*path, value=new),) if new is not None else ()


def out_of_range(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Numbers outside what the key accepts."""
    for path, name, value, key, _ in entries(facts):
        number = as_number(value)
        if key is None or number is None or key.kind not in ("int", "number"):
            continue
        low, high = key.low, key.high
        if (low is None or number >= low) and (high is None or number <= high):
            continue
        accepted = f"{short(low)} to {short(high)}" if high is not None else f"{short(low)} or more"
        patch = () if key.default is None else (set_key(*path, value=key.default),)
        yield Hit(path, {"name": name, "value": value, "accepted": accepted}, patch)


def bad_choice(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Words outside a key's list."""
    for path, name, value, key, section in entries(facts):
        if key is None or not key.choices or not isinstance(value, str) or value == AUTO:
            continue
        word = value if section.strict else value.lower()
        if word not in key.choices:
            close = nearest(value.lower(), key.choices, 0.5)
            patch = (set_key(*path, value=close),) if close else ()
            values = {"name": name, "value": value, "choices": ", ".join(key.choices)}
            yield Hit(path, values, patch)


def reader_flaws(facts: DeepSpeedFacts, kind: str) -> Iterator[Hit]:
    """What the file's reader got over."""
    for flaw in facts.doc.flaws:
        if flaw.kind == kind:
            line = flaw.place.line if flaw.place else "?"
            once = set_key(*flaw.path, value=facts.doc.get(*flaw.path))
            yield Hit(flaw.path, {"name": flaw.detail, "line": line}, (once,))


def extensions(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Comments and trailing commas: hjson reads them, Hugging Face's json does not."""
    kinds = {"comment": "a comment", "trailing-comma": "a trailing comma"}
    seen: set[str] = set()
    for flaw in facts.doc.flaws:
        if flaw.kind in kinds and flaw.kind not in seen:
            seen.add(flaw.kind)
            line = flaw.place.line if flaw.place else "?"
            severity = "error" if facts.ctx.hugging_face else "info"
            yield Hit(flaw.path, {"what": kinds[flaw.kind], "line": line}, (), severity)  # type: ignore[arg-type]


def byte_mark(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A byte-order mark, or UTF-16: json.load stops at either, UTF-16 at any reader."""
    for flaw in facts.doc.flaws:
        if flaw.kind == "byte-mark":
            wide = flaw.detail == "utf-16"
            what = "the file is UTF-16" if wide else "the file begins with a byte-order mark"
            severity = "error" if wide or facts.ctx.hugging_face else "info"
            yield Hit((), {"what": what}, (), severity)  # type: ignore[arg-type]


def zero_as_switch(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """``zero_optimization: true``, the form of 2020."""
    value = facts.doc.get("zero_optimization")
    if isinstance(value, bool):
        yield Hit(
            ("zero_optimization",),
            {"stage": int(value)},
            (set_key("zero_optimization", value={"stage": int(value)}),),
        )


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-duplicate-key",
        "error",
        "{name} appears a second time on line {line}; DeepSpeed's reader refuses the file, others"
        " keep only the last",
        "merge the two into one (the patch keeps the last)",
        f"{UTILS} (dict_raise_error_on_duplicate_keys)",
        lambda facts: reader_flaws(facts, "duplicate-key"),
    ),
    Rule(
        "ds-json-extension",
        "error",
        "{what} on line {line}: DeepSpeed reads it (hjson), the json module that Hugging Face uses"
        " does not",
        "take it out",
        f"{CONFIG} (hjson.load); accelerate 1.15.0, utils/deepspeed.py (json.load)",
        extensions,
    ),
    Rule(
        "ds-byte-mark",
        "error",
        "{what}; Hugging Face reads plain UTF-8 (json.load) and stops",
        "save it as UTF-8 without a mark",
        "accelerate 1.15.0, src/accelerate/utils/deepspeed.py (json.load); Python, json",
        byte_mark,
    ),
    Rule(
        "ds-wrong-type",
        "error",
        "{name} is {value}; expected {kind}",
        "write {kind}",
        f"{CONFIG}; {UTILS}",
        mistyped,
    ),
    Rule(
        "ds-out-of-range",
        "error",
        "{name} is {value}; accepted: {accepted}",
        "write {accepted}",
        f"{ZERO_CONFIG} (Field bounds)",
        out_of_range,
    ),
    Rule(
        "ds-bad-choice",
        "error",
        "{name} is {value!r}; accepted: {choices}",
        "write one of {choices}",
        f"{ZERO_CONFIG}; {CONFIG}",
        bad_choice,
    ),
    Rule(
        "ds-zero-as-switch",
        "warning",
        "the section is a switch, a form kept with a deprecation warning; it means stage {stage}",
        "write a section with the stage",
        f"{ZERO_CONFIG} (read_zero_config_deprecated)",
        zero_as_switch,
    ),
)
