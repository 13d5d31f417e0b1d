"""A finished plan for another target: its files, a refusal, or what gets lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from costmodels.stack import load_stack
from planner.emit.accelerate import FSDP2_CONFIG, accelerate_deepspeed, accelerate_fsdp2
from planner.emit.axolotl import axolotl_files
from planner.emit.deepspeed import CONFIG, deepspeed_config
from planner.emit.hf import hf_files
from planner.emit.kubernetes import pytorch_job
from planner.emit.llama_factory import llama_factory_files
from planner.emit.slurm import sbatch
from planner.emit.stacks import EMITTERS, emit, emit_notes
from planner.emit.text import dump_json
from planner.emit.versions import version_notes
from planner.job import Job
from planner.plan import Plan

Files = tuple[dict[str, str], list[str]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """Files of a target, and what of the plan they lose or the user must know."""

    files: dict[str, str]
    notes: tuple[str, ...] = ()


def convert(job: Job, plan: Plan, target: str) -> Conversion:
    """The plan's files for a target of ``TARGETS``.

    Raises
    ------
    ValueError
        If there is no such target, or it cannot express the plan; the reason.
    """
    if target not in TARGETS:
        raise ValueError(f"target {target!r}: expected one of {', '.join(TARGETS)}")
    files, notes = TARGETS[target](job, plan)
    return Conversion(dict(sorted(files.items())), tuple(dict.fromkeys(notes)))


def targets(job: Job, plan: Plan) -> dict[str, str]:
    """Every target: "" if it can express the plan, else why not."""
    reasons = {}
    for target in TARGETS:
        try:
            convert(job, plan, target)
            reasons[target] = ""
        except ValueError as refusal:
            reasons[target] = str(refusal)
    return reasons


def _other_stack(stack: str) -> Callable[[Job, Plan], Files]:
    def files(job: Job, plan: Plan) -> Files:
        if plan.stack == stack:
            return emit(job, plan), list(emit_notes(job, plan))
        job, plan = on_stack(job, plan, stack)
        return emit(job, plan), [*emit_notes(job, plan), _moved(stack)]

    return files


def on_stack(job: Job, plan: Plan, stack: str) -> tuple[Job, Plan]:
    """The job and the plan as if the other stack had been chosen."""
    known = {s.name for s in job.stacks}
    if stack not in known:
        job = replace(job, stacks=(*job.stacks, load_stack(stack)))
    return job, plan.model_copy(update={"stack": stack})


def _moved(stack: str) -> str:
    return (
        f"the figures of the plan are for its own stack; planner estimate with --stack {stack}"
        " predicts this one"
    )


def _on_deepspeed(job: Job, plan: Plan) -> tuple[Job, Plan, list[str]]:
    """What is built on the Trainer runs the plain DeepSpeed engine."""
    if plan.stack == "deepspeed":
        return job, plan, []
    job, plan = on_stack(job, plan, "deepspeed")
    return job, plan, [_moved("deepspeed")]


def _hf(job: Job, plan: Plan) -> Files:
    job, plan, notes = _on_deepspeed(job, plan)
    files, lost = hf_files(job, plan)
    return files, [*lost, *notes, *version_notes("hf")]


def _llama_factory(job: Job, plan: Plan) -> Files:
    job, plan, notes = _on_deepspeed(job, plan)
    files, lost = llama_factory_files(job, plan)
    lost.append("model_name_or_path and dataset are placeholders")
    return files, [*lost, *notes, *version_notes("llama-factory")]


def _axolotl(job: Job, plan: Plan) -> Files:
    notes: list[str] = []
    if plan.stack != "fsdp2":
        job, plan, notes = _on_deepspeed(job, plan)
    files, lost = axolotl_files(job, plan)
    lost.append("base_model and datasets are placeholders")
    return files, [*lost, *notes, *version_notes("axolotl")]


def _accelerate(job: Job, plan: Plan) -> Files:
    if plan.stack == "fsdp2":
        text, lost = accelerate_fsdp2(job, plan)
        return {FSDP2_CONFIG: text}, [*lost, *version_notes("accelerate")]
    job, plan, notes = _on_deepspeed(job, plan)
    files = {
        "accelerate_deepspeed.yaml": accelerate_deepspeed(job, plan, CONFIG),
        CONFIG: dump_json(deepspeed_config(job, plan)),
    }
    if set(plan.recompute_layers) - {"none"}:
        notes.append("gradient checkpointing is the script's own: Accelerate's file cannot ask it")
    return files, [*notes, *version_notes("accelerate")]


def _slurm(job: Job, plan: Plan) -> Files:
    files = emit(job, plan)
    return {"job.sbatch": sbatch(job, plan), "launch.sh": files["launch.sh"]}, []


def _kubernetes(job: Job, plan: Plan) -> Files:
    files = {"pytorchjob.yaml": pytorch_job(job, plan), "launch.sh": emit(job, plan)["launch.sh"]}
    return files, ["image and volumes of pytorchjob.yaml are placeholders"]


TARGETS: Mapping[str, Callable[[Job, Plan], Files]] = {
    "accelerate": _accelerate,
    "axolotl": _axolotl,
    "hf": _hf,
    "kubernetes": _kubernetes,
    "llama-factory": _llama_factory,
    "slurm": _slurm,
    **{stack: _other_stack(stack) for stack in EMITTERS},
}
