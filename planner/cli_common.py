"""What all commands share: exit codes, one-line errors, common options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

EXIT_NO = 1  # the answer is no
EXIT_USAGE = 2  # wrong usage, unreadable input, unwritable output
EXIT_INFEASIBLE = 3
EXIT_UNKNOWN = 4

AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else there.")]
Profile = Annotated[
    Path | None, typer.Option(help="Profile of your own measurements, from calibrate.")
]


def finish(message: str, code: int) -> typer.Exit:
    typer.echo(f"planner: {message}", err=True)
    return typer.Exit(code)


def guard(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call, turning a user's mistake into one line and the usage exit code."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        raise finish(" ".join(str(error).split()), EXIT_USAGE) from None
