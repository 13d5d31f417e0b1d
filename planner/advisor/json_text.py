"""Edits of JSON in its own text: untouched numbers, order and layout stay as typed."""

from __future__ import annotations

import json
import re
from typing import Any

from planner.advisor.read_json import Spans, read_spans
from planner.lint.document import Path, Value
from planner.lint.finding import Edit


def edit_text(text: str, edit: Edit) -> str:
    """The text with one edit made.

    Raises
    ------
    ValueError
        If the edit has no place in the text.

    Examples
    --------
    >>> text = '{"a": {"size": 5e8, "b": 1}}'
    >>> edit_text(text, Edit(action="set", path=("a", "b"), value=2))
    '{"a": {"size": 5e8, "b": 2}}'
    >>> edit_text(text, Edit(action="remove", path=("a", "b")))
    '{"a": {"size": 5e8}}'
    >>> edit_text(text, Edit(action="move", path=("a", "size"), move_to=("c", "size")))
    '{"a": {"b": 1}, "c": {"size": 5e8}}'
    """
    spans = read_spans(text)
    if edit.action == "set":
        return _set(text, spans, edit.path, None, edit.value)
    if edit.path not in spans.values:
        return text
    if edit.action == "remove" or edit.move_to is None:
        return _remove(text, spans, edit.path)
    start, end = spans.values[edit.path]
    raw = text[start:end]
    if edit.move_to in spans.values:
        return _remove(text, spans, edit.path)
    if edit.path[:-1] == edit.move_to[:-1]:
        start, end = spans.keys[edit.path]
        return text[:start] + json.dumps(str(edit.move_to[-1])) + text[end:]
    text = _remove(text, spans, edit.path)
    return _set(text, read_spans(text), edit.move_to, raw, None)


def _set(text: str, spans: Spans, path: Path, raw: str | None, value: Value) -> str:
    if path in spans.values:
        start, end = spans.values[path]
        indent = _indent_of(text, spans, path)
        return text[:start] + (raw or _dump(value, text, indent)) + text[end:]
    parent = path[:-1]
    while parent and parent not in spans.values:
        parent = parent[:-1]
    start, end = spans.values[parent]
    if text[start] != "{":
        raise ValueError(f"{'.'.join(map(str, parent))} holds no settings")
    inner: Any = json.loads(raw) if raw is not None and len(path) > len(parent) + 1 else value
    for part in reversed(path[len(parent) + 1 :]):
        inner = {part: inner}
        if raw is not None and inner == {part: json.loads(raw)} and len(path) == len(parent) + 2:
            raw = f"{{{json.dumps(str(part))}: {raw}}}"
    return _insert(text, spans, parent, str(path[len(parent)]), raw, inner)


def _insert(text: str, spans: Spans, parent: Path, key: str, raw: str | None, value: Value) -> str:
    """A new key at the end of a mapping, laid out as the keys before it."""
    start, end = spans.values[parent]
    children = [p for p in spans.keys if p[:-1] == parent and len(p) == len(parent) + 1]
    if not children:
        shown = raw or _dump(value, text, "")
        return f"{text[:start]}{{{json.dumps(key)}: {shown}}}{text[end:]}"
    last = spans.values[children[-1]][1]
    indent = _indent_of(text, spans, children[-1])
    gap = f"\n{indent}" if indent is not None else " "
    shown = raw or _dump(value, text, indent)
    return f"{text[:last]},{gap}{json.dumps(key)}: {shown}{text[last:]}"


def _remove(text: str, spans: Spans, path: Path) -> str:
    """A key taken out with its comma, and its line if it stood alone."""
    start, end = spans.keys[path][0], spans.values[path][1]
    after = re.compile(r"\s*,\s*").match(text, end)
    if after is not None:
        return text[:start] + text[after.end() :]
    before = re.search(r",\s*$", text[:start])
    if before is not None:
        return text[: before.start()] + text[end:]
    return text[:start].rstrip() + text[end:].lstrip()


def _indent_of(text: str, spans: Spans, path: Path) -> str | None:
    """White space before a key that begins its line; None if it shares one."""
    if path not in spans.keys:
        return None
    start = spans.keys[path][0]
    line = text[text.rfind("\n", 0, start) + 1 : start]
    return line if not line.strip() and "\n" in text[:start] else None


def _dump(value: Value, text: str, indent: str | None) -> str:
    """A value as JSON; a section over several lines where its neighbours are."""
    if not isinstance(value, dict) or indent is None or not value:
        return json.dumps(value, ensure_ascii=False)
    match = re.search(r"\n([ \t]+)\"", text)
    step = match.group(1) if match else "  "
    lines = json.dumps(value, indent=step, ensure_ascii=False).split("\n")
    return f"\n{indent}".join(lines)
