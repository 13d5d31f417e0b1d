"""Write docs/accuracy.md from tables of runs: python -m planner.validate RUNS.csv... -o FILE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.validate.command import accuracy


def main(
    runs: Annotated[list[Path], typer.Argument(help="Tables of measured runs, and counted bytes.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Markdown file to write.")],
) -> None:
    """Validate twice, with shipped and with refitted constants, and write the accuracy page."""
    try:
        accuracy(runs, output)
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
