"""YAML with the place of every key, built from parser events: nothing is constructed or run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from planner.advisor.source import DEEPEST, MOST_VALUES, Unreadable
from planner.lint.document import Flaw, Path, Place, Value

_BASE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER = yaml.SafeLoader("")
_TAG = "tag:yaml.org,2002:"
_SCALARS = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str")}


@dataclass(slots=True)
class _Open:
    """A mapping or sequence being read."""

    value: dict[str, Any] | list[Any]
    path: Path
    anchor: str | None
    size: int = 1
    key: str | None = None
    key_place: Place | None = None
    merged: list[Any] = field(default_factory=list)


def _scalar(event: yaml.ScalarEvent) -> Value:
    """A scalar as PyYAML's safe loader reads it; unknown tags stay text."""
    tag = event.tag
    if tag is None or tag == "!":
        tag = str(_RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit))  # type: ignore[no-untyped-call]
    if tag not in _SCALARS:
        return event.value
    try:
        return _RESOLVER.construct_object(yaml.ScalarNode(tag, event.value))
    except (ValueError, yaml.YAMLError, KeyError, IndexError, OverflowError):
        return event.value


class _Reader:
    def __init__(self, name: str, first_line: int) -> None:
        self.name, self.first = name, first_line
        self.places: dict[Path, Place] = {}
        self.flaws: list[Flaw] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.stack: list[_Open] = []
        self.root: Any = None
        self.roots = 0

    def mark(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        assert mark is not None
        return Place(mark.line + self.first, mark.column + 1)

    def fail(self, reason: str, event: yaml.Event) -> Unreadable:
        place = self.mark(event)
        return Unreadable(self.name, reason, place.line, place.column)

    def here(self) -> Path:
        """Path of the value about to be added."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        return (*top.path, top.key if top.key is not None else "")

    def open(self, event: yaml.CollectionStartEvent, value: dict[str, Any] | list[Any]) -> None:
        if len(self.stack) >= DEEPEST:
            raise self.fail(f"nested deeper than {DEEPEST}", event)
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            raise self.fail("a key that is itself a mapping or a list", event)
        path = self.here()
        if not path:
            self.places.setdefault((), self.mark(event))
        self.stack.append(_Open(value, path, event.anchor))
        if event.anchor:
            self.anchors.pop(event.anchor, None)

    def close(self, event: yaml.Event) -> None:
        done = self.stack.pop()
        if isinstance(done.value, dict):
            for source in reversed(done.merged):
                for key, value in source.items():
                    done.value.setdefault(key, value)
        if done.anchor:
            self.anchors[done.anchor] = (done.value, done.size)
        self.add(done.value, done.size, event)

    def add(self, value: Value, size: int, event: yaml.Event) -> None:
        """Put a finished value into the collection around it."""
        if size > MOST_VALUES:
            raise self.fail(f"more than {MOST_VALUES} values once aliases are written out", event)
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        top.size += size
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            self.new_key(top, value, event)
        elif top.key == "<<" and isinstance(value, dict | list):
            items = value if isinstance(value, list) else [value]
            top.merged += [item for item in items if isinstance(item, dict)]
            top.key = None
        else:
            top.value[top.key] = value
            top.key = None

    def new_key(self, top: _Open, value: Value, event: yaml.Event) -> None:
        assert isinstance(top.value, dict)
        if isinstance(value, dict | list):
            raise self.fail("a key that is itself a mapping or a list", event)
        key = str(value)
        place, path = self.mark(event), (*top.path, key)
        if key in top.value:
            self.flaws.append(Flaw("duplicate-key", path, place, key))
        top.key = key
        self.places[path] = place

    def alias(self, event: yaml.AliasEvent) -> None:
        if any(open_.anchor == event.anchor for open_ in self.stack):
            self.flaws.append(Flaw("cycle", self.here(), self.mark(event), str(event.anchor)))
            self.add(None, 1, event)
        elif event.anchor in self.anchors:
            value, size = self.anchors[event.anchor]
            self.add(value, size, event)
        else:
            raise self.fail(f"alias *{event.anchor} without an anchor before it", event)

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.roots += 1
            if self.roots > 1:
                self.flaws.append(Flaw("second-document", (), self.mark(event)))
                raise StopIteration
        elif isinstance(event, yaml.MappingStartEvent):
            self.open(event, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self.open(event, [])
        elif isinstance(event, yaml.CollectionEndEvent):
            self.close(event)
        elif isinstance(event, yaml.AliasEvent):
            self.alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
            if self.stack and isinstance(self.stack[-1].value, list):
                self.places[self.here()] = self.mark(event)
            if event.anchor:
                self.anchors[event.anchor] = (value, 1)
            self.add(value, 1, event)


def read_yaml(
    text: str, name: str, first_line: int = 1
) -> tuple[Any, dict[Path, Place], tuple[Flaw, ...]]:
    """The first document, the place of each key, and what readers would trip over.

    Merge keys are applied; an alias inside its own anchor becomes null with a flaw.

    Raises
    ------
    Unreadable
        If it is not YAML; the message gives line and column.

    Examples
    --------
    >>> value, places, flaws = read_yaml("a: &x {b: 1}\\nc: *x\\n", "x.yaml")
    >>> value, places[("c",)].line
    ({'a': {'b': 1}, 'c': {'b': 1}}, 2)
    """
    reader = _Reader(name, first_line)
    try:
        for event in yaml.parse(text, Loader=_BASE):
            try:
                reader.take(event)
            except StopIteration:
                break
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + first_line if mark is not None else None
        column = mark.column + 1 if mark is not None else None
        reason = " ".join((error.problem or "cannot be read").split())
        raise Unreadable(name, f"not valid YAML: {reason}", line, column) from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())[:120]
        raise Unreadable(name, f"not valid YAML: {reason}") from None
    if reader.roots == 0:
        raise Unreadable(name, "the file is empty", first_line)
    reader.places.setdefault((), Place(first_line, 1))
    return reader.root, reader.places, tuple(reader.flaws)
