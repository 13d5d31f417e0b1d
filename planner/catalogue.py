"""Model names: the catalogue, bare sizes, and paths, each to an Architecture.

Names match without regard to case, ``-``, ``_``, spaces, the organisation and an ``-hf`` suffix,
never the decimal point. ``planner/models/index.yaml`` says which file holds which model; only
that file is then read.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ConfigDict, ValidationError

from costmodels.architecture import Architecture
from planner.hf_config import read_config
from planner.shape import Count, Shape, first_problem
from planner.textfile import plain_name, read_text, repeated_key

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SIZE = re.compile(r"\d+(\.\d+)?[bmt]")
_HEAD = re.compile(r"([a-z]+)[\d.]*?((?:\d+x)?\d+(?:\.\d+)?[bmt])?")


class Entry(Shape):
    """A model of the catalogue: its shape, its counts, and where both are from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: Count | int  # what the formulas must count
    published: Count | int  # what its makers or the checkpoint say
    source: str
    published_source: str
    active_parameters: int | None = None
    difference: str = ""  # why published is more than 0.1 % from parameters
    note: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a model argument means.

    ``how``: ``catalogue``, ``config.json`` or ``yaml``. ``note``: what was taken for what, empty
    if nothing needs saying.
    """

    architecture: Architecture
    how: str
    note: str = ""


@cache
def _read(name: str) -> dict[str, Any]:
    text = (resources.files("planner") / "models" / name).read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.load(text, Loader=_LOADER)
    return data


@cache
def _files() -> dict[str, str]:
    """Catalogue name -> file."""
    return {name: file for file, models in _read("index.yaml")["files"].items() for name in models}


@cache
def model_names() -> tuple[str, ...]:
    """Every model of the catalogue, in its order."""
    return tuple(_files())


def model_aliases(name: str) -> tuple[str, ...]:
    """What else a model of the catalogue is called."""
    return tuple(_read("index.yaml")["files"][_files()[name]][name])


def bare_sizes() -> dict[str, str]:
    """Bare size -> the catalogue model it means."""
    return dict(_read("index.yaml")["sizes"])


@cache
def load_entry(name: str) -> Entry:
    """A model's entry, by its exact catalogue name.

    Raises
    ------
    ValueError
        If the catalogue has no such name.
    """
    if name not in _files():
        raise ValueError(_unknown(name))
    data = _read(_files()[name])
    texts = {key: data.get(key, "") for key in ("source", "published_source")}
    return Entry.model_validate({**texts, **data["defaults"], **data["models"][name], "name": name})


@cache
def load_model(name: str) -> Architecture:
    """A model of the catalogue, by its exact name.

    Raises
    ------
    ValueError
        If the catalogue has no such name.

    Examples
    --------
    >>> load_model("llama2-13b").layers
    40
    """
    entry = load_entry(name)
    return entry.architecture(entry.published)


def normal_form(text: str) -> str:
    """A name without what does not matter: case, ``-_`` and spaces, organisation, ``-hf``.

    Examples
    --------
    >>> normal_form("meta-llama/Llama-2-13b-hf")
    'llama213b'
    """
    name = text.strip().lower().rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[-_\s]", "", re.sub(r"[-_\s]hf$", "", name))


@cache
def _by_normal_form() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for models in _read("index.yaml")["files"].values():
        for name, aliases in models.items():
            for spelling in {normal_form(s) for s in (name, *aliases)}:
                found[spelling] = (*found.get(spelling, ()), name)
    return found


def _without_variant(text: str) -> str:
    """The name without the words that leave the shape alone, such as ``chat``."""
    words = re.split(r"[-_\s]+", text.strip().lower().rstrip("/").rsplit("/", 1)[-1])
    variants = {*_read("index.yaml")["variants"], "hf"}
    return "".join(word for word in words if word not in variants)


def find_model(text: str) -> tuple[str, str]:
    """The catalogue name that ``text`` means, and a note on how.

    Raises
    ------
    ValueError
        If it is ambiguous (the message lists the candidates) or unknown (near matches).
    """
    text = " ".join(text.split())
    plain = normal_form(text)
    if _SIZE.fullmatch(plain):
        return _find_size(plain)
    names = _by_normal_form()
    if plain in names:
        name = _only(text, names[plain])
        return name, "" if plain == normal_form(name) else f"{text} is {name} in the catalogue"
    bare = _without_variant(text)
    if bare in names:
        name = _only(text, names[bare])
        return name, f"{text} has the shape of {name}"
    candidates = _candidates(bare)
    if len(candidates) > 1:
        raise ValueError(f"model {text!r} is ambiguous: {', '.join(candidates)}")
    raise ValueError(_unknown(text))


def _find_size(size: str) -> tuple[str, str]:
    sizes = bare_sizes()
    if size not in sizes:
        raise ValueError(
            f"no model stands for the bare size {size!r}: name one, or use {', '.join(sizes)}"
        )
    return sizes[size], f"{size} means {sizes[size]}"


def _only(text: str, names: tuple[str, ...]) -> str:
    if len(names) > 1:
        raise ValueError(f"model {text!r} is ambiguous: {', '.join(names)}")
    return names[0]


def _candidates(plain: str) -> list[str]:
    """Models whose name begins with ``plain``, or that share its family word and size."""
    if not plain:
        return []
    boundary = r"(?!\d)" if plain[-1].isdigit() else ""
    begins = re.compile("[-_]?".join(map(re.escape, plain)) + boundary)
    found = [name for name in model_names() if begins.match(name)]
    head = _HEAD.fullmatch(plain)
    if found or head is None or head[2] is None:
        return found
    shares = re.compile(rf"{head[1]}[a-z]*[-\d.]*?(?<![\d.]){re.escape(head[2])}(?!\d).*")
    return [name for name in model_names() if shares.fullmatch(name)]


def _unknown(text: str) -> str:
    plain = _without_variant(text)
    near = difflib.get_close_matches(plain, _by_normal_form(), n=4, cutoff=0.6)
    names = dict.fromkeys([*_candidates(plain), *(n for s in near for n in _by_normal_form()[s])])
    hint = f"near: {', '.join(names)}" if names else "`planner models` lists them"
    return (
        f"unknown model {text!r} ({hint}); also accepted: "
        "a path to a config.json or to a YAML shape"
    )


def resolve_model(text: str) -> Resolved:
    """What a model argument means: a path, a catalogue name, an alias or a bare size.

    A path is what ends in ``.json``, ``.yaml`` or ``.yml``, or a folder that holds a
    ``config.json``; everything else is a name.

    Raises
    ------
    ValueError
        In one line: unknown or ambiguous name, unreadable or invalid file.

    Examples
    --------
    >>> resolve_model("13B").note
    '13b means llama2-13b'
    """
    if not text.strip():
        raise ValueError("the model is empty: expected a name, a config.json or a YAML shape")
    text = text.strip()
    if len(text.splitlines()) > 1:
        raise ValueError(f"model {text!r}: expected one line")
    path = _expanded(text)
    suffix = path.suffix.lower()
    if suffix == ".json":
        return Resolved(*_from_config(path))
    if suffix in (".yaml", ".yml"):
        return Resolved(_from_yaml(path), "yaml", f"shape read from {path}")
    if _holds_config(path):
        return Resolved(*_from_config(path / "config.json"))
    if text.startswith(("/", "./", "../", "~")):
        raise ValueError(f"{text}: expected a config.json, a folder that holds one, or a .yaml")
    name, note = find_model(text)
    return Resolved(load_model(name), "catalogue", note)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{text}: no such user's home folder") from None


def _holds_config(path: Path) -> bool:
    try:
        return (path / "config.json").is_file()
    except (OSError, ValueError):  # a name too long or with a NUL is no path
        return False


def _from_config(path: Path) -> tuple[Architecture, str, str]:
    architecture, note = read_config(path)
    return architecture, "config.json", f"shape read from {path}" + (f"; {note}" if note else "")


def _from_yaml(path: Path) -> Architecture:
    text = read_text(path)
    try:
        data = yaml.load(text, Loader=_LOADER)
        twice = repeated_key(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise ValueError(f"{path}: not YAML{where}: {problem}") from None
    except (ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{path}: not YAML: {problem}") from None
    if twice:
        raise ValueError(f"{path}: key {twice[0]!r} is given twice, again at line {twice[1]}")
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected a mapping with layers, hidden, heads and vocab")
    try:
        return Shape.model_validate({"name": plain_name(path.stem), **data}).architecture()
    except ValidationError as error:
        raise ValueError(f"{path}: {first_problem(error)}") from None
