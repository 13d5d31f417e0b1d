"""YAML in which a key stands once: of two blocks of the same name neither is silently lost."""

from __future__ import annotations

from typing import Any

import yaml


class _Unique(yaml.SafeLoader):
    """A safe loader that refuses a repeated key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value != "<<" and str(key.value) in seen:
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"line {line} repeats the key {key.value!r}")
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def load_unique(text: str) -> Any:
    """What a YAML text holds.

    Raises
    ------
    yaml.YAMLError
        If it is not YAML, or repeats a key within one mapping.

    Examples
    --------
    >>> load_unique("a: 1")
    {'a': 1}
    """
    return yaml.load(text, Loader=_Unique)
