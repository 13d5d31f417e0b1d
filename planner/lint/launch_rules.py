"""The options of a launcher, before the training script: what the launcher itself refuses."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.accelerate_sections import LAUNCH
from planner.lint.document import as_int
from planner.lint.names import names, nearest
from planner.lint.rule import Facts, Hit, Rule

# Switches of which accelerate 1.15.0 takes one (commands/launch.py, _validate_launch_command).
ENGINES = ("cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp")
# Options by launcher, and whether argparse completes the beginning of a long one.
_OPTIONS = {
    "accelerate": ("accelerate_launch", "accelerate launch", False),
    "torchrun": ("torchrun", "torchrun", True),
    "deepspeed": ("deepspeed_launch", "the deepspeed launcher", True),
}


def unknown_option(facts: Facts) -> Iterator[Hit]:
    """An option that argparse does not know."""
    doc = facts.doc
    launcher = str(doc.get("launcher", default=""))
    if launcher not in _OPTIONS:
        return
    which, title, completes = _OPTIONS[launcher]
    known = names(which)
    for name in doc.section("options"):
        typed = doc.spelling.get(name, f"--{name}")
        if name in known or not typed.startswith("--"):
            continue
        if completes and any(long.startswith(name) for long in known):
            continue
        close = nearest(name, known)
        meant = f"write --{close}" if close else "take it out, or put it behind the script"
        yield Hit(("options", name), {"typed": typed, "launcher": title, "meant": meant})


def several_engines(facts: Facts) -> Iterator[Hit]:
    """More than one engine."""
    given = _given(facts)
    if len(given) > 1:
        listed = " and ".join(f"--{name}" for name in given)
        yield Hit(("options", given[1]), {"listed": listed})


def one_process(facts: Facts) -> Iterator[Hit]:
    """Several GPUs, one process."""
    count = as_int(facts.doc.get("options", "num_processes"))
    if "multi_gpu" in _given(facts) and count is not None and count < 2:
        yield Hit(("options", "num_processes"), {"count": count})


def parallelism_alone(facts: Facts) -> Iterator[Hit]:
    """Parallel degrees without FSDP."""
    asked = facts.doc.has("options", "use_parallelism_config")
    launched = facts.doc.get("launcher") == "accelerate"
    if launched and asked and "use_fsdp" not in _given(facts):
        yield Hit(("options", "use_parallelism_config"))


def _given(facts: Facts) -> tuple[str, ...]:
    if facts.doc.get("launcher") != "accelerate":
        return ()
    return tuple(name for name in facts.doc.section("options") if name in ENGINES)


_CHECKS = f"{LAUNCH} (_validate_launch_command)"

RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "launch-unknown-option",
        "error",
        "{typed} is no option of {launcher}: argparse stops",
        "{meant}",
        f"{LAUNCH}; PyTorch torch/distributed/run.py; DeepSpeed 0.19.8, launcher/runner.py",
        unknown_option,
    ),
    Rule(
        "launch-engines",
        "error",
        "{listed} are given together; Accelerate takes only one of --cpu, --multi_gpu, --tpu,"
        " --use_deepspeed and --use_fsdp, and stops",
        "leave the one that is meant",
        _CHECKS,
        several_engines,
    ),
    Rule(
        "launch-one-process",
        "error",
        "--multi_gpu with {count} process: Accelerate stops",
        "give 2 or more, or leave --multi_gpu out",
        _CHECKS,
        one_process,
    ),
    Rule(
        "launch-parallelism",
        "error",
        "--use_parallelism_config without --use_fsdp: Accelerate stops",
        "add --use_fsdp --fsdp_version 2",
        _CHECKS,
        parallelism_alone,
    ),
)
