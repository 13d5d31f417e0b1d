"""Check a bundle without a GPU: each file by itself, the files against each other, a tiny run.

What needs software that is not installed is skipped, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.plan import SCHEMA_VERSION, Frozen, Result
from planner.verify_bundle import Bundle, Finding, Status, read_bundle, verdict
from planner.verify_consistency import inconsistencies
from planner.verify_emitted import DuplicateKey, compare_emitted, missing_files, unique
from planner.verify_plan import (
    absent_inputs,
    by_hand,
    malformed,
    plan_problems,
    rebuild,
    schema_problem,
)
from planner.verify_syntax import check_json, check_python, check_shell, check_yaml

NO_PLAN = "no plan to compare with"
RULES_CONTEXT = {"deepspeed_config.json": "plain", "ds_config_hf.json": "hf"}


class Check(Frozen):
    """One check: its name, how it went, and what it saw."""

    name: str
    status: Status
    detail: str = ""


class Report(Frozen):
    """All checks of a bundle."""

    schema_version: str = SCHEMA_VERSION
    folder: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(check.status != "failed" for check in self.checks)


def verify(folder: Path, run: bool = True) -> Report:
    """Check the bundle in a folder.

    Parameters
    ----------
    folder : Path
        A folder that ``planner solve`` wrote, or one laid out like it.
    run : bool
        Also start train.py --tiny with two CPU processes, where torch, DeepSpeed and transformers
        are installed. It takes some 15 s once DeepSpeed has compiled its CPU kernels, minutes the
        first time.

    Returns
    -------
    Report
        Every check with its detail; ``ok`` if none failed.

    Raises
    ------
    ValueError
        If there is no such folder or it holds no plan.json.
    """
    bundle = read_bundle(folder)
    checks = []
    for name, check in CHECKS:
        status, detail = check(bundle)
        checks.append(Check(name=name, status=status, detail=detail))
    broken = any(check.status == "failed" for check in checks)
    checks.append(_run_check(bundle, run, broken))
    return Report(folder=str(folder), checks=tuple(checks))


def check_plan(bundle: Bundle) -> Finding:
    """plan.json is of this planner's schema and holds a plan."""
    text = bundle.texts["plan.json"]
    try:
        problem = schema_problem(json.loads(text, object_pairs_hook=unique))
        bundle.result = Result.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return "failed", problem or f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (DuplicateKey, json.JSONDecodeError, RecursionError) as error:
        return "failed", f"plan.json: {error}"
    if problem:
        return "failed", problem
    if bundle.result.plan is None:
        return "failed", f"no plan in it (status {bundle.result.status})"
    return "ok", f"schema {bundle.result.schema_version}, stack {bundle.result.plan.stack}"


def check_files(bundle: Bundle) -> Finding:
    """Every file plan.json lists is there."""
    if bundle.result is None:
        return "skipped", NO_PLAN
    if not bundle.result.files:
        return "skipped", "plan.json lists no files"
    missing = [f"{name}: missing" for name in missing_files(bundle.result, bundle.texts)]
    return verdict(missing, f"{len(bundle.result.files)} files")


def check_prediction(bundle: Bundle) -> Finding:
    """The plan obeys its job and the rules, and is predicted to cost what plan.json says."""
    result = bundle.result
    if result is None or result.plan is None:
        return "skipped", NO_PLAN
    absent = absent_inputs(result)
    if absent:
        return "skipped", f"the job cannot be rebuilt without {', '.join(absent)}"
    wrong = malformed(result.plan)
    if wrong:
        return verdict(wrong, "")
    try:
        bundle.job = rebuild(result)
    except ValueError as error:
        return "failed", f"job: {error}"
    if by_hand(result):
        detail = "obeys its job; no prediction to compare"
    else:
        detail = "obeys its job and the rules; memory and time as predicted"
    return verdict(plan_problems(bundle.job, result), detail)


def check_emission(bundle: Bundle) -> Finding:
    """Each file says what the plan emits, settings that are the user's aside."""
    if bundle.job is None or bundle.result is None or bundle.result.plan is None:
        return "skipped", "the plan or its job could not be read"
    try:
        count, wrong, edited = compare_emitted(bundle.job, bundle.result.plan, bundle.texts)
    except ValueError as error:
        return "failed", f"the plan cannot be emitted: {error}"
    if not edited:
        return verdict(wrong, f"{count} files as the plan emits them")
    return verdict(wrong, f"{count} files; edited: {'; '.join(edited)}")


def check_rules(bundle: Bundle) -> Finding:
    """The planner's own rules on what DeepSpeed refuses or ignores without a word."""
    from planner.lint import Context, lint_deepspeed

    found, seen = [], []
    for name, data, framework in deepspeed_files(bundle):
        world = bundle.result.plan.gpus if bundle.result and bundle.result.plan else None
        seen.append(name)
        for finding in lint_deepspeed(data, Context(framework, world=_dp_world(bundle, world))):
            if finding.severity in ("error", "warning"):  # what is ignored is not as planned
                found.append(f"{name} {finding.key}: {finding.effect} ({finding.id})")
    return verdict(found, ", ".join(seen)) if seen else ("skipped", "no DeepSpeed configuration")


def check_parser(bundle: Bundle) -> Finding:
    """DeepSpeed's own configuration class, at the plan's world size."""
    from planner.verify_run import missing_packages, parse_with_deepspeed

    files = [(name, data) for name, data, kind in deepspeed_files(bundle) if kind != "hf"]
    if not files or bundle.result is None or bundle.result.plan is None:
        return "skipped", "no configuration for the plain engine"
    missing = missing_packages("torch", "deepspeed")
    if missing:
        return "skipped", f"not installed: {', '.join(missing)}"
    world = _dp_world(bundle, bundle.result.plan.gpus) or 1
    answers = parse_with_deepspeed([data for _, data in files], world)
    wrong = [f"{name}: {text}" for (name, _), text in zip(files, answers, strict=True) if text]
    return verdict(wrong, f"{', '.join(name for name, _ in files)} at world {world}")


def check_consistency(bundle: Bundle) -> Finding:
    """plan.json, the configurations and the launcher say the same."""
    if bundle.result is None or bundle.result.plan is None:
        return "skipped", NO_PLAN
    compared, wrong = inconsistencies(bundle.result, bundle.json, bundle.texts)
    return verdict(wrong, f"{len(compared)} comparisons")


CHECKS: tuple[tuple[str, Callable[[Bundle], Finding]], ...] = (
    ("plan", check_plan),
    ("files", check_files),
    ("prediction", check_prediction),
    ("json", check_json),
    ("yaml", check_yaml),
    ("rules", check_rules),
    ("deepspeed", check_parser),
    ("shell", check_shell),
    ("python", check_python),
    ("emission", check_emission),
    ("consistency", check_consistency),
)


def deepspeed_files(bundle: Bundle) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Name, content and reader of each DeepSpeed configuration."""
    for name, framework in RULES_CONTEXT.items():
        data = bundle.json.get(name)
        if isinstance(data, dict):
            megatron = (
                bundle.result and bundle.result.plan and "megatron" in bundle.result.plan.stack
            )
            yield name, data, "megatron" if megatron and framework == "plain" else framework


def _dp_world(bundle: Bundle, world: int | None) -> int | None:
    """Ranks DeepSpeed counts a batch over: all, or the data-parallel ones given a grid.

    PipelineModule and Megatron hand it a grid; AutoTP does not.
    """
    plan = bundle.result.plan if bundle.result else None
    return plan.dp if plan and (plan.pp > 1 or plan.stack != "deepspeed") else world


def _run_check(bundle: Bundle, run: bool, broken: bool) -> Check:
    from planner.verify_run import tiny_run, why_not_run

    name = "run"
    if not run:
        return Check(name=name, status="skipped", detail="not asked for")
    if broken:
        return Check(name=name, status="skipped", detail="the checks before it failed")
    reason = why_not_run(bundle.folder, bundle.result)
    if reason:
        return Check(name=name, status="skipped", detail=reason)
    problem, detail = tiny_run(bundle.folder)
    return Check(name=name, status="failed" if problem else "ok", detail=problem or detail)
