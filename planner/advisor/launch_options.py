"""Options of ``accelerate launch`` as the Accelerate YAML that would say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.advisor.arguments import Launch
from planner.lint.accelerate_keys import DEEPSPEED_KEYS
from planner.lint.document import Document, Path, Place
from planner.lint.launch_rules import ENGINES

MARK = ":launch"  # ends the name of a document that stands on a launch line
# accelerate 1.15.0, commands/launch.py (_validate_launch_command): a switch on the line decides
# the engine, whatever the file says.
_ENGINES = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "multi_gpu": "MULTI_GPU"}
_TOP = ("mixed_precision", "num_processes", "num_machines", "machine_rank")


def section_of(option: str) -> tuple[str, ...] | None:
    """Where the YAML holds an option of the launch line; None if it says nothing of training.

    >>> section_of("zero_stage"), section_of("fsdp_version"), section_of("main_process_port")
    (('deepspeed_config', 'zero_stage'), ('fsdp_config', 'fsdp_version'), None)
    """
    if option in _ENGINES:
        return ("distributed_type",)
    if option in _TOP:
        return (option,)
    if option == "cpu":
        return ("use_cpu",)
    if option in DEEPSPEED_KEYS:
        return ("deepspeed_config", option)
    sections = {"fsdp_": "fsdp_config", "parallelism_config_": "parallelism_config"}
    for prefix, section in sections.items():
        if option.startswith(prefix):
            return (section, option)
    return None


def line_of(launch: Launch) -> Document:
    """The launcher and its options as typed, for the rules on what a launcher refuses."""
    places = {("options", *path): place for path, place in launch.places.items() if path}
    data = {"launcher": launch.launcher, "options": dict(launch.options)}
    return Document(
        "launch", launch.flags.name, data, places, format="arguments", spelling=launch.spelling
    )


def engines_clash(launch: Launch) -> bool:
    """Whether the line names several engines, so that Accelerate starts none."""
    return launch.launcher == "accelerate" and len(launch.options.keys() & set(ENGINES)) > 1


def launch_options(launch: Launch, name: str) -> Document | None:
    """The options of an ``accelerate launch`` line; None if they choose no engine.

    The document's name is the script's with :data:`MARK`, its places are those of the options.
    """
    if not _ENGINES.keys() & launch.options.keys() or engines_clash(launch):
        return None
    data, places = _read(launch)
    return Document("accelerate", name + MARK, data, places, format="arguments")


def under_options(
    launch: Launch, partners: list[Document], name: str
) -> tuple[list[Document], tuple[str, ...]]:
    """The files of a launch as the options of its line leave them, and a note of that.

    An Accelerate YAML among them is overridden; without one the options are a document.
    """
    if launch.launcher != "accelerate":
        return partners, ()
    for index, partner in enumerate(partners):
        if partner.kind == "accelerate":
            if engines_clash(launch):
                return partners, ()
            partners[index] = _over(launch, partner)
            said = [option for option in launch.options if section_of(option) is not None]
            note = f"options of the launch line go before {partner.name}: {', '.join(said)}"
            return partners, (note,) if said else ()
    options = launch_options(launch, name)
    return [*partners, options] if options is not None else partners, ()


def _over(launch: Launch, file: Document) -> Document:
    data = {**file.data}
    for key, value in _read(launch)[0].items():
        data[key] = {**file.section(key), **value} if isinstance(value, Mapping) else value
    return replace(file, data=data)


def _read(launch: Launch) -> tuple[dict[str, Any], dict[Path, Place]]:
    data: dict[str, Any] = {}
    places: dict[Path, Place] = {}
    for option, value in launch.options.items():
        path = section_of(option)
        if path is None:
            continue
        inner = data if len(path) == 1 else data.setdefault(path[0], {})
        if option in _ENGINES:
            value = _ENGINES[option]
        inner[path[-1]] = value
        place = launch.places.get((option,), Place(1, 1))
        places[path] = place
        for above in ((), path[:-1]):
            places.setdefault(above, place)
    return data, places
