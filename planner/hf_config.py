"""A Hugging Face config.json, read as an Architecture.

Missing optional keys take the default of the family's configuration class.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from costmodels.architecture import Architecture
from planner import hf_dense, hf_gpt, hf_routed
from planner.hf_dense import Fields
from planner.hf_keys import Keys
from planner.hf_norm import norm_epsilon
from planner.hf_rope import rope
from planner.shape import Shape, first_problem
from planner.textfile import plain_name, read_text

READERS: dict[str, Callable[[Keys], Fields]] = {  # model_type -> reader
    "bert": hf_gpt.bert,
    "bloom": hf_gpt.bloom,
    "cohere": hf_gpt.cohere,
    "deepseek_v2": hf_routed.deepseek_v2,
    "deepseek_v3": hf_routed.deepseek_v3,
    "falcon": hf_gpt.falcon,
    "gemma": hf_dense.gemma,
    "gemma2": hf_dense.gemma2,
    "gemma3_text": hf_dense.gemma3,
    "glm": hf_dense.glm,
    "glm4": hf_dense.glm4,
    "glm4_moe": hf_routed.glm4_moe,
    "gpt2": hf_gpt.gpt2,
    "gpt_neox": hf_gpt.gpt_neox,
    "gpt_oss": hf_routed.gpt_oss,
    "llama": hf_dense.llama,
    "llama4_text": hf_routed.llama4,
    "mistral": hf_dense.mistral,
    "mixtral": hf_routed.mixtral,
    "mpt": hf_gpt.mpt,
    "olmo2": hf_dense.olmo2,
    "opt": hf_gpt.opt,
    "phi": hf_gpt.phi,
    "phi3": hf_dense.phi3,
    "qwen2": hf_dense.qwen2,
    "qwen2_moe": hf_routed.qwen2_moe,
    "qwen3": hf_dense.qwen3,
    "qwen3_moe": hf_routed.qwen3_moe,
    "stablelm": hf_gpt.stablelm,
    "starcoder2": hf_gpt.starcoder2,
}
# Other spellings: composite configurations, whose text_config may leave its own model_type out,
# and names from before a family was part of transformers.
SAME_AS = {
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
}


def supported_families() -> tuple[str, ...]:
    """The ``model_type`` values that can be read, sorted."""
    return tuple(sorted({*READERS, *SAME_AS}))


def read_config(path: Path) -> tuple[Architecture, str]:
    """The network a config.json describes, and a note on what was left out or assumed.

    Raises
    ------
    ValueError
        In one line with the file's name: unreadable, not JSON, an unsupported ``model_type``, a
        key that is missing or has an impossible value.
    """
    data = _load(path)
    nested = data.get("text_config")
    notes = []
    quantised = data.get("quantization_config")
    if isinstance(nested, dict):
        data = {"model_type": data.get("model_type"), **nested}
        quantised = quantised or data.get("quantization_config")
        notes.append("language model only, without the other towers")
    kind = data.get("model_type")
    if kind is None:
        raise ValueError(f"{path}: key 'model_type' is missing")
    family = SAME_AS.get(kind, kind) if isinstance(kind, str) else None
    if family not in READERS:
        supported = ", ".join(supported_families())
        raise ValueError(f"{path}: model_type {kind!r} is not supported; supported: {supported}")
    keys = Keys(str(path), data)
    shape = {"name": _name(path), "family": family, **READERS[family](keys)}
    shape["norm_eps"] = norm_epsilon(keys, family)
    if shape.get("positional", "rope") == "rope":
        shape |= rope(keys, family)
    if quantised:
        notes.append("quantization_config left out: the network is trained unquantised")
    try:
        architecture = Shape.model_validate(shape).architecture()
    except ValidationError as error:
        raise ValueError(f"{path}: {first_problem(error)}") from None
    return architecture, "; ".join([*notes, *keys.notes])


class _Repeated(ValueError):
    """A key that an object gives twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, unless a reader would have to choose between two values of a key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Repeated(next(name for name in names if names.count(name) > 1))
    return found


def _load(path: Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        data = json.loads(text, object_pairs_hook=_once)
    except _Repeated as error:
        raise ValueError(f"{path}: key {str(error)!r} is given twice") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error.msg} at line {error.lineno}") from None
    except (RecursionError, ValueError):
        raise ValueError(f"{path}: not a model configuration (nesting or numbers too large)") from (
            None
        )
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected a JSON object, got a {type(data).__name__}")
    return data


def _name(path: Path) -> str:
    folder = path.absolute().parent.name
    return plain_name(folder if path.name == "config.json" and folder else path.stem)
