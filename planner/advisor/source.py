"""A file's text, read without trusting it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LARGEST = 2 << 20  # no configuration is near this; a checkpoint given by mistake is [byte]
DEEPEST = 60  # nesting of a document
MOST_VALUES = 100_000  # values of a document, aliases written out


class Unreadable(ValueError):
    """A file that is not what it should be; the message is one line."""

    def __init__(
        self, name: str, reason: str, line: int | None = None, column: int | None = None
    ) -> None:
        place = f":{line}" if line is not None else ""
        place += f":{column}" if column is not None else ""
        super().__init__(f"{name}{place}: {reason}")
        self.name, self.reason, self.line, self.column = name, reason, line, column


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a file and where it came from."""

    name: str
    text: str
    folder: Path | None = None
    mark: str = ""  # utf-8 or utf-16 where the file begins with a byte-order mark


def read_source(path: Path) -> Source:
    """The text of a file.

    Raises
    ------
    Unreadable
        If it is missing, not a plain file, too large, binary, or not UTF-8.
    """
    name = str(path)
    try:
        if not path.is_file():
            reason = "is a folder" if path.is_dir() else "no such file"
            raise Unreadable(name, f"{reason}; expected a configuration file or a launch script")
        size = path.stat().st_size
        if size > LARGEST:
            raise Unreadable(name, f"{size} bytes; a configuration has at most {LARGEST}")
        raw = path.read_bytes()[: LARGEST + 1]
    except OSError as error:
        raise Unreadable(name, f"cannot read: {error.strerror or error}") from None
    return Source(name, decode(raw, name), path.parent, _mark(raw))


def _mark(raw: bytes) -> str:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    return "utf-8" if raw[:3] == b"\xef\xbb\xbf" else ""


def decode(raw: bytes, name: str) -> str:
    """UTF-8 (or marked UTF-16) bytes as text, with one kind of line end.

    Raises
    ------
    Unreadable
        If the bytes are something else.
    """
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Unreadable(name, "not UTF-8 text", line) from None
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise Unreadable(name, "binary data, not text", line)
    return text.replace("\r\n", "\n").replace("\r", "\n")
