"""The Python interface; the command line does nothing that is not here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from planner.job import Job, resolve
from planner.plan import Result
from planner.spec import JobSpec, make_spec

Progress = Callable[[str], None]
OUTPUTS = Path("outputs")


def _silent(_: str) -> None:
    return None


def _spec(spec: JobSpec | Mapping[str, Any] | None, fields: dict[str, Any]) -> JobSpec:
    if isinstance(spec, JobSpec):
        return spec.model_copy(update=fields) if fields else spec
    return make_spec({**(spec or {}), **fields})


def solve(
    spec: JobSpec | Mapping[str, Any] | None = None,
    /,
    *,
    progress: Progress = _silent,
    **fields: Any,
) -> Result:
    """The best plan for a job, with its proof.

    Parameters
    ----------
    spec : JobSpec or mapping, optional
        The job; ``fields`` are added to it.
    progress : callable
        Called with a line of text now and then.
    **fields
        Fields of :class:`planner.spec.JobSpec`: ``model="13b", gpus="8xA100-80G"``.

    Returns
    -------
    Result
        Its ``status`` is optimal, feasible, infeasible or unknown.

    Raises
    ------
    ValueError
        If the job is not one; one line.
    """
    from planner.solving import solve_job

    return solve_job(resolve(_spec(spec, fields)), progress)


def estimate(
    spec: JobSpec | Mapping[str, Any] | None = None,
    /,
    *,
    plan: Path | None = None,
    **fields: Any,
) -> Result:
    """Predict one configuration: the job's ``fix``, or a ``plan.json``.

    Raises
    ------
    ValueError
        If the job or the configuration is not valid; one line.
    """
    from planner.estimating import estimate_job, read_plan

    job = resolve(_spec(spec, fields))
    return estimate_job(job, read_plan(plan).plan if plan is not None else None)


def job_folder(job: Job) -> Path:
    """Where a job's files go unless told otherwise."""
    gpus = job.cluster.spec.lower().replace("/", "-")
    if job.cluster.reference:
        count, _, _ = gpus.rpartition("x")
        gpus = f"{count}x{job.cluster.node.gpu.id}" if count else gpus
    return OUTPUTS / f"{job.architecture.name}-{gpus}"


def solve_to_files(
    fields: Mapping[str, Any],
    *,
    output: Path | None = None,
    force: bool = False,
    write: bool = True,
    progress: Progress = _silent,
) -> tuple[Result, str]:
    """``solve``, and write the job's folder if there is a plan.

    Returns
    -------
    tuple[Result, str]
        The result with the files written, and its text for a terminal.
    """
    from planner.bundle import MANIFEST, check_target, write_bundle
    from planner.report import markdown, summary
    from planner.solving import solve_job

    job = resolve(make_spec(dict(fields)))
    folder = output if output is not None else job_folder(job)
    if write:
        check_target(folder, force)
    result = solve_job(job, progress)
    if write and result.plan is not None:
        from planner.emit import emit, emit_notes

        files = dict(emit(job, result.plan))
        written = sorted(str(folder / n) for n in (*files, "plan.json", "report.md", MANIFEST))
        notes = (*result.notes, *emit_notes(job, result.plan))
        result = result.model_copy(update={"files": tuple(written), "notes": notes})
        files["plan.json"] = result.model_dump_json(indent=2) + "\n"
        files["report.md"] = markdown(result)
        write_bundle(folder, files, force)
    return result, summary(result)


def estimate_text(fields: Mapping[str, Any], plan: Path | None = None) -> tuple[Result, str]:
    """``estimate`` and its text for a terminal."""
    from planner.report import summary

    result = estimate(fields, plan=plan)
    return result, summary(result)
