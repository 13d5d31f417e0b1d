"""Tables as text: Markdown for pages, columns for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(("a", "b"), [("1", "2")]), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with aligned columns, indented by two.

    >>> columns(("a", "b"), [("11", "2")])
    ['  a   b', '  11  2']
    """
    every = [tuple(header), *map(tuple, rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(header))]
    return [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]
