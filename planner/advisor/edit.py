"""Edits of a user's file: the rest of the text stays as it is."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable
from io import StringIO
from typing import Any

from planner.lint.document import Document, Path, Value, lookup
from planner.lint.finding import Edit


def apply_edits(doc: Document, edits: Iterable[Edit]) -> str:
    """The file's text with the edits made.

    YAML keeps comments, order and quotes; JSON keeps order, layout and the
    spelling of numbers (not its comments); an argument list changes only where
    its flags stand.

    Raises
    ------
    ValueError
        If an edit has no place in the file; one line.
    """
    wanted = _unique(edits)
    if doc.format == "arguments":
        return _arguments(doc, wanted)
    if doc.format == "yaml":
        return _yaml(doc, wanted)
    data = _plain(doc.data)
    for edit in wanted:
        edit_mapping(data, edit, dict)
    if keeps_layout(doc):
        text = _in_place(doc.text, wanted)
        if text is not None and _reads_as(text, data):
            return text
    return json.dumps(data, indent=_indent(doc.text), ensure_ascii=False) + "\n"


def keeps_layout(doc: Document) -> bool:
    """Whether a file's own layout outlives an edit: not with comments or repeated keys in JSON."""
    return doc.format != "json" or (bool(doc.text) and not doc.flaws)


def _in_place(text: str, edits: list[Edit]) -> str | None:
    from planner.advisor.json_text import edit_text

    try:
        for edit in edits:
            text = edit_text(text, edit)
    except ValueError:
        return None
    return text


def _reads_as(text: str, data: Value) -> bool:
    from planner.advisor.read_json import read_json

    try:
        return bool(_plain(read_json(text, "text")[0]) == data)
    except ValueError:
        return False


def _unique(edits: Iterable[Edit]) -> list[Edit]:
    out: list[Edit] = []
    for edit in edits:
        if edit not in out:
            out.append(edit)
    return out


def _plain(data: Value) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(value) for value in data]
    if isinstance(data, float) and data.is_integer() and abs(data) < 1e15:
        return int(data)
    return data


def _indent(text: str) -> int | str:
    match = re.search(r"\n([ \t]+)\"", text)
    if not match:
        return 2
    return "\t" if "\t" in match.group(1) else len(match.group(1))


def edit_mapping(data: Any, edit: Edit, make: Callable[[], Any]) -> None:
    """Make one edit in nested mappings; ``make`` builds a section that is not there.

    >>> data = {"a": {"b": 1}}
    >>> edit_mapping(data, Edit(action="move", path=("a", "b"), move_to=("c", "b")), dict)
    >>> data
    {'a': {}, 'c': {'b': 1}}
    """
    if edit.action == "set":
        _set(data, edit.path, edit.value, make)
    elif edit.action == "remove":
        _take(data, edit.path)
    elif edit.move_to is not None:
        parent = lookup(data, edit.path[:-1])
        if isinstance(parent, dict) and edit.path[-1] in parent:
            if edit.path[:-1] == edit.move_to[:-1] and edit.move_to[-1] not in parent:
                _rename(parent, str(edit.path[-1]), str(edit.move_to[-1]))
                return
            value = _take(data, edit.path)
            if lookup(data, edit.move_to) is None:
                _set(data, edit.move_to, value, make)


def _set(data: Any, path: Path, value: Value, make: Callable[[], Any]) -> None:
    for part in path[:-1]:
        inner = data.get(part) if isinstance(data, dict) else None
        if not isinstance(inner, dict):
            inner = make()
            data[part] = inner
        data = inner
    data[path[-1]] = value


def _take(data: Any, path: Path) -> Value:
    parent = lookup(data, path[:-1])
    return parent.pop(path[-1], None) if isinstance(parent, dict) else None


def _rename(parent: Any, old: str, new: str) -> None:
    """Another name for a key, at the same place in the order."""
    if hasattr(parent, "insert") and hasattr(parent, "ca"):  # a ruamel mapping keeps its comments
        index = list(parent).index(old)
        comment = parent.ca.items.pop(old, None)
        parent.insert(index, new, parent.pop(old))
        if comment is not None:
            parent.ca.items[new] = comment
        return
    items = [(new if key == old else key, value) for key, value in parent.items()]
    parent.clear()
    parent.update(items)


def _yaml(doc: Document, edits: list[Edit]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.allow_duplicate_keys = True
    match = re.search(r"^( *)- ", doc.text, re.MULTILINE)
    if match and match.group(1):
        yaml.indent(mapping=2, sequence=len(match.group(1)) + 2, offset=len(match.group(1)))
    out = StringIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # anchors used twice, which YAML allows
            data = yaml.load(doc.text)
            for edit in edits:
                edit_mapping(data, edit, CommentedMap)
            yaml.dump(data, out)
    except Exception as error:  # ruamel raises errors of every kind on odd scalars
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{doc.name}: cannot be edited: {reason}") from None
    return out.getvalue()


# --- argument lists ---


def flag_pattern(flag: str) -> re.Pattern[str]:
    """A flag as a word of its own, outside comments.

    >>> bool(flag_pattern("--bf16").search("run --bf16 x")), flag_pattern("--bf").search("--bf16")
    (True, None)
    """
    return re.compile(rf"(?<![\w-]){re.escape(flag)}(?![\w-])")


def locate(text: str, flag: str, line: int | None = None) -> re.Match[str] | None:
    """Where a flag stands in a script; the occurrence on ``line`` if there are several."""
    found = []
    for match in flag_pattern(flag).finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        if "#" not in re.sub(r"\"[^\"]*\"|'[^']*'", "", text[start : match.start()]):
            found.append(match)
    if not found:
        return None
    same = [m for m in found if text.count("\n", 0, m.start()) + 1 == line]
    return (same or found)[-1]


_VALUE = r"""(?:"[^"]*"|'[^']*'|(?:\$\([^)]*\)|\$\{[^}]*\}|[^\s"'\\;&|)])+)"""
_REST = re.compile(rf"(?:=|[ \t]+(?!-[A-Za-z-]))({_VALUE})")


def _arguments(doc: Document, edits: list[Edit]) -> str:
    text = doc.text
    for edit in edits:
        name = str(edit.path[0])
        flag = doc.spelling.get(name) or _spell(doc, name)
        place = doc.places.get((name,))
        match = locate(text, flag, place.line if place else None)
        if edit.action == "remove":
            text = _cut(text, match)
        elif match is not None:
            text = _replace(text, match, edit.value)
        else:
            text = _insert(doc, text, flag, edit.value)
    return text


def _spell(doc: Document, name: str) -> str:
    """A new flag in the style of the others."""
    dashed = sum("-" in s.lstrip("-") for s in doc.spelling.values())
    under = sum("_" in s for s in doc.spelling.values())
    dashes = doc.kind == "megatron" or dashed > under
    return f"--{name.replace('_', '-') if dashes else name}"


def _show(value: Value) -> str:
    if isinstance(value, list):
        return " ".join(map(_show, value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _replace(text: str, match: re.Match[str], value: Value) -> str:
    rest = _REST.match(text, match.end())
    if value is True and rest is None:
        return text
    if rest is None:
        return f"{text[: match.end()]} {_show(value)}{text[match.end() :]}"
    return text[: rest.start(1)] + _show(value) + text[rest.end(1) :]


def _cut(text: str, match: re.Match[str] | None) -> str:
    """A flag and its value taken out, with its line if nothing else stands there."""
    if match is None:
        return text
    end = match.end()
    rest = _REST.match(text, end)
    end = rest.end() if rest is not None else end
    start = match.start()
    line_start = text.rfind("\n", 0, start) + 1
    alone = re.compile(r"[ \t]*\\?\n").match(text, end)
    if text[line_start:start].strip() == "" and alone is not None and line_start:
        return text[:line_start] + text[alone.end() :]
    gap = re.compile(r"[ \t]*").match(text, end)
    assert gap is not None
    return text[:start].rstrip(" \t") + (" " if gap.end() > end else "") + text[gap.end() :]


def _insert(doc: Document, text: str, flag: str, value: Value) -> str:
    """A new flag before the first one of the list."""
    addition = flag if value is True else f"{flag} {_show(value)}"
    for known in doc.spelling.values():
        match = locate(text, known)
        if match is not None:
            return f"{text[: match.start()]}{addition} {text[match.start() :]}"
    raise ValueError(f"{doc.name}: no flag to put {addition} beside")
