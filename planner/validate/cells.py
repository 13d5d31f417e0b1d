"""A row's cells after the conventions of its kind: defaults, meanings, reasons to skip."""

from __future__ import annotations

from dataclasses import replace

from planner.validate.kinds import Kind, Kinds, Network, When, matches
from planner.validate.table import Row


class Cells:
    """The cells of one row with defaults filled in, and a note of every one that was used."""

    def __init__(self, row: Row, kind: Kind, kinds: Kinds) -> None:
        self.kind = kind
        self.applied: tuple[When, ...] = tuple(
            when for when in (*kinds.everywhere, *kind.when) if matches(row, when.match)
        )
        meanings = dict(kind.set)
        for when in self.applied:
            meanings.update(when.set)
        self.row = replace(row, cells={**row.cells, **meanings})
        self.assumed: list[str] = list(row.filled)

    def text(self, name: str) -> str:
        """A cell, or its default."""
        text = self.row.text(name)
        if not text and name in self.kind.defaults:
            self.assumed.append(name)
            return self.kind.defaults[name]
        return text

    def whole(self, name: str, default: int | None = None) -> int | None:
        """A cell as a whole number, or its default."""
        if self.row.text(name):
            return self.row.whole(name)
        if name in self.kind.defaults:
            self.assumed.append(name)
            return int(self.kind.defaults[name])
        return default

    def flag(self, name: str, default: bool) -> bool:
        """A cell as true or false, or its default."""
        value = self.row.flag(name)
        if value is None and name in self.kind.defaults:
            self.assumed.append(name)
            return self.kind.defaults[name] == "true"
        return default if value is None else value

    def reason(self, what: str) -> str:
        """Why the row is not used, for ``skip``, ``time_skip`` or ``memory_skip``."""
        return next((str(getattr(w, what)) for w in self.applied if getattr(w, what)), "")

    @property
    def network(self) -> Network | None:
        """The network of the row's cluster."""
        return next((w.network for w in self.applied if w.network), self.kind.network)
