"""Rotary positions in the words of each target, and what of them a target cannot say.

Base and rotated part decide the network, so a target without them is refused. Scaling stretches
a trained network to longer texts; a target without it gets a note.
"""

from __future__ import annotations

from typing import Any

from costmodels.architecture import Architecture
from planner.emit.launch import Argument
from planner.emit.refusal import require

PARTIAL = ("phi", "phi3", "glm", "glm4", "gpt_neox")  # model types that read partial_rotary_factor
MEGATRON = "Megatron-LM"
MEGATRON_FACTOR = 8.0  # rope_scaling_factor of GPTModel, which gpt_builders.py leaves at that
# RotaryEmbedding._apply_scaling of Megatron core 0.16.1 and MLATransformerConfig: no arguments.
MEGATRON_LLAMA3 = {
    "low_freq_factor": 1,
    "high_freq_factor": 4,
    "original_max_position_embeddings": 8192,
}
MEGATRON_YARN = {"beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 4096}


def hf_rope(arch: Architecture) -> dict[str, Any]:
    """``rope_parameters`` of a transformers 5 configuration; nothing without rotary positions.

    Raises
    ------
    ValueError
        If the model type cannot turn part of a head, or scale so.
    """
    if arch.positional != "rope":
        return {}
    name = f"transformers' {arch.family}"
    scaling = {k: list(v) if isinstance(v, tuple) else v for k, v in arch.rope_scaling}
    parameters = {"rope_type": "default", **scaling, "rope_theta": arch.rope_theta}
    require(
        arch.rope_fraction == 1 or arch.family in PARTIAL,
        name,
        f"it turns whole heads, not {arch.rope_fraction:g} of each",
    )
    if arch.family in PARTIAL:
        parameters["partial_rotary_factor"] = arch.rope_fraction
    if arch.family == "gemma3_text":
        local = {"rope_type": "default", "rope_theta": arch.rope_local_theta or arch.rope_theta}
        return {"rope_parameters": {"full_attention": parameters, "sliding_attention": local}}
    one_base(arch, name)
    if arch.family != "phi3" or not scaling:
        return {"rope_parameters": parameters}
    kind = scaling["rope_type"]
    require(kind == "longrope", name, f"its scaling is longrope, not {kind}")
    # Its class lets this key outside override the one inside.
    trained = "original_max_position_embeddings"
    return {trained: scaling[trained], "rope_parameters": parameters}


def one_base(arch: Architecture, target: str) -> None:
    """Refuse local layers with a rotary base of their own."""
    require(
        arch.rope_local_theta in (0, arch.rope_theta),
        target,
        f"all layers have one rotary base, not {arch.rope_theta:g} and {arch.rope_local_theta:g}",
    )


def base_arguments(arch: Architecture, flag: str, target: str) -> list[Argument]:
    """Base and rotated part, in Megatron's arguments."""
    one_base(arch, target)
    require(
        arch.rope_theta == int(arch.rope_theta),
        target,
        f"its rotary base is a whole number, not {arch.rope_theta!r}",
    )
    part: list[Argument] = []
    if arch.rope_fraction < 1:
        part.append(("--rotary-percent", str(arch.rope_fraction)))
    return [(flag, str(int(arch.rope_theta))), *part]


def megatron_rope(arch: Architecture) -> list[Argument]:
    """Rotary arguments of Megatron-LM core 0.16.1, megatron/training/arguments.py.

    Latent attention scales by YaRN unless told otherwise, and fuses no other rotation.
    """
    if arch.positional != "rope":
        return []
    arguments = base_arguments(arch, "--rotary-base", MEGATRON)
    scaling = dict(arch.rope_scaling)
    if arch.mla is not None:
        if scaling.get("rope_type") != "yarn":
            return [*arguments, ("--rope-type", "rope"), ("--no-rope-fusion",)]
        return [
            *arguments,
            ("--rope-type", "yarn"),
            ("--rotary-scaling-factor", str(scaling["factor"])),
            ("--mscale", str(scaling.get("mscale", 1.0))),
            ("--mscale-all-dim", str(scaling.get("mscale_all_dim", 0.0))),
        ]
    if scaling.get("rope_type") == "llama3":
        factor = str(scaling["factor"])
        return [*arguments, ("--use-rope-scaling",), ("--rope-scaling-factor", factor)]
    return arguments


def megatron_note(arch: Architecture) -> str:
    """What of the scaling Megatron-LM's arguments do not say; empty if all of it."""
    scaling = dict(arch.rope_scaling)
    kind = scaling.get("rope_type")
    if not scaling or arch.positional != "rope":
        return ""
    fixed = {"yarn": MEGATRON_YARN} if arch.mla is not None else {"llama3": MEGATRON_LLAMA3}
    if kind not in fixed:
        return _unscaled(arch, MEGATRON)
    usual = fixed[str(kind)]
    given = {key: scaling.get(key, value) for key, value in usual.items()}
    notes = []
    if given != usual:
        texts = [
            f"{key} {usual[key]}, not {value}"
            for key, value in given.items()
            if value != usual[key]
        ]
        notes.append(f"{MEGATRON} scales rotary positions with {', '.join(texts)}")
    if kind == "llama3" and scaling["factor"] != MEGATRON_FACTOR:
        notes.append(
            f"gpt_builders.py of {MEGATRON} core_v0.16.1 scales rotary positions by"
            f" {MEGATRON_FACTOR:g} whatever --rope-scaling-factor says: pass"
            f" rope_scaling_factor=args.rope_scaling_factor to its GPTModel for"
            f" {scaling['factor']:g}"
        )
    return "; ".join(notes)


def titan_scaling(arch: Architecture) -> dict[str, Any]:
    """Fields of torchtitan's ComplexRoPE.Config for the scaling; CosSinRoPE (Qwen3) has none."""
    scaling = dict(arch.rope_scaling)
    if scaling.pop("rope_type", None) != "llama3" or arch.qk_norm:
        return {}
    return {"scaling": "llama", "scaling_factor": scaling.pop("factor"), **scaling}


def unscaled_note(arch: Architecture, target: str) -> str:
    """The note of a target without this scaling; empty if the network has none."""
    if not arch.rope_scaling or arch.positional != "rope":
        return ""
    return _unscaled(arch, target)


def _unscaled(arch: Architecture, target: str) -> str:
    kind = dict(arch.rope_scaling)["rope_type"]
    return (
        f"{target} has no {kind} scaling of rotary positions, so {arch.name} is trained without;"
        f" with base {arch.rope_theta:g} alone its checkpoints are another network's"
    )
