"""Commands about the models and the bundles: verify, validate, calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli_common import EXIT_NO, AsJson, Profile, guard

Runs = Annotated[
    list[Path], typer.Argument(help="CSV tables in the measured-runs schema.", show_default=False)
]
Stack = Annotated[str | None, typer.Option(help="Stack that ran, where the tables do not say.")]


def verify(
    folder: Annotated[Path, typer.Argument(help="A folder that solve wrote.")],
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Leave out the scaled-down CPU run.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Check a bundle without a GPU: files, rules, framework parsers, a tiny run on the CPU."""
    from planner.verify import verify as check

    report = guard(check, folder, run=not no_run)
    if json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        for item in report.checks:
            typer.echo(f"{item.status:8} {item.name}: {item.detail}".rstrip(": "))
    if not report.ok:
        raise typer.Exit(EXIT_NO)


def validate(
    runs: Runs,
    logo: Annotated[bool, typer.Option("--logo", help="Refit without what is scored.")] = False,
    stack: Stack = None,
    predictions: Annotated[
        Path | None, typer.Option(help="CSV to write: the rows with their predictions.")
    ] = None,
    profile: Profile = None,
    residuals: Annotated[
        list[str] | None,
        typer.Option(
            metavar="missed|SOURCE",
            help="Split errors by axis: of figures that miss their target, or of a source.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Score the cost models on measured runs: time, memory, verdicts, ranks and regret."""
    from planner.validate.command import validate as score

    report, text = guard(score, runs, logo, stack, predictions, profile, residuals or ())
    typer.echo(report.model_dump_json(indent=2) if json else text)


def calibrate(
    runs: Runs,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Profile to write (YAML).")
    ] = None,
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Fit a few constants to your own runs; use the profile with --profile everywhere."""
    from planner.calibrate.command import calibrate as fit

    profile, text = guard(fit, runs, output, stack)
    typer.echo(profile.model_dump_json(indent=2) if json else text)
    saved = "nothing saved: -o FILE writes the profile" if output is None else f"wrote {output}"
    typer.echo(saved, err=True)
