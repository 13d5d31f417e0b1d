"""The command line. It only turns text into the calls of the Python interface, and back.

Heavy imports happen inside the commands, so that ``planner --help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.advisor.command import advise
from planner.cli_common import (
    EXIT_INFEASIBLE,
    EXIT_NO,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    AsJson,
    finish,
    guard,
)
from planner.cli_options import Forbid, JobFile, Max, Min, takes_job_options
from planner.cli_tools import calibrate, validate, verify

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Plan the training of large models: a model and some GPUs in, a proven plan out.",
)

FailOn = Annotated[str, typer.Option(help="Exit 1 also for a plan that is 'tight'.")]


def _fields(job: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    from planner.spec import read_job

    fields = guard(read_job, job) if job is not None else {}
    given = {k: v for k, v in options.items() if v is not None and v is not False and v != []}
    return {**fields, **given}


def _version(asked: bool) -> None:
    if asked:
        from planner import __version__

        typer.echo(f"planner {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Plan the training of large models: a model and some GPUs in, a proven plan out."""


@app.command()
@takes_job_options
def solve(
    job: JobFile = None,
    *,
    min: Min = None,
    max: Max = None,
    forbid: Forbid = None,
    priority: Annotated[
        str | None, typer.Option(help="balanced strict fastest (balanced).")
    ] = None,
    top: Annotated[int | None, typer.Option(help="Alternatives to show (3).")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds to search (60).")] = None,
    allow_idle: Annotated[
        bool, typer.Option("--allow-idle", help="Plans may leave GPUs unused.")
    ] = False,
    accept_tight: Annotated[
        bool,
        typer.Option(
            "--accept-tight", help="Plan to the memory limit without the safety interval."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write (outputs/<model>-<gpus>).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the output folder, whatever it holds.")
    ] = False,
    no_files: Annotated[bool, typer.Option("--no-files", help="Write no files.")] = False,
    fail_on: FailOn = "none",
    json: AsJson = False,
    **options: Any,
) -> None:
    """Find the best plan for a job, prove it, and write the files that launch it."""
    search: dict[str, Any] = {
        "min": min,
        "max": max,
        "forbid": forbid,
        "priority": priority,
        "top": top,
    }
    search |= {"time_limit": time_limit, "allow_idle": allow_idle, "accept_tight": accept_tight}
    fields = _fields(job, {**options, **search})
    _need(fields, fail_on)
    from planner.api import solve_to_files

    result, text = guard(
        solve_to_files, fields, output=output, force=force, write=not no_files, progress=_progress
    )
    _emit(result, text, json)
    code = {"infeasible": EXIT_INFEASIBLE, "unknown": EXIT_UNKNOWN}.get(result.status, 0)
    _exit(code or _tight(result, fail_on))


@app.command()
@takes_job_options
def estimate(
    job: JobFile = None,
    *,
    fail_on: FailOn = "none",
    json: AsJson = False,
    **options: Any,
) -> None:
    """Predict one given configuration: memory, verdict and step time.

    Axes come from --fix; those left out are at rest (one, none, ZeRO-0), and dp follows from the
    GPUs.
    """
    fields = _fields(job, options)
    _need(fields, fail_on)
    from planner.api import estimate_text

    result, text = guard(estimate_text, fields)
    _emit(result, text, json)
    fits = result.predicted is not None and result.predicted.verdict != "does not fit"
    _exit(_tight(result, fail_on) if fits else EXIT_NO)


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="One model, in detail.")] = None,
    json: AsJson = False,
) -> None:
    """List the model catalogue, or show one model."""
    from planner.listing import model_table

    typer.echo(guard(model_table, name, as_json=json))


@app.command()
def gpus(
    name: Annotated[str | None, typer.Argument(help="One GPU or node, in detail.")] = None,
    json: AsJson = False,
) -> None:
    """List GPUs and nodes, or show one with its sources."""
    from planner.listing import hardware_table

    typer.echo(guard(hardware_table, name, as_json=json))


for tool in (advise, verify, validate, calibrate):
    app.command()(tool)


def _need(fields: dict[str, Any], fail_on: str) -> None:
    if fail_on not in ("none", "tight"):
        raise finish(f"--fail-on {fail_on!r}: expected none or tight", EXIT_USAGE)
    for name in ("model", "gpus"):
        if name not in fields:
            raise finish(f"--{name} is missing (or give a job.yaml with '{name}:')", EXIT_USAGE)


def _tight(result: Any, fail_on: str) -> int:
    tight = result.predicted is not None and result.predicted.verdict == "tight"
    return EXIT_NO if tight and fail_on == "tight" else 0


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


def _emit(result: Any, text: str, as_json: bool) -> None:
    typer.echo(result.model_dump_json(indent=2) if as_json else text)


def _progress(text: str) -> None:
    typer.echo(text, err=True)
