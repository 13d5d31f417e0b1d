"""Files of every kind as documents, with the partner files they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from planner.advisor.arguments import FILE_FLAGS, Launch, find_launch, other_launches
from planner.advisor.flags import parse_flags
from planner.advisor.shell import Word
from planner.advisor.source import Source, Unreadable, decode, read_source
from planner.lint.document import Document, Flaw, Format, Path, Place, dotted
from planner.lint.names import names

KINDS = ("deepspeed", "accelerate", "trainer", "llamafactory", "axolotl", "megatron", "plan")

_DEEPSPEED_MARKS = {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"}
_DEEPSPEED_MARKS |= {"fp16", "bf16", "gradient_accumulation_steps", "zero_allow_untested_optimizer"}
_DEEPSPEED_MARKS |= {"steps_per_print", "wall_clock_breakdown", "aio"}
_ACCELERATE_MARKS = {"distributed_type", "compute_environment", "num_processes", "fsdp_config"}
_ACCELERATE_MARKS |= {"deepspeed_config", "machine_rank", "main_training_function", "num_machines"}
_AXOLOTL_MARKS = {"base_model", "sequence_len", "micro_batch_size", "sample_packing", "datasets"}
_AXOLOTL_MARKS |= {"load_in_8bit", "load_in_4bit", "adapter", "dataset_prepared_path"}
_LLAMAFACTORY_MARKS = {"model_name_or_path", "finetuning_type", "stage", "template", "cutoff_len"}
_LLAMAFACTORY_MARKS |= {"do_train", "per_device_train_batch_size", "dataset", "dataset_dir"}
_ALONE = {"base_model", "model_name_or_path", "distributed_type", "deepspeed_config"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A file, the launch line in it if it is a script, and the partner files found with it.

    ``missing`` names partner files that are mentioned but cannot be read.
    """

    document: Document
    launch: Launch | None = None
    partners: tuple[Document, ...] = ()
    missing: tuple[str, ...] = ()
    unknown_variables: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what of the file is not looked at


def read_file(path: FilePath, follow: bool = True) -> Reading:
    """A file as a document, whatever its kind.

    Parameters
    ----------
    path : Path
        The file. Its kind follows from its name and its keys.
    follow : bool
        Whether to read the files it names (a DeepSpeed file in an Accelerate YAML, say).

    Raises
    ------
    Unreadable
        With one line: what is wrong and where.
    """
    return read_text(read_source(path), follow)


def read_text(source: Source, follow: bool = True) -> Reading:
    """``read_file`` for text already at hand."""
    suffix = FilePath(source.name).suffix.lower()
    start = source.text.lstrip()[:2]
    if suffix in (".json", ".jsonc", ".hjson") or (
        suffix not in (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", ".txt", ".args")
        and start[:1] == "{"
    ):
        return _with_partners(_json(source), source, follow)
    if suffix in (".yaml", ".yml"):
        return _with_partners(_yaml(source), source, follow)
    return _shell(source, follow)


def read_arguments(text: str, name: str = "--args", kind: str = "") -> Document:
    """Flags given as one text, such as ``--bf16 --learning_rate 1e-5``.

    >>> read_arguments("--bf16 --gradient_accumulation_steps 8").data
    {'bf16': True, 'gradient_accumulation_steps': 8}
    """
    from planner.advisor.shell import read_script

    text = decode(text.encode("utf-8", "replace"), name)
    script = read_script(text, name)
    words = [word for command in script.commands for word in command]
    document = parse_flags(words, name, text=text)
    from planner.advisor.flags import flags_kind

    return replace(document, kind=kind or flags_kind(document.data))


def _json(source: Source) -> Document:
    from planner.advisor.read_json import read_json

    value, places, flaws = read_json(source.text, source.name)
    if source.mark:
        flaws = (*flaws, Flaw("byte-mark", (), Place(1, 1), source.mark))
    return _document(source, "json", value, places, flaws)


def _yaml(source: Source) -> Document:
    from planner.advisor.read_yaml import read_yaml

    value, places, flaws = read_yaml(source.text, source.name)
    return _document(source, "yaml", value, places, flaws)


def _document(
    source: Source,
    format: Format,
    value: Any,
    places: Mapping[Path, Place],
    flaws: tuple[Flaw, ...],
) -> Document:
    document = Document(
        kind="",
        name=source.name,
        data=value,
        places=places,
        flaws=flaws,
        format=format,
        text=source.text,
    )
    return replace(document, kind=_kind(_mapping(document)))


def _mapping(document: Document) -> Document:
    if not isinstance(document.data, Mapping):
        kind = type(document.data).__name__
        what = "null" if document.data is None else f"a {kind}"
        raise Unreadable(document.name, f"holds {what}; expected a mapping of settings", 1)
    return document


def _kind(document: Document) -> str:
    """The kind whose keys a mapping has most of."""
    keys = {str(key) for key in document.data}
    if {"schema_version", "plan"} <= keys or {"stack", "stages", "zero_stage"} <= keys:
        return "plan"
    scores = {
        "deepspeed": len(keys & _DEEPSPEED_MARKS),
        "accelerate": len(keys & _ACCELERATE_MARKS),
        "axolotl": len(keys & _AXOLOTL_MARKS),
        "llamafactory": len(keys & _LLAMAFACTORY_MARKS),
    }
    best = max(scores, key=lambda kind: scores[kind])
    if document.format == "json" and not keys:
        return "deepspeed"
    if document.format == "yaml" and best == "deepspeed" and "zero_optimization" not in keys:
        best = max(("accelerate", "axolotl", "llamafactory"), key=lambda kind: scores[kind])
    if 25 * scores[best] < len(keys) or scores[best] < (
        1 if best == "deepspeed" or keys & _ALONE else 2
    ):
        raise Unreadable(
            document.name,
            "not a known kind of file; expected a DeepSpeed JSON, an Accelerate, LLaMA-Factory or"
            " axolotl YAML, a launch script, or a plan.json",
            1,
        )
    if best == "llamafactory" and not keys & {"finetuning_type", "template", "cutoff_len", "stage"}:
        return "trainer" if keys & names("trainer") else best
    return best


def _shell(source: Source, follow: bool) -> Reading:
    from planner.advisor.launch_options import under_options
    from planner.advisor.shell import read_script

    script = read_script(source.text, source.name)
    launch = find_launch(script, source.name, source.text)
    if launch is None:
        inner = _inner_script(script.commands, source) if follow else None
        if inner is not None:
            return inner
        raise Unreadable(
            source.name,
            "no training launch found; expected accelerate launch, torchrun, deepspeed,"
            " llamafactory-cli, axolotl, or python with trainer or Megatron flags",
        )
    partners: list[Document] = []
    missing: list[str] = []
    wanted = dict(_named_files({**launch.options, **launch.flags.data}))
    if launch.launcher in ("llamafactory", "axolotl") and launch.target:
        wanted[launch.target] = launch.launcher
    for name, kind in wanted.items():
        found = _written(script.files, name) or (_partner(name, source) if follow else None)
        if found is None:
            missing.append(name)
        else:
            partners.append(found if found.kind in KINDS else replace(found, kind=kind))
    if follow and FilePath(launch.target).name == "train.py":
        partners += _bundle(source, {p.kind for p in partners})
    elif follow and FilePath(source.name).name == "launch.sh":
        partners += _bundle(source, {p.kind for p in partners} | {"deepspeed"})
    for partner in tuple(partners):
        deeper = _with_partners(partner, replace(source, name=partner.name), follow)
        partners += [p for p in deeper.partners if p.name not in {q.name for q in partners}]
        missing += deeper.missing
    notes = other_launches(script, launch, source.name, source.text)
    partners, said = under_options(launch, partners, source.name)
    notes = (*notes, *said)
    return Reading(launch.flags, launch, tuple(partners), tuple(missing), script.unknown, notes)


def _inner_script(commands: Sequence[Sequence[Word]], source: Source) -> Reading | None:
    """The script that a job file hands over to, when it stands beside it."""
    for word in (word for command in commands for word in command):
        name = FilePath(word.text).name
        if not name.endswith((".sh", ".bash")) or name == FilePath(source.name).name:
            continue
        path = source.folder / name if source.folder is not None else None
        try:
            if path is not None and path.is_file():
                return _shell(read_source(path), follow=True)
        except (Unreadable, OSError, RecursionError):
            return None
    return None


def _bundle(source: Source, kinds: set[str]) -> list[Document]:
    """The files of a bundle written by the planner, beside its launch script."""
    wanted = {"plan": "plan.json", "deepspeed": "deepspeed_config.json"}
    found = [_partner(name, source) for kind, name in wanted.items() if kind not in kinds]
    return [document for document in found if document is not None]


def _named_files(data: Mapping[str, Any]) -> dict[str, str]:
    """Files named by flags or keys, with the kind expected."""
    out: dict[str, str] = {}
    for key, kind in FILE_FLAGS.items():
        value = data.get(key)
        if isinstance(value, str) and value.lower().endswith((".json", ".yaml", ".yml")):
            out[value] = kind
    return out


def _written(files: Mapping[str, tuple[str, int]], name: str) -> Document | None:
    """A DeepSpeed file that the script itself writes."""
    from planner.advisor.read_json import read_json

    if name not in files:
        return None
    text, line = files[name]
    try:
        value, places, flaws = read_json(text, name, line)
    except Unreadable:
        return None
    if not isinstance(value, Mapping):
        return None
    return Document("deepspeed", name, value, places, flaws, "json", text)


def _partner(name: str, source: Source) -> Document | None:
    """A file named in another, beside it or below the folders above it."""
    if source.folder is None or "\ufffd" in name or FilePath(name).is_absolute():
        return None
    for folder in (source.folder, *list(source.folder.absolute().parents)[:4]):
        path = folder / name
        try:
            if path.is_file():
                return read_text(read_source(path), follow=False).document
        except (Unreadable, OSError):
            return None
    beside = source.folder / FilePath(name).name
    try:
        return read_text(read_source(beside), follow=False).document if beside.is_file() else None
    except (Unreadable, OSError):
        return None


def _with_partners(document: Document, source: Source, follow: bool) -> Reading:
    """A document with the DeepSpeed file it names."""
    if document.kind == "plan" or document.kind == "deepspeed":
        return Reading(document)
    data: dict[str, Any] = dict(document.data)
    if document.kind == "accelerate":
        data = dict(document.section("deepspeed_config"))
    partners: list[Document] = []
    missing: list[str] = []
    inline = document.get("deepspeed")
    if isinstance(inline, Mapping):
        places = {p[1:]: q for p, q in document.places.items() if p[:1] == ("deepspeed",)}
        partners.append(
            Document("deepspeed", f"{document.name}:{dotted(('deepspeed',))}", inline, places)
        )
    for name in _named_files(data):
        found = _partner(name, source) if follow else None
        if found is None:
            missing.append(name)
        else:
            partners.append(replace(found, kind="deepspeed"))
    return Reading(document, None, tuple(partners), tuple(missing))
