"""One emitter a stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.emit import megatron, megatron_deepspeed, torchtitan
from planner.emit.accelerate import FSDP2_CONFIG, accelerate_fsdp2, emit_accelerate_fsdp2
from planner.emit.deepspeed import CONFIG, deepspeed_config
from planner.emit.families import decoder_layer
from planner.emit.launch import Launch, Script, launch_script
from planner.emit.layout import layout, rounds_pinned
from planner.emit.rope import megatron_note, unscaled_note
from planner.emit.slurm import sbatch
from planner.emit.text import dump_json
from planner.emit.torchtitan import model_refusal
from planner.emit.train import train_files
from planner.emit.versions import version_notes
from planner.job import Job
from planner.plan import Plan

TRAIN = "train.py"


def emit(job: Job, plan: Plan) -> dict[str, str]:
    """File name to text: everything the plan's stack needs to run.

    Several nodes get a ``job.sbatch`` too.

    Raises
    ------
    ValueError
        If the stack cannot express a choice of the plan; the reason.
    """
    if plan.stack not in EMITTERS:
        raise ValueError(
            f"stack {plan.stack!r} has no emitter: expected one of {', '.join(EMITTERS)}"
        )
    files = EMITTERS[plan.stack](job, plan)
    if layout(job, plan).nodes > 1:
        files["job.sbatch"] = sbatch(job, plan)
    return dict(sorted(files.items()))


def emit_notes(job: Job, plan: Plan) -> tuple[str, ...]:
    """What to know of the files of ``emit`` that they do not say themselves."""
    notes = version_notes(plan.stack)
    if plan.stack == "deepspeed":
        notes += _deepspeed_notes(job, plan)
    if rounds_pinned(plan):
        notes.append("launch.sh names pinned_max_round_threshold_mb, which torch knows from 2.13")
    if plan.stack == "fsdp2":
        notes += _fsdp2_notes(job, plan)
    notes += _rope_notes(job, plan)
    return tuple(notes)


def _rope_notes(job: Job, plan: Plan) -> list[str]:
    """Scaling of rotary positions that a stack's files cannot ask for."""
    arch = job.architecture
    if plan.stack == "megatron":
        note = megatron_note(arch)
    elif plan.stack == "megatron-deepspeed":
        note = unscaled_note(arch, megatron_deepspeed.NAME)
    elif plan.stack == "fsdp2" and not model_refusal(job):
        note = torchtitan.rope_note(arch)
    else:
        return []
    return [note] if note else []


def job_refusal(job: Job, stack: str) -> str:
    """Why no plan of this job can be launched on a stack; empty if one may be.

    Network, GPU, optimizer and loss only: the search can drop the stack before it looks at plans.
    On ``fsdp2`` a network that torchtitan has no code for still runs through Accelerate, without
    pipeline or tensor parallelism; ``model_refusal`` tells which those are.
    """
    checks = {
        "megatron": megatron.check_job,
        "megatron-deepspeed": megatron_deepspeed.check_job,
        "fsdp2": _fsdp2_job,
    }
    try:
        checks.get(stack, lambda _: None)(job)
    except ValueError as refusal:
        return str(refusal)
    return ""


def _fsdp2_job(job: Job) -> None:
    if model_refusal(job):
        decoder_layer(job.architecture)
    else:
        torchtitan.check_job(job)


def _deepspeed_notes(job: Job, plan: Plan) -> list[str]:
    """What the JSON alone would not do, and who does it."""
    checkpoints = any(count for name, count in plan.recompute_layers.items() if name != "none")
    beyond = [
        text
        for text, needed in (
            ("checkpoints the layers", checkpoints),
            ("cuts the stages", plan.pp > 1),
            ("chooses the attention kernel", True),
        )
        if needed
    ]
    try:
        train_files(job, plan)
    except ValueError as refusal:
        return [f"no {TRAIN} ({refusal}): your script must be what {', '.join(beyond)}"]
    if not checkpoints and plan.pp == 1:
        return []
    return [f"{CONFIG} alone does not run this plan: {TRAIN} {', '.join(beyond)}"]


def _deepspeed(job: Job, plan: Plan) -> dict[str, str]:
    config = dump_json(deepspeed_config(job, plan))
    try:
        script, train = Script(bundled=TRAIN), train_files(job, plan)
    except ValueError as refusal:  # emit_notes repeats it
        script, train = Script(missing=f"set TRAIN_SCRIPT: {refusal}"), {}
    launch = Launch(
        script=script,
        plan_args=[("--deepspeed",), ("--deepspeed_config", f"$HERE/{CONFIG}")],
    )
    return {CONFIG: config, "launch.sh": launch_script(job, plan, launch), **train}


def _fsdp2(job: Job, plan: Plan) -> dict[str, str]:
    if model_refusal(job):
        return emit_accelerate_fsdp2(job, plan)
    files = torchtitan.emit_torchtitan(job, plan)
    try:
        files[FSDP2_CONFIG] = accelerate_fsdp2(job, plan)[0]
    except ValueError:  # emit_notes says why; torchtitan is what the stack stands for
        return files
    return files


def _fsdp2_notes(job: Job, plan: Plan) -> list[str]:
    refusal = model_refusal(job)
    if refusal:
        return [
            f"{refusal}: launch.sh runs a script of yours through Accelerate, with per-device"
            f" batch {plan.micro_batch} and {plan.grad_accum} accumulation steps"
        ]
    notes = []
    if plan.precision == "fp8":
        notes.append("fp8 linears of torchtitan come from torchao, to be installed beside it")
    try:
        return notes + accelerate_fsdp2(job, plan)[1]
    except ValueError as reason:
        return [*notes, f"no {FSDP2_CONFIG}: {reason}"]


EMITTERS: Mapping[str, Callable[[Job, Plan], dict[str, str]]] = {
    "deepspeed": _deepspeed,
    "megatron-deepspeed": megatron_deepspeed.emit_megatron_deepspeed,
    "megatron": megatron.emit_megatron,
    "fsdp2": _fsdp2,
}
