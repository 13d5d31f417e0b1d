"""Check a bundle without a GPU: each file by itself, the files against each other, a tiny run.

What needs software that is not installed is skipped, and says so.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from planner.plan import SCHEMA_VERSION, Frozen, Result
from planner.verify_consistency import inconsistencies

Status = Literal["ok", "failed", "skipped"]
SHELL_SECONDS = 60.0  # a script is checked in far less
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


@dataclass
class Bundle:
    """A bundle as read: texts by file name, parsed JSON, and its plan if readable."""

    folder: Path
    texts: dict[str, str]
    json: dict[str, Any] = field(default_factory=dict)
    result: Result | None = None


Finding = tuple[Status, str]


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


def read_bundle(folder: Path) -> Bundle:
    """The text files of a folder.

    Raises
    ------
    ValueError
        If it cannot be read or has no plan.json.
    """
    if not (folder / "plan.json").is_file():
        raise ValueError(f"{folder}: no plan.json; expected a folder that planner solve wrote")
    texts = {}
    try:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                texts[path.name] = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot read: {error}") from None
    return Bundle(folder, texts)


def check_plan(bundle: Bundle) -> Finding:
    """plan.json is of this planner's schema and holds a plan."""
    try:
        bundle.result = Result.model_validate_json(bundle.texts["plan.json"])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return "failed", f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if bundle.result.plan is None:
        return "failed", f"no plan in it (status {bundle.result.status})"
    return "ok", f"schema {bundle.result.schema_version}, stack {bundle.result.plan.stack}"


def check_json(bundle: Bundle) -> Finding:
    """Every JSON file is JSON."""
    wrong = []
    for name in _named(bundle, ".json"):
        try:
            bundle.json[name] = json.loads(bundle.texts[name])
        except json.JSONDecodeError as error:
            wrong.append(f"{name} line {error.lineno}: {error.msg}")
    return _verdict(wrong, f"{len(bundle.json)} files")


def check_yaml(bundle: Bundle) -> Finding:
    """Every YAML file is YAML."""
    import yaml

    wrong, names = [], [*_named(bundle, ".yaml"), *_named(bundle, ".yml")]
    for name in names:
        try:
            list(yaml.safe_load_all(bundle.texts[name]))
        except yaml.YAMLError as error:
            wrong.append(f"{name}: {' '.join(str(error).split())}")
    return _verdict(wrong, f"{len(names)} files") if names else ("skipped", "no YAML files")


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
    return _verdict(found, ", ".join(seen)) if seen else ("skipped", "no DeepSpeed configuration")


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
    return _verdict(wrong, f"{', '.join(name for name, _ in files)} at world {world}")


def check_shell(bundle: Bundle) -> Finding:
    """Shell scripts parse, and shellcheck has nothing to say where it is installed."""
    scripts = [*_named(bundle, ".sh"), *_named(bundle, ".sbatch")]
    if not scripts:
        return "skipped", "no shell scripts"
    tools = [
        ("bash", "-n"),
        *([("shellcheck", "-s", "bash")] if shutil.which("shellcheck") else []),
    ]
    wrong = []
    for name in scripts:
        for tool in tools:
            answer = subprocess.run(
                [*tool, str(bundle.folder / name)],
                capture_output=True,
                text=True,
                timeout=SHELL_SECONDS,
                check=False,
            )
            if answer.returncode:
                said = (answer.stdout + answer.stderr).strip().splitlines()
                wrong.append(f"{tool[0]}: {' '.join(said[:3])}")
    without = "" if len(tools) > 1 else ", without shellcheck (not installed)"
    return _verdict(wrong, f"{', '.join(scripts)}{without}")


def check_python(bundle: Bundle) -> Finding:
    """Python files parse."""
    wrong, names = [], list(_named(bundle, ".py"))
    for name in names:
        try:
            ast.parse(bundle.texts[name], filename=name)
        except SyntaxError as error:
            wrong.append(f"{name} line {error.lineno}: {error.msg}")
    return _verdict(wrong, f"{len(names)} files") if names else ("skipped", "no Python files")


def check_consistency(bundle: Bundle) -> Finding:
    """plan.json, the configurations and the launcher say the same."""
    if bundle.result is None or bundle.result.plan is None:
        return "skipped", "no plan to compare with"
    compared, wrong = inconsistencies(bundle.result, bundle.json, bundle.texts)
    return _verdict(wrong, f"{len(compared)} comparisons")


CHECKS: tuple[tuple[str, Callable[[Bundle], Finding]], ...] = (
    ("plan", check_plan),
    ("json", check_json),
    ("yaml", check_yaml),
    ("rules", check_rules),
    ("deepspeed", check_parser),
    ("shell", check_shell),
    ("python", check_python),
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


def _named(bundle: Bundle, suffix: str) -> Iterator[str]:
    return (name for name in bundle.texts if name.endswith(suffix))


def _verdict(wrong: list[str], detail: str) -> Finding:
    return ("failed", "; ".join(wrong)) if wrong else ("ok", detail)
