"""Reading tables of runs: CSV with the columns of ``docs/validation.md``, cells may be empty."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from planner.validate.columns import (
    FLAGS,
    FROM_ZERO,
    MEASURED,
    MEMORY_KINDS,
    MOST,
    MOST_WHOLE,
    NEEDED,
    NUMBERS,
    OUTCOMES,
    WHOLE,
)
from planner.validate.sharding import stage_said
from planner.validate.written import canonical, column

TableKind = Literal["runs", "activations", "peaks"]

LARGEST = 1e18  # no cell of a run is beyond it

ORACLE_ACTIVATIONS = ("family", "saved_activations", "layer_activations", "nonlayer_activations")
FORWARD_TIMES = ("kind", "layers", "seq_len", "value_ms")  # profiles of single passes
DEGREES = ("dp", "tp", "pp")  # whose product is the number of GPUs
ORACLE_PEAKS = ("family", "peak_total", "peak_phase", "opt", "world")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: its cells as text, and as numbers where the column holds numbers.

    ``printed``: every cell of the file under its header, where rows of a file are written again.
    ``filled``: columns whose empty cell another one answers.
    """

    file: str
    line: int
    cells: dict[str, str]
    printed: dict[str, str] = field(default_factory=dict)
    filled: tuple[str, ...] = ()

    def fill(self, name: str, text: str) -> Row:
        """The row with an empty cell filled, where there is something to fill it with."""
        if self.text(name) or not text:
            return self
        cells = {**self.cells, name: text}
        return Row(self.file, self.line, cells, self.printed, (*self.filled, name))

    def text(self, name: str) -> str:
        """A cell, stripped; empty where the column is missing."""
        return self.cells.get(name, "").strip()

    def number(self, name: str) -> float | None:
        """A cell as a number, None where it is empty.

        Raises
        ------
        ValueError
            If it holds something else, or a number no run can have.
        """
        text = self.text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.bad(name, "a number") from None
        if not math.isfinite(value) or value < 0 or value > LARGEST:
            raise self.bad(name, "a number from 0 up")
        if name in WHOLE:
            least, most = int(name not in FROM_ZERO), MOST.get(name, MOST_WHOLE)
            if value != int(value) or not least <= value <= most:
                raise self.bad(name, f"a whole number from {least} to {most}")
        return value

    def whole(self, name: str) -> int | None:
        """A cell as a whole number, None where it is empty."""
        value = self.number(name)
        return None if value is None else int(value)

    def flag(self, name: str) -> bool | None:
        """A cell as true or false, None where it is empty."""
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise self.bad(name, "true or false")
        return None if not text else text == "true"

    def bad(self, name: str, accepted: str) -> ValueError:
        """The error that says where a cell makes no sense."""
        return ValueError(
            f"{self.file} line {self.line}: {name} is {self.text(name)!r}: expected {accepted}"
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file that was read."""

    path: Path
    kind: TableKind
    header: tuple[str, ...]
    rows: tuple[Row, ...]


def read_table(path: Path) -> Table:
    """Read a table of measured runs, or one of the two oracle tables (known by their columns).

    Raises
    ------
    ValueError
        In one line: unreadable file, missing columns, or a cell that makes no sense.
    """
    lines = list(csv.reader(io.StringIO(_text(path), newline=""), strict=True))
    if not lines or not any(lines[0]):
        raise ValueError(f"{path}: empty; expected a CSV file with a header line")
    header = tuple(name.strip() for name in lines[0])
    names = [column(name) for name in header]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: column {', '.join(twice)} appears twice")
    rows = []
    for number, values in enumerate(lines[1:], start=2):
        if not any(v.strip() for v in values):
            continue
        while len(values) > len(header) and not values[-1].strip():
            values.pop()  # delimiters after the last cell
        if len(values) != len(header):
            raise ValueError(
                f"{path} line {number}: {len(values)} cells under {len(header)} columns"
            )
        rows.append(Row(str(path), number, dict(zip(header, values, strict=True))))
    kind = _kind(path, tuple(column(name) for name in header))
    if kind == "runs":
        rows = [_canonical(row) for row in rows]
        for row in rows:
            check(row)
    return Table(path, kind, header, tuple(rows))


def _canonical(row: Row) -> Row:
    """The row with its columns and cells in the documented spelling."""
    cells = {column(name): text for name, text in row.cells.items()}
    cells = {name: canonical(name, text) for name, text in cells.items()}
    found = Row(row.file, row.line, cells, printed=row.cells)
    return found.fill("zero_stage", stage_said(found.text("framework"), found.text("notes")))


def check(row: Row) -> None:
    """Every cell of a run makes sense.

    Raises
    ------
    ValueError
        Naming file, line and column of the first that does not.
    """
    for name in NUMBERS:
        row.number(name)
    for name in FLAGS:
        row.flag(name)
    if row.text("mem_kind") not in ("", *MEMORY_KINDS):
        raise row.bad("mem_kind", ", ".join(MEMORY_KINDS))
    if row.text("outcome") not in OUTCOMES:
        raise row.bad("outcome", ", ".join(filter(None, OUTCOMES)))


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path}: cannot read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not text in UTF-8; expected a CSV file") from None
    if "\0" in text:
        raise ValueError(f"{path}: not a CSV file (it holds NUL bytes)")
    return text


def _kind(path: Path, header: tuple[str, ...]) -> TableKind:
    names = set(header)
    if names.issuperset(FORWARD_TIMES):
        return "runs"  # no run of it names its GPUs: every row says what is missing
    if names.issuperset(ORACLE_ACTIVATIONS):
        return "activations"
    if names.issuperset(ORACLE_PEAKS):
        return "peaks"
    missing = [name for name in NEEDED if name not in names]
    if names.issuperset(DEGREES) and "n_gpus" in missing:
        missing.remove("n_gpus")
    if missing:
        raise ValueError(f"{path}: no column {', '.join(missing)}: expected a table of runs")
    if not names.intersection(MEASURED):
        raise ValueError(f"{path}: nothing measured: expected one of {', '.join(MEASURED)}")
    return "runs"
