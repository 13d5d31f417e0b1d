"""launch.sh: torchrun on one or several nodes, whatever the training script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.emit.layout import (
    MASTER_PORT,
    NVME_PATH,
    environment,
    layout,
    uses_nvme,
)
from planner.emit.text import render
from planner.job import Job
from planner.plan import Plan

Argument = tuple[str, ...]  # a flag and its values


@dataclass(frozen=True, slots=True)
class Script:
    """What torchrun starts.

    ``bundled`` is a file beside launch.sh, used unless TRAIN_SCRIPT is set; without one,
    ``missing`` is what launch.sh says when it is not set. ``module`` names a Python module
    instead; ``last`` is what must stand at the very end of its line.
    """

    bundled: str = ""
    missing: str = ""
    module: str = ""
    last: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """The parts of a launch.sh that differ between stacks.

    ``plan_args`` are the plan's, ``train_args`` the script's own. An argument that holds ``$``
    is expanded by the shell, any other is quoted. ``fixed`` variables override the user's.
    ``required`` are variables that must be set, each with what to say if not. ``import_here``
    puts the folder of launch.sh on PYTHONPATH. ``accelerate`` is a configuration beside launch.sh
    that ``accelerate launch`` reads; without one torchrun starts the processes.
    """

    script: Script
    plan_args: Sequence[Argument]
    train_args: Sequence[Argument] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[tuple[str, str]] = ()
    import_here: bool = False
    accelerate: str = ""


def launch_script(job: Job, plan: Plan, launch: Launch) -> str:
    """The text of launch.sh."""
    folders = []
    if uses_nvme(plan):
        folders = [
            (
                NVME_PATH,
                f"the plan offloads to NVMe at {NVME_PATH}: mount the drives there, or change"
                " nvme_path in deepspeed_config.json and here",
            )
        ]
    return render(
        "launch.sh.j2",
        comment=describe(job, plan),
        layout=layout(job, plan),
        port=MASTER_PORT,
        script=launch.script,
        plan_args=[shell_words(argument) for argument in launch.plan_args],
        train_args=[shell_words(argument) for argument in launch.train_args],
        required=list(launch.required),
        folders=folders,
        fixed=dict(launch.fixed),
        import_here=launch.import_here,
        launcher="accelerate" if launch.accelerate else "torchrun",
        launcher_config=launch.accelerate,
        uses_here=_uses_here(launch),
        variables={k: v for k, v in environment(job, plan).items() if k not in launch.fixed},
    )


def _uses_here(launch: Launch) -> bool:
    arguments = (*launch.plan_args, *launch.train_args)
    named = any("$HERE" in word for argument in arguments for word in argument)
    return named or launch.import_here or bool(launch.script.bundled or launch.accelerate)


def shell_words(argument: Argument) -> str:
    """An argument as shell text.

    >>> shell_words(("--layout", "Et*7|t*9"))
    "--layout 'Et*7|t*9'"
    >>> shell_words(("--config", "$HERE/a.json"))
    '--config "$HERE/a.json"'
    """
    return " ".join(_shell_word(word) for word in argument)


def _shell_word(word: str) -> str:
    if "$" in word:
        return f'"{word}"'
    return f"'{word}'" if "," in word else shlex.quote(word)  # an unquoted comma looks like Python


def describe(job: Job, plan: Plan) -> list[str]:
    """The plan in two lines, for the head of a script."""
    where = layout(job, plan)
    nodes = f"{where.nodes} node{'s' if where.nodes > 1 else ''}"
    parts = [f"dp {plan.dp}"]
    parts += [
        f"{name} {size}"
        for name, size in (
            ("tp", plan.tp),
            ("pp", plan.pp),
            ("virtual stages", plan.virtual_stages),
            ("cp", plan.cp),
            ("ep", plan.ep),
        )
        if size > 1
    ]
    parts += [f"ZeRO-{plan.zero_stage}", f"micro-batch {plan.micro_batch}"]
    parts += [f"accumulation {plan.grad_accum}", plan.precision, f"recompute {plan.recompute}"]
    return [
        f"{job.architecture.name} on {nodes} of {where.gpus_per_node} x"
        f" {job.cluster.node.gpu.name}: {plan.stack}",
        ", ".join(parts),
    ]
