"""Scheduler of a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.deepspeed_facts import DeepSpeedFacts
from planner.lint.deepspeed_sources import HF_DEEPSPEED
from planner.lint.deepspeed_words import SCHEDULERS
from planner.lint.document import as_number
from planner.lint.names import nearest
from planner.lint.rule import Hit, Rule, remove_key, set_key

# torch.optim.lr_scheduler of PyTorch 2.
_TORCH_SCHEDULERS = frozenset(
    [
        "LambdaLR",
        "MultiplicativeLR",
        "StepLR",
        "MultiStepLR",
        "ConstantLR",
        "LinearLR",
        "ExponentialLR",
        "PolynomialLR",
        "CosineAnnealingLR",
        "ChainedScheduler",
        "SequentialLR",
        "ReduceLROnPlateau",
        "CyclicLR",
        "OneCycleLR",
        "CosineAnnealingWarmRestarts",
    ]
)

# Parameters without a default (DeepSpeed 0.19.8, deepspeed/runtime/lr_schedules.py).
_NEEDED = {
    "WarmupDecayLR": ("total_num_steps",),
    "WarmupCosineLR": ("total_num_steps",),
    "OneCycle": ("cycle_min_lr", "cycle_max_lr"),
}


def unknown_scheduler(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A scheduler DeepSpeed does not have."""
    name = facts.doc.get("scheduler", "type")
    torch_like = name in _TORCH_SCHEDULERS
    if isinstance(name, str) and name not in SCHEDULERS:
        close = nearest(name, SCHEDULERS, 0.6)
        patch = (set_key("scheduler", "type", value=close),) if close else ()
        values = {"name": name, "known": ", ".join(SCHEDULERS)}
        yield Hit(("scheduler", "type"), values, patch, "info" if torch_like else "error")


def missing_parameter(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Parameters without which a scheduler cannot be made."""
    name = facts.doc.get("scheduler", "type")
    given = facts.doc.section("scheduler", "params")
    for need in _NEEDED.get(str(name), ()):
        if need not in given:
            where = ("scheduler", "params") if facts.doc.has("scheduler", "params") else None
            yield Hit(where or ("scheduler",), {"name": name, "need": need})


def warmup_steps(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """No warm-up steps: refused since 0.19.6."""
    path = ("scheduler", "params", "warmup_num_steps")
    steps = as_number(facts.doc.get(*path))
    if steps is not None and steps <= 0:
        severity = "error" if facts.version >= (0, 19, 6) else "info"
        yield Hit(path, {"steps": steps}, (set_key(*path, value=1),), severity)  # type: ignore[arg-type]


def total_steps(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A decay over no steps."""
    path = ("scheduler", "params", "total_num_steps")
    steps = as_number(facts.doc.get(*path))
    warmup = as_number(facts.doc.get("scheduler", "params", "warmup_num_steps")) or 0
    if steps is not None and steps <= max(0, warmup):
        yield Hit(path, {"steps": steps, "warmup": warmup})


def flat_scheduler(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A scheduler in the file takes the place of the one on the command line."""
    kind = facts.doc.get("scheduler", "type")
    if not isinstance(kind, str) or kind not in SCHEDULERS or not facts.ctx.hugging_face:
        return
    asked = facts.ctx.flag("lr_scheduler_type")
    shape = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
    if kind == "WarmupLR" or (isinstance(asked, str) and shape.get(kind, kind) not in asked):
        wrong = isinstance(asked, str) and shape.get(kind, kind) not in asked
        values = {"kind": kind, "shape": shape.get(kind, kind)}
        severity = "warning" if wrong else "info"
        yield Hit(("scheduler", "type"), values, (remove_key("scheduler"),), severity)  # type: ignore[arg-type]


_LR = "DeepSpeed 0.19.8, deepspeed/runtime/lr_schedules.py"

RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-unknown-scheduler",
        "error",
        "{name} is no scheduler of DeepSpeed ({known}); a class of torch.optim.lr_scheduler would"
        " do",
        "use one of {known}",
        _LR,
        unknown_scheduler,
    ),
    Rule(
        "ds-scheduler-parameter",
        "error",
        "{name} cannot be made without {need}",
        "add {need}",
        _LR,
        missing_parameter,
    ),
    Rule(
        "ds-warmup-steps",
        "error",
        "warmup_num_steps is {steps}; DeepSpeed refuses it since 0.19.6",
        "use 1 for no warm-up",
        _LR,
        warmup_steps,
    ),
    Rule(
        "ds-total-steps",
        "error",
        "total_num_steps {steps} leaves nothing to decay after {warmup} warm-up steps",
        "give the number of optimizer steps",
        _LR,
        total_steps,
    ),
    Rule(
        "ds-scheduler-overrides",
        "info",
        "{kind} in the file decides the learning rate ({shape} after warm-up); --lr_scheduler_type"
        " is not used",
        "take the scheduler section out to use the trainer's",
        f"{HF_DEEPSPEED} (deepspeed_optim_sched)",
        flat_scheduler,
    ),
)
