"""Write docs/accuracy.md and the intervals: python -m planner.validate RUNS.csv... -o FILE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.validate.command import publish


def main(
    runs: Annotated[list[Path], typer.Argument(help="Tables of measured runs, and counted bytes.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Page to write.")] = None,
    intervals: Annotated[Path | None, typer.Option(help="Intervals to write, YAML.")] = None,
) -> None:
    """Write the accuracy page of some tables, and the intervals their held-out errors ask for."""
    try:
        publish(runs, output, intervals)
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
