"""The sections of an Accelerate YAML, and the sources that rules cite."""

from __future__ import annotations

from planner.lint.document import Path, Value, as_int
from planner.lint.rule import Facts

DS, FSDP = "deepspeed_config", "fsdp_config"


def fsdp_section(facts: Facts) -> dict[str, Value]:
    """The FSDP section with the prefix that Accelerate adds itself."""
    section = facts.doc.section(FSDP)
    return {k if k.startswith("fsdp") else f"fsdp_{k}": v for k, v in section.items()}


def fsdp_path(facts: Facts, name: str) -> Path:
    bare = name.removeprefix("fsdp_")
    return (FSDP, bare if facts.doc.has(FSDP, bare) else name)


def fsdp_version(facts: Facts) -> int:
    return as_int(fsdp_section(facts).get("fsdp_version")) or 1


ACC = "accelerate 1.15.0, src/accelerate/"
CLASSES = f"{ACC}utils/dataclasses.py"
LAUNCH = f"{ACC}commands/launch.py"
LAUNCH_UTILS = f"{ACC}utils/launch.py"
