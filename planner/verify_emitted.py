"""The files of a bundle against those its plan emits, setting by setting."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

import yaml

from planner.advisor.source import Unreadable
from planner.emit import emit
from planner.emit.deepspeed import CONFIG
from planner.hf_config import read_config
from planner.job import Job
from planner.plan import Plan, Result
from planner.verify_python import python_differences
from planner.verify_settings import (
    ABSENT,
    ACCELERATE_OWN,
    DEEPSPEED_OWN,
    Difference,
    document_differences,
    script_differences,
)

MODEL = "model_config.json"
# Keys of a Hugging Face configuration that change no network: token ids, caches, metadata.
MODEL_OWN = re.compile(
    r"(bos|eos|pad|sep|cls|unk|decoder_start)_token_id$|use_cache$|_name_or_path$|(torch_)?dtype$"
    r"|transformers_version$|architectures$|initializer_range$|(rms_norm|layer_norm)_eps(ilon)?$"
)
ANY = re.compile("")
NAMES_ONLY = ("name", "published_parameters")  # of an Architecture, no shape


class DuplicateKey(ValueError):
    """A JSON or YAML object that has a key twice."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """``object_pairs_hook`` of :func:`json.loads` that refuses a key given twice.

    Raises
    ------
    DuplicateKey
        If one is.
    """
    out = dict(pairs)
    if len(out) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DuplicateKey(f"key {twice!r} is given twice")
    return out


def repeated_yaml_keys(text: str) -> list[str]:
    """Keys a YAML text gives twice in one mapping, in words.

    Raises
    ------
    yaml.YAMLError
        If it is not YAML.
    """
    found, open_nodes = [], list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    seen: set[int] = set()  # an alias is the node it stands for, and may lie inside it
    while open_nodes:
        node = open_nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            open_nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            found += [f"key {k!r} is given twice" for k in dict.fromkeys(keys) if keys.count(k) > 1]
            open_nodes += [value for _, value in node.value]
    return found


def missing_files(result: Result, texts: Mapping[str, str]) -> list[str]:
    """Names plan.json lists that are not in the folder; paths count by their last part."""
    names = (PurePath(path).name for path in result.files)
    return [name for name in dict.fromkeys(names) if name not in texts]


def compare_emitted(
    job: Job, plan: Plan, texts: Mapping[str, str]
) -> tuple[int, list[str], list[str]]:
    """How many files the plan emits, what in the folder contradicts it, and what was edited.

    Raises
    ------
    ValueError
        If the plan's stack cannot express it.
    """
    emitted = emit(job, plan)
    wrong: list[str] = []
    edited: list[str] = []
    for name, expected in emitted.items():
        if name not in texts:
            wrong.append(f"{name}: missing")
        elif texts[name] != expected:
            for difference in differing(name, texts[name], expected):
                (wrong if difference.decided else edited).append(f"{name} {difference}")
    return len(emitted), wrong, edited


def differing(name: str, found: str, expected: str) -> list[Difference]:
    """The settings of one file that are not as emitted; a broken file is one difference."""
    try:
        return list(_differing(name, found, expected))
    except (ValueError, SyntaxError, RecursionError, yaml.YAMLError, Unreadable) as error:
        said = " ".join(str(error).split())
        return [Difference("cannot be read", said, "a readable file", True)]


def _differing(name: str, found: str, expected: str) -> Iterator[Difference]:
    if name == MODEL:
        yield from _model_differences(found, expected)
    elif name.endswith(".json"):
        own = DEEPSPEED_OWN if name == CONFIG else ANY  # any other shapes the tiny run alone
        yield from document_differences(json.loads(found), json.loads(expected), own)
    elif name.endswith((".yaml", ".yml")):
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(found)):
            raise ValueError("an alias (*name) is not compared: write its value out")
        documents = yaml.safe_load(found), yaml.safe_load(expected)
        yield from document_differences(*documents, ACCELERATE_OWN)
    elif name.endswith((".sh", ".sbatch")):
        yield from script_differences(found, expected)
    elif name.endswith(".py"):
        yield from python_differences(name, found, expected)
    else:
        yield _at_line(first_line(found, expected))


def _at_line(line: int) -> Difference:
    return Difference("text", f"differs from what the plan emits at line {line}", "", True)


def first_line(found: str, expected: str) -> int:
    """Number of the first line that differs. [-]

    >>> first_line("a\\nb", "a\\nc")
    2
    """
    lines, others = found.splitlines(), expected.splitlines()
    pairs = enumerate(zip(lines, others, strict=False), start=1)
    return next((n for n, (a, b) in pairs if a != b), min(len(lines), len(others)) + 1)


def _model_differences(found: str, expected: str) -> Iterator[Difference]:
    """Keys of a model's configuration; published ones have more keys and leave defaults out."""
    differences = list(document_differences(json.loads(found), json.loads(expected), MODEL_OWN))
    same = _same_network(found, expected)
    for difference in differences:
        decided = difference.decided and not (same and _defaulted(difference))
        yield Difference(difference.place, difference.found, difference.expected, decided)


def _defaulted(difference: Difference) -> bool:
    """Whether a key is given in one configuration alone and may mean the same as no key.

    Probabilities of dropout do not show in a network's shape, and of those not given only
    ``attention_dropout`` is 0 in every family (transformers 5.24, configuration classes).
    """
    values = {difference.found, difference.expected}
    if ABSENT not in values or "drop" not in difference.place:
        return ABSENT in values
    added = difference.expected == ABSENT
    return values <= {ABSENT, "0.0", "0"} and (added or difference.place == "attention_dropout")


def _same_network(found: str, expected: str) -> bool:
    """Whether two configurations describe one network, as the planner reads them."""
    shapes = []
    with tempfile.TemporaryDirectory() as scratch:
        for index, text in enumerate((found, expected)):
            path = Path(scratch) / f"{index}.json"
            path.write_text(text, encoding="utf-8")
            try:
                shape = asdict(read_config(path)[0])
            except ValueError:
                return False
            shapes.append({k: v for k, v in shape.items() if k not in NAMES_ONLY})
    return shapes[0] == shapes[1]
