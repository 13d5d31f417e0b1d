"""``planner advise`` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli_common import EXIT_USAGE, Profile, finish, guard
from planner.cli_options import Hardware, HostMemory, InterBandwidth

if TYPE_CHECKING:
    from planner.advisor.report import Report

Files = Annotated[
    list[str],
    typer.Argument(help="Configuration files, launch scripts or patterns.", show_default=False),
]


def advise(
    files: Files,
    model: Annotated[
        str | None, typer.Option(help="As for solve; else the one the file names.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="8xA100-80G, 4x8xH100-80G; without it, lint only.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    global_batch: Annotated[int | None, typer.Option(help="Sequences in a step.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="Where the files do not say.")] = None,
    cross_entropy: Annotated[str | None, typer.Option(help="auto eager fused chunked.")] = None,
    hardware: Hardware = None,
    profile: Profile = None,
    host_memory: HostMemory = None,
    inter_bandwidth: InterBandwidth = None,
    context: Annotated[
        str | None, typer.Option(help="hf accelerate plain megatron (inferred).")
    ] = None,
    deepspeed_version: Annotated[
        str | None, typer.Option(help="Release that reads the files (0.19.8).")
    ] = None,
    client_optimizer: Annotated[
        str | None, typer.Option(help="Class of the optimizer the script makes: FusedAdam.")
    ] = None,
    args: Annotated[
        str | None, typer.Option(help="Trainer flags in use: '--bf16 --learning_rate 1e-5'.")
    ] = None,
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="Another file of the same run.")
    ] = None,
    symptom: Annotated[
        str | None, typer.Option(help="oom nan slow host-oom hang: rank likely causes.")
    ] = None,
    no_advice: Annotated[
        bool, typer.Option("--no-advice", help="Findings and verdict only.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write NAME.patched.EXT beside each file.")
    ] = False,
    plan: Annotated[int, typer.Option(help="Which advice --apply takes.")] = 1,
    fail_on: Annotated[
        str, typer.Option(help="Exit 1 at this level: error warning info tight none.")
    ] = "error",
    format: Annotated[str, typer.Option(help="text json markdown sarif.")] = "text",
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Judge configuration files: what is wrong, whether it fits, the smallest change that helps."""
    from planner.advisor.formats import FORMATS, render
    from planner.advisor.report import FAIL_ON

    fmt = "json" if json else format
    for name, value, known in (("format", fmt, FORMATS), ("fail-on", fail_on, FAIL_ON)):
        if value not in known:
            raise finish(f"--{name} {value!r}: expected one of {', '.join(known)}", EXIT_USAGE)
    options: dict[str, Any] = {
        "model": model,
        "gpus": gpus,
        "context": context,
        "client_optimizer": client_optimizer,
        "args": args,
        "partners": with_ or (),
        "symptom": symptom,
        "advice": not no_advice,
        "seq_len": seq_len,
        "global_batch": global_batch,
        "optimizer": optimizer,
        "cross_entropy": cross_entropy,
        "hardware": hardware,
        "profile": profile,
        "host_memory": host_memory,
        "inter_bandwidth": inter_bandwidth,
    }
    if deepspeed_version is not None:
        options["deepspeed_version"] = deepspeed_version
    report, written, said = guard(run, files, apply=apply, plan=plan, **options)
    typer.echo(render(report, fmt).encode("utf-8", "replace").decode("utf-8"))
    for path in written:
        typer.echo(f"wrote {path}", err=True)
    for line in said:
        typer.echo(f"note: {line}", err=True)
    code = report.exit_code(fail_on)
    if code:
        raise typer.Exit(code)


def run(
    files: list[str], *, apply: bool = False, plan: int = 1, **options: Any
) -> tuple[Report, tuple[Path, ...], tuple[str, ...]]:
    """The report, the patched files written, and what there is to say about them.

    Raises
    ------
    ValueError
        If an option is wrong, or a patched file cannot be written; one line.
    """
    from planner.advisor.core import advise as judge

    if plan < 1:
        raise ValueError(f"--plan {plan}: expected 1 or more")
    report = judge(files, **options)
    if not apply:
        return report, (), ()
    from planner.advisor.writing import write_patched_saying

    return report, *write_patched_saying(report, plan, **options)
