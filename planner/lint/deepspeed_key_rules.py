"""Rules that follow from the key tables: unknown, removed, renamed, mistyped, out of range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.deepspeed_facts import AUTO, BATCH_KEYS, TRAINER_DEFAULTS, DeepSpeedFacts
from planner.lint.deepspeed_keys import (
    PIPELINE_DEGREE_KEYS,
    REMOVED,
    SECTIONS,
    TENSOR_DEGREE_KEYS,
    Key,
    Section,
    canonical,
    version_tuple,
)
from planner.lint.document import Path, Value, as_bool, as_int, as_number, dotted
from planner.lint.finding import Edit
from planner.lint.names import nearest
from planner.lint.rule import Hit, Rule, move_key, remove_key, set_key, short

_OUTER = frozenset((*PIPELINE_DEGREE_KEYS, *TENSOR_DEGREE_KEYS))
_ARTICLES = {
    "int": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "text": "text",
    "list": "a list",
    "map": "a mapping",
}

Entry = tuple[Path, str, Value, Key | None, Section]


def entries(facts: DeepSpeedFacts) -> Iterator[Entry]:
    """Every key of the sections the tables describe: path, name, value, its row, its section."""
    for where, section in SECTIONS.items():
        found = facts.doc.get(*where) if where else facts.doc.data
        if not isinstance(found, Mapping):
            continue
        for name, value in found.items():
            known = canonical(where, str(name))
            key = section.keys[known] if known is not None else None
            yield (*where, str(name)), str(name), value, key, section


def _strict(facts: DeepSpeedFacts, section: Section) -> bool:
    return section.strict and facts.version >= version_tuple(section.strict_since)


def _unknown(facts: DeepSpeedFacts, strict: bool) -> Iterator[Hit]:
    for path, name, value, key, section in entries(facts):
        if key is not None or path in REMOVED or _strict(facts, section) is not strict:
            continue
        if len(path) == 1 and (name in _OUTER or name.startswith(("_", "//"))):
            continue  # another program's key, or a comment
        if not strict and len(path) > 1 and not section.keys:
            continue
        suggestion, patch = _meant(path, name, value)
        yield Hit(path, {"name": name, "where": _where(path), "meant": suggestion}, patch)


def _where(path: Path) -> str:
    return dotted(path[:-1]) if len(path) > 1 else "the top level"


def _meant(path: Path, name: str, value: Value) -> tuple[str, tuple[Edit, ...]]:
    """What an unknown key was meant to be, and the edit that says so."""
    here = tuple(str(part) for part in path[:-1])
    table = SECTIONS[here].keys
    own = {n for known, key in table.items() for n in (known, key.alias) if n}
    bare = name.removeprefix("stage3_")
    if bare in own:
        return f"write {bare}", (move_key(path, (*here, bare)),)
    for section, other in SECTIONS.items():
        if section != here and canonical(section, name) is not None and name in other.keys:
            target = (*section, name)
            return f"it belongs in {_where(target)}", (move_key(path, target),)
    close = nearest(name, own)
    if close is None:
        return "take it out", (remove_key(*path),)
    known = canonical(here, close)
    assert known is not None
    if table[known].replaced_by:
        return f"write {table[known].replaced_by}", renamed(path, known, value)
    return f"write {close}", (move_key(path, (*here, close)),)


def renamed(path: Path, known: str, value: Value) -> tuple[Edit, ...]:
    """Edits from a name kept for old files to today's."""
    here = path[:-1]
    if known in ("cpu_offload", "cpu_offload_param"):
        target = "offload_optimizer" if known == "cpu_offload" else "offload_param"
        on = (set_key(*here, target, value={"device": "cpu"}),) if as_bool(value) else ()
        return (remove_key(*path), *on)
    if known == "cpu_offload_use_pin_memory":
        return (remove_key(*path),)
    new = SECTIONS[tuple(str(p) for p in here)].keys[known].replaced_by
    return (move_key(path, (*here, new)),)


def unknown_strict(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Unknown keys where DeepSpeed refuses them."""
    return _unknown(facts, strict=True)


def unknown_ignored(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Unknown keys that DeepSpeed passes over."""
    return _unknown(facts, strict=False)


def removed_keys(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Keys of features that are gone."""
    for path, (last, instead) in REMOVED.items():
        if facts.doc.has(*path) and facts.version > version_tuple(last):
            values = {"last": last, "instead": instead, "name": path[-1]}
            yield Hit(path, values, (remove_key(*path),))


def renamed_keys(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Names kept only for old files."""
    for path, name, value, key, section in entries(facts):
        if key is not None and key.replaced_by and facts.version >= (0, 8, 0):
            known = canonical(path[:-1], name)  # type: ignore[arg-type]
            assert known is not None
            ignored = not section.strict and name == "thread_count"
            if ignored and as_int(value) == 1:
                continue
            values = {"name": name, "new": key.replaced_by}
            yield Hit(path, values, renamed(path, known, value))


def too_new(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Keys the stated release does not know yet."""
    for path, name, _, key, section in entries(facts):
        if key is not None and version_tuple(key.since) > facts.version:
            refuses = _strict(facts, section)
            values = {
                "name": name,
                "since": key.since,
                "version": facts.ctx.deepspeed_version,
                "what": "refuses" if refuses else "ignores",
            }
            yield Hit(path, values, (remove_key(*path),), "error" if refuses else "warning")


def mistyped(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Values of the wrong kind."""
    for path, name, value, key, section in entries(facts):
        if key is None or key.kind == "any" or value == AUTO:
            continue
        if len(path) == 1 and name == "zero_optimization" and isinstance(value, bool):
            continue
        if fits(value, key, lax=_strict(facts, section)):
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
    if isinstance(value, str) and not lax:
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


def zero_as_switch(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """``zero_optimization: true``, the form of 2020."""
    value = facts.doc.get("zero_optimization")
    if isinstance(value, bool):
        yield Hit(
            ("zero_optimization",),
            {"stage": int(value)},
            (set_key("zero_optimization", value={"stage": int(value)}),),
        )


_CONFIG = "DeepSpeed 0.19.8, deepspeed/runtime/config.py"
_UTILS = "DeepSpeed 0.19.8, deepspeed/runtime/config_utils.py"
_ZEROPY = "DeepSpeed 0.19.8, deepspeed/runtime/zero/config.py"


def unfilled(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """``auto`` where nobody replaces it, in a section that then takes its default."""
    for filled in facts.autos:
        name = str(filled.path[-1])
        where = tuple(str(p) for p in filled.path[:-1])
        section = SECTIONS.get(where)
        if filled.by != "DeepSpeed's default" or filled.value == AUTO or section is None:
            continue
        known = canonical(where, name)
        if known is None or filled.path[:-1] == ("zero_optimization", "zenflow"):
            continue
        if known in ("prefetch_bucket_size", "param_persistence_threshold") and facts.stage < 3:
            continue
        harmful = name == "enabled" or name == "stage" or name == "device"
        yield Hit(
            filled.path,
            {"name": name, "value": filled.value},
            (set_key(*filled.path, value=filled.value),) if filled.value is not None else (),
            "warning" if harmful else "info",
        )


def auto_as_value(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """``auto`` that reaches DeepSpeed, or an optimizer, as the word itself."""
    for filled in facts.autos:
        if filled.by != "DeepSpeed's default" or filled.value != AUTO:
            continue
        name = str(filled.path[-1])
        if name in BATCH_KEYS and facts.ctx.framework == "accelerate":
            continue
        if filled.path[0] in ("expert_parallel", "pipeline", "data_types", "autotuning"):
            continue
        if len(filled.path) == 1 and canonical((), name) is None:
            continue
        yield Hit(filled.path, {"name": name}, _written_out(filled.path))


# What stands in for an auto that nobody fills: one sample, one step, the trainer's defaults.
_STAND_INS: Mapping[str, Value] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": TRAINER_DEFAULTS["max_grad_norm"],
    "lr": TRAINER_DEFAULTS["learning_rate"],
    "betas": [TRAINER_DEFAULTS["adam_beta1"], TRAINER_DEFAULTS["adam_beta2"]],
    "eps": TRAINER_DEFAULTS["adam_epsilon"],
    "weight_decay": TRAINER_DEFAULTS["weight_decay"],
    "warmup_min_lr": 0,
    "warmup_max_lr": TRAINER_DEFAULTS["learning_rate"],
    "warmup_num_steps": 1,
}


def _written_out(path: Path) -> tuple[Edit, ...]:
    name = str(path[-1])
    if path == ("train_batch_size",):
        return (remove_key(*path),)
    return (set_key(*path, value=_STAND_INS[name]),) if name in _STAND_INS else ()


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-duplicate-key",
        "error",
        "{name} appears a second time on line {line}; DeepSpeed's reader refuses the file, others"
        " keep only the last",
        "merge the two into one (the patch keeps the last)",
        f"{_UTILS} (dict_raise_error_on_duplicate_keys)",
        lambda facts: reader_flaws(facts, "duplicate-key"),
    ),
    Rule(
        "ds-json-extension",
        "error",
        "{what} on line {line}: DeepSpeed reads it (hjson), the json module that Hugging Face uses"
        " does not",
        "take it out",
        f"{_CONFIG} (hjson.load); accelerate 1.15.0, utils/deepspeed.py (json.load)",
        extensions,
    ),
    Rule(
        "ds-unknown-key",
        "error",
        "{name} is no key of {where}: DeepSpeed refuses the file",
        "{meant}",
        f"{_UTILS} (DeepSpeedConfigModel, extra=forbid)",
        unknown_strict,
    ),
    Rule(
        "ds-ignored-key",
        "warning",
        "{name} is no key of {where}: DeepSpeed ignores it without a word",
        "{meant}",
        f"{_CONFIG} (keys are looked up by name; others are never read)",
        unknown_ignored,
    ),
    Rule(
        "ds-removed-key",
        "error",
        "{name} was removed after {last}; DeepSpeed stops when it finds it",
        "take it out; use {instead}",
        f"{_CONFIG} (_REMOVED_TOP_LEVEL_CONFIG_KEYS, _REMOVED_ZERO_CONFIG_KEYS)",
        removed_keys,
    ),
    Rule(
        "ds-renamed-key",
        "warning",
        "{name} is an old name, kept with a deprecation warning or no longer read",
        "write {new}",
        _ZEROPY,
        renamed_keys,
    ),
    Rule(
        "ds-key-too-new",
        "error",
        "{name} came with {since}; DeepSpeed {version} {what} it",
        "take it out, or install DeepSpeed {since} or later",
        f"{_ZEROPY}, compared over its releases",
        too_new,
    ),
    Rule(
        "ds-wrong-type",
        "error",
        "{name} is {value}; expected {kind}",
        "write {kind}",
        f"{_CONFIG}; {_UTILS}",
        mistyped,
    ),
    Rule(
        "ds-out-of-range",
        "error",
        "{name} is {value}; accepted: {accepted}",
        "write {accepted}",
        f"{_ZEROPY} (Field bounds)",
        out_of_range,
    ),
    Rule(
        "ds-bad-choice",
        "error",
        "{name} is {value!r}; accepted: {choices}",
        "write one of {choices}",
        f"{_ZEROPY}; {_CONFIG}",
        bad_choice,
    ),
    Rule(
        "ds-zero-as-switch",
        "warning",
        "the section is a switch, a form kept with a deprecation warning; it means stage {stage}",
        "write a section with the stage",
        f"{_ZEROPY} (read_zero_config_deprecated)",
        zero_as_switch,
    ),
    Rule(
        "ds-auto-default",
        "info",
        "auto is not filled by anyone here; DeepSpeed drops it and {name} becomes {value}",
        "write the value",
        f"{_UTILS} (DeepSpeedConfigModel.__init__)",
        unfilled,
    ),
    Rule(
        "ds-auto-value",
        "error",
        "auto is not filled by anyone here; {name} stays the word itself and fails as a number",
        "write the value",
        f"{_CONFIG}; transformers 5.24.0, integrations/deepspeed.py",
        auto_as_value,
    ),
)
