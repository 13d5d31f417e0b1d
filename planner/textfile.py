"""Reading a user's small text file, with one clear line when that fails."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

MAX_BYTES = 4 << 20  # model descriptions are kilobytes; anything larger is another file


def read_text(path: Path) -> str:
    """The text of a file of at most 4 MiB.

    Raises
    ------
    ValueError
        If it is missing, not a regular file, too large, or not UTF-8.
    """
    try:
        if not path.exists():
            raise ValueError(f"{path}: no such file")
        if not path.is_file():
            raise ValueError(f"{path}: not a file")
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path}: larger than {MAX_BYTES >> 20} MiB, so no model description")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None


def repeated_key(text: str) -> tuple[str, int] | None:
    """The first key that a mapping of a YAML text gives twice, and its line; None if none does.

    Raises
    ------
    yaml.YAMLError
        If the text is not YAML.

    Examples
    --------
    >>> repeated_key("{layers: 2, layers: 4}")
    ('layers', 1)
    """
    waiting: list[yaml.Node | None] = [yaml.compose(text, Loader=yaml.SafeLoader)]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:  # an alias may lead back
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        if isinstance(node, yaml.MappingNode):
            names = set()
            for key, value in node.value:
                if key.value in names and isinstance(key, yaml.ScalarNode):
                    return str(key.value), key.start_mark.line + 1
                names.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
                waiting.append(value)
    return None


def plain_name(text: str) -> str:
    """A file or folder name as the name of a model: letters, digits and ``._+-`` only.

    Examples
    --------
    >>> plain_name("my model (v2)")
    'my-model-v2'
    """
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-._+")[:100] or "model"
