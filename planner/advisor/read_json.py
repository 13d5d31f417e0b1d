"""JSON with the place of every key; lenient where DeepSpeed's own reader (hjson) is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from planner.advisor.source import DEEPEST, Unreadable
from planner.lint.document import Flaw, Path, Place, Value

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_WORDS = {"true": True, "false": False, "null": None, "NaN": float("nan")}
_WORDS |= {"Infinity": float("inf"), "-Infinity": float("-inf")}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Reader:
    """One pass over the text. Comments, trailing commas and repeated keys become flaws."""

    def __init__(self, text: str, name: str, first_line: int = 1) -> None:
        self.text, self.name, self.first = text, name, first_line
        self.at = 0
        self.places: dict[Path, Place] = {}
        self.flaws: list[Flaw] = []
        self.starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]

    def place(self, at: int) -> Place:
        from bisect import bisect_right

        line = bisect_right(self.starts, at)
        return Place(line + self.first - 1, at - self.starts[line - 1] + 1)

    def fail(self, reason: str, at: int | None = None) -> Unreadable:
        where = self.place(min(self.at if at is None else at, len(self.text)))
        return Unreadable(self.name, f"not valid JSON: {reason}", where.line, where.column)

    def skip(self) -> None:
        """Whitespace and comments."""
        while True:
            match = _SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at
            start = self.at
            if self.text.startswith(("//", "#"), start):
                end = self.text.find("\n", start)
                self.at = len(self.text) if end < 0 else end
            elif self.text.startswith("/*", start):
                end = self.text.find("*/", start + 2)
                if end < 0:
                    raise self.fail("a comment does not end", start)
                self.at = end + 2
            else:
                return
            self.flaws.append(Flaw("comment", (), self.place(start)))

    def value(self, path: Path) -> Value:
        if len(path) > DEEPEST:
            raise self.fail(f"nested deeper than {DEEPEST}")
        self.skip()
        if self.at >= len(self.text):
            raise self.fail("the file ends early" + self.inside(path))
        char = self.text[self.at]
        if char == "{":
            return self.mapping(path)
        if char == "[":
            return self.sequence(path)
        if char == '"':
            return self.string()
        return self.scalar()

    def inside(self, path: Path) -> str:
        return f", inside {'.'.join(map(str, path))}" if path else ""

    def scalar(self) -> Value:
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        match = _NUMBER.match(self.text, self.at)
        if not match:
            raise self.fail(f"unexpected {self.text[self.at]!r}")
        self.at = match.end()
        text = match.group()
        if len(text) > 400:
            raise self.fail("a number of over 400 digits", match.start())
        return float(text) if set(text) & set(".eE") else int(text)

    def string(self) -> str:
        start, parts = self.at, []
        self.at += 1
        while True:
            match = _PLAIN.match(self.text, self.at)
            assert match is not None
            parts.append(match.group())
            self.at = match.end()
            char = self.text[self.at : self.at + 1]
            if char == '"':
                self.at += 1
                return "".join(parts)
            if char != "\\":
                raise self.fail("a string does not end on its line", start)
            escape = self.text[self.at + 1 : self.at + 2]
            if escape == "u":
                digits = self.text[self.at + 2 : self.at + 6]
                if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                    raise self.fail("a broken \\u escape")
                code, size = _code_point(int(digits, 16), self.text, self.at + 6)
                parts.append(chr(code))
                self.at += size
            elif escape in _ESCAPES:
                parts.append(_ESCAPES[escape])
                self.at += 2
            else:
                raise self.fail(f"unknown escape \\{escape}")

    def mapping(self, path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        self.at += 1
        self.skip()
        while not self.text.startswith("}", self.at):
            if self.at >= len(self.text):
                raise self.fail("the file ends early" + self.inside(path))
            if self.text[self.at] != '"':
                raise self.fail(f"expected a key in double quotes, got {self.text[self.at]!r}")
            start = self.at
            key = self.string()
            here = (*path, key)
            self.keyed(here, start)
            if key in out:
                self.flaws.append(Flaw("duplicate-key", here, self.place(start), key))
                for old in [p for p in self.places if p[: len(here)] == here]:
                    del self.places[old]
            self.places[here] = self.place(start)
            self.skip()
            if not self.text.startswith(":", self.at):
                raise self.fail(f"expected ':' after {key!r}")
            self.at += 1
            out[key] = self.value(here)
            self.next_item("}", path)
        self.at += 1
        return out

    def keyed(self, path: Path, start: int) -> None:
        """A key has been read, from ``start`` on."""

    def sequence(self, path: Path) -> list[Any]:
        out: list[Any] = []
        self.at += 1
        self.skip()
        while not self.text.startswith("]", self.at):
            self.places[(*path, len(out))] = self.place(self.at)
            out.append(self.value((*path, len(out))))
            self.next_item("]", path)
        self.at += 1
        return out

    def next_item(self, close: str, path: Path) -> None:
        self.skip()
        if self.text.startswith(",", self.at):
            comma = self.at
            self.at += 1
            self.skip()
            if self.text.startswith(close, self.at):
                self.flaws.append(Flaw("trailing-comma", path, self.place(comma)))
        elif not self.text.startswith(close, self.at):
            if self.at >= len(self.text):
                raise self.fail("the file ends early" + self.inside(path))
            raise self.fail(f"expected ',' or {close!r}, got {self.text[self.at]!r}")


def _code_point(unit: int, text: str, after: int) -> tuple[int, int]:
    """A \\u escape, joined with a second one to a pair; a lone half cannot be written out."""
    if 0xD800 <= unit < 0xDC00:
        second = re.match(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})", text[after : after + 6])
        if second:
            low = int(second.group(1), 16)
            return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), 12
    return (0xFFFD, 6) if 0xD800 <= unit < 0xE000 else (unit, 6)


@dataclass(frozen=True, slots=True)
class Spans:
    """Where keys and values stand in a text: start and end of each, by path."""

    keys: dict[Path, tuple[int, int]]
    values: dict[Path, tuple[int, int]]


class _Spanned(_Reader):
    """The same pass, which keeps where every key and value stands."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "text")
        self.spans = Spans({}, {})

    def value(self, path: Path) -> Value:
        self.skip()
        start = self.at
        value = super().value(path)
        self.spans.values[path] = (start, self.at)
        return value

    def keyed(self, path: Path, start: int) -> None:
        self.spans.keys[path] = (start, self.at)


def read_spans(text: str) -> Spans:
    """Where the keys and values of a JSON text stand.

    >>> read_spans('{"a": 12}').values[("a",)]
    (6, 8)

    Raises
    ------
    Unreadable
        If it is not JSON.
    """
    reader = _Spanned(text)
    reader.value(())
    return reader.spans


def read_json(
    text: str, name: str, first_line: int = 1
) -> tuple[Any, dict[Path, Place], tuple[Flaw, ...]]:
    """The value, the place of each key, and what a strict reader would refuse.

    Parameters
    ----------
    text, name : str
        The text, and the file's name for messages.
    first_line : int
        Line of the file the text begins at.

    Raises
    ------
    Unreadable
        If it is not JSON even leniently read; the message gives line and column.

    Examples
    --------
    >>> value, places, flaws = read_json('{"a": 1, "a": 2,}', "x.json")
    >>> value, places[("a",)].column, [flaw.kind for flaw in flaws]
    ({'a': 2}, 10, ['duplicate-key', 'trailing-comma'])
    """
    reader = _Reader(text, name, first_line)
    reader.skip()
    if reader.at >= len(text):
        raise Unreadable(name, "the file is empty", first_line)
    value = reader.value(())
    reader.skip()
    if reader.at < len(text):
        raise reader.fail("something follows the end of the document")
    reader.places[()] = Place(first_line, 1)
    return value, reader.places, tuple(reader.flaws)
