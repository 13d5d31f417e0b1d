"""Rotary positions of a config.json: base, rotated part, scaling.

transformers 5 keeps them in ``rope_parameters``; before, ``rope_theta``, ``rope_scaling`` and a key
of each family for the part. Precedence and defaults are those of transformers 5.24,
``src/transformers/modeling_rope_utils.py`` and ``models/<family>/configuration_*.py``.
"""

from __future__ import annotations

from typing import Any

from planner.hf_dense import Fields
from planner.hf_keys import Keys

USUAL_BASE = 10000.0
BASES = {  # default_theta of the classes that have their own
    "cohere": 500000.0,
    "gemma3_text": 1000000.0,
    "gpt_oss": 150000.0,
    "llama4_text": 500000.0,
    "mixtral": 1000000.0,
}
FRACTIONS = {  # partial_rotary_factor where the file has none
    **dict.fromkeys(("glm", "glm4", "glm4_moe", "phi"), 0.5),
    **dict.fromkeys(("gpt_neox", "stablelm"), 0.25),
}
# What a family spells its own way.
BASE_KEYS = {"gpt_neox": "rotary_emb_base"}
FRACTION_KEYS = {"gpt_neox": "rotary_pct"}
LONGROPE = ("su", "longrope")  # one method under two names
TURNED = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section")
GPT_OSS_SCALING: Fields = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def rope(keys: Keys, family: str) -> Fields:
    """Fields of a Shape for the rotary positions of a family that has them."""
    parameters, local = _parameters(keys, family)
    base = keys.number(BASE_KEYS.get(family, "rope_theta"), default=BASES.get(family, USUAL_BASE))
    fraction = keys.number("partial_rotary_factor", default=FRACTIONS.get(family, 1.0))
    if family in FRACTION_KEYS:
        fraction = keys.number(FRACTION_KEYS[family], default=fraction)
    fields: Fields = {
        "rope_theta": parameters.number("rope_theta", default=base),
        "rope_fraction": parameters.number("partial_rotary_factor", default=fraction),
        "rope_scaling": _scaling(keys, parameters, family),
    }
    if family == "gemma3_text":
        usual = keys.number("rope_local_base_freq", default=USUAL_BASE)
        fields["rope_local_theta"] = local.number("rope_theta", default=usual)
    elif local.data.get("rope_theta") is not None:
        theta = local.number("rope_theta", default=base)
        fields["rope_local_theta"] = 0 if theta == fields["rope_theta"] else theta
    return fields


def _parameters(keys: Keys, family: str) -> tuple[Keys, Keys]:
    """The rotary parameters of full and of local layers, however old the file is."""
    given = keys.nested("rope_scaling")
    if not given.data:
        given = keys.nested("rope_parameters")
    if "full_attention" in given.data or "sliding_attention" in given.data:
        return given.nested("full_attention"), given.nested("sliding_attention")
    if family == "gpt_oss" and not given.data:
        given = Keys(keys.file, GPT_OSS_SCALING, "rope_parameters.", keys.notes)
    return given, Keys(keys.file, {}, "", keys.notes)


def _scaling(keys: Keys, parameters: Keys, family: str) -> dict[str, Any]:
    """What changes the frequencies; empty where nothing does.

    Multimodal sections turn text as plain rotary positions do.
    """
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    if kind in ("default", "mrope"):
        return {}
    if kind in LONGROPE or (family == "phi3" and kind == "yarn"):
        kind = "longrope"
    own = {k: v for k, v in parameters.data.items() if k not in TURNED and v is not None}
    trained = "original_max_position_embeddings"
    if kind in ("llama3", "yarn", "longrope") and (family == "phi3" or trained not in own):
        usual = 4096 if family == "phi3" else keys.count("max_position_embeddings", default=4096)
        own[trained] = keys.count(trained, default=own.get(trained, usual))
    return {"rope_type": kind, **own}
