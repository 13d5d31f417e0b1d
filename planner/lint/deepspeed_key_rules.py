"""Keys of a DeepSpeed file that are unknown, removed, renamed or too new."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.deepspeed_entries import entries, is_strict
from planner.lint.deepspeed_facts import DeepSpeedFacts
from planner.lint.deepspeed_keys import SECTIONS, canonical
from planner.lint.deepspeed_schema import FIRST, version_tuple
from planner.lint.deepspeed_sources import CONFIG, UTILS, ZERO_CONFIG
from planner.lint.deepspeed_words import PIPELINE_DEGREE_KEYS, REMOVED, TENSOR_DEGREE_KEYS
from planner.lint.document import Path, Value, as_bool, as_int, dotted
from planner.lint.finding import Edit
from planner.lint.names import nearest
from planner.lint.rule import Hit, Rule, move_key, remove_key, set_key

_OUTER = frozenset((*PIPELINE_DEGREE_KEYS, *TENSOR_DEGREE_KEYS))


def _unknown(facts: DeepSpeedFacts, strict: bool) -> Iterator[Hit]:
    for path, name, value, key, section in entries(facts):
        if key is not None or path in REMOVED or is_strict(facts, section) is not strict:
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
    if facts.version < version_tuple(FIRST):
        return
    for path, name, _, key, section in entries(facts):
        if key is not None and version_tuple(key.since) > facts.version:
            refuses = is_strict(facts, section)
            values = {
                "name": name,
                "since": key.since,
                "version": facts.ctx.deepspeed_version,
                "what": "refuses" if refuses else "ignores",
            }
            yield Hit(path, values, (remove_key(*path),), "error" if refuses else "warning")


def too_old(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A release from before the table of keys begins."""
    if facts.version < version_tuple(FIRST):
        yield Hit((), {"version": facts.ctx.deepspeed_version})


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-version-old",
        "warning",
        "DeepSpeed {version} is older than the table of keys, which begins with "
        f"{FIRST}: which keys it knows cannot be told",
        f"read the file by DeepSpeed {FIRST} or later",
        f"{ZERO_CONFIG}, compared over its releases",
        too_old,
    ),
    Rule(
        "ds-unknown-key",
        "error",
        "{name} is no key of {where}: DeepSpeed refuses the file",
        "{meant}",
        f"{UTILS} (DeepSpeedConfigModel, extra=forbid)",
        unknown_strict,
    ),
    Rule(
        "ds-ignored-key",
        "warning",
        "{name} is no key of {where}: DeepSpeed ignores it without a word",
        "{meant}",
        f"{CONFIG} (keys are looked up by name; others are never read)",
        unknown_ignored,
    ),
    Rule(
        "ds-removed-key",
        "error",
        "{name} was removed after {last}; DeepSpeed stops when it finds it",
        "take it out; use {instead}",
        f"{CONFIG} (_REMOVED_TOP_LEVEL_CONFIG_KEYS, _REMOVED_ZERO_CONFIG_KEYS)",
        removed_keys,
    ),
    Rule(
        "ds-renamed-key",
        "warning",
        "{name} is an old name, kept with a deprecation warning or no longer read",
        "write {new}",
        ZERO_CONFIG,
        renamed_keys,
    ),
    Rule(
        "ds-key-too-new",
        "error",
        "{name} came with {since}; DeepSpeed {version} {what} it",
        "take it out, or install DeepSpeed {since} or later",
        f"{ZERO_CONFIG}, compared over its releases",
        too_new,
    ),
)
