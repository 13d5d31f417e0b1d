"""Every key of a DeepSpeed file beside its row of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.deepspeed_facts import DeepSpeedFacts
from planner.lint.deepspeed_keys import SECTIONS, canonical
from planner.lint.deepspeed_schema import Key, Section, version_tuple
from planner.lint.document import Path, Value

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


def is_strict(facts: DeepSpeedFacts, section: Section) -> bool:
    return section.strict and facts.version >= version_tuple(section.strict_since)
