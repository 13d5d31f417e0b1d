"""Tables of exactly counted bytes: what autograd keeps, and where a step peaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.activations import outside_saved, saved_by_group
from costmodels.architecture import Architecture, LatentAttention, MixtureOfExperts
from costmodels.configuration import Configuration
from costmodels.kernels import Batch, Kernels
from costmodels.memory import memory_costs
from costmodels.memory_profile import PRECISIONS
from costmodels.peak import peak
from costmodels.stack import Stack, load_stack
from hardware_db import parse_gpus
from planner.validate.report import OracleScore
from planner.validate.table import Row, Table

LAYER_NORM = ("gpt2", "opt", "gpt_neox", "bloom")
ROUTED = ("mixtral", "qwen3_moe", "deepseek_v3")
ACTIVATION = {"gpt2": "gelu_new", "opt": "relu", "gpt_neox": "gelu", "bloom": "gelu"}
BIAS = {"gpt2": "all", "opt": "all", "gpt_neox": "all", "bloom": "all", "qwen2": "qkv"}
POSITIONAL = {"gpt2": "learned", "opt": "learned", "bloom": "alibi"}
PHASES = {
    "optimizer step": ("optimizer",),
    "backward of the loss": ("loss",),
    "forward": ("forward",),
    "backward of a layer": ("backward", "last layer"),
    "backward of the embedding": ("embedding",),
}
MODELLED = "math"  # the attention backend that is counted but not modelled
CLOSE, NEAR = 0.005, 0.02


@dataclass(frozen=True, slots=True)
class Counted:
    """One row's own bytes by category beside the predicted ones; ``total`` of them all."""

    measured: Mapping[str, float]
    predicted: Mapping[str, float]
    modelled: bool
    phase: bool | None = None  # the peak's phase is right


def _whole(row: Row, name: str) -> int:
    value = row.number(name)
    return 0 if value is None else int(value)


def architecture_of(row: Row) -> Architecture:
    """The network of an oracle row."""
    family = row.text("family")
    plain = family in LAYER_NORM
    return Architecture(
        name=row.text("size") or row.text("model"),
        family=family,
        layers=_whole(row, "layers"),
        hidden=_whole(row, "hidden"),
        heads=_whole(row, "heads"),
        kv_heads=_whole(row, "kv_heads"),
        head_dim=_whole(row, "head_dim"),
        ffn=_whole(row, "ffn"),
        vocab=_whole(row, "vocab"),
        max_seq_len=_whole(row, "seq"),
        gated_mlp=not plain,
        activation=ACTIVATION.get(family, "silu"),
        norm="layernorm" if plain else "rmsnorm",
        norms_per_layer=4 if family == "gemma2" else 2,
        tied_embeddings=bool(_whole(row, "tie")),
        bias=BIAS.get(family, "none"),
        positional=POSITIONAL.get(family, "rope"),
        qk_norm=family in ("qwen3", "qwen3_moe"),
        parallel_residual=family == "gpt_neox",
        norm_bias=plain,
        moe=_experts(row, family),
        mla=_latent(row),
        embedding_norm=family == "bloom",
    )


def _experts(row: Row, family: str) -> MixtureOfExperts | None:
    if family not in ROUTED:
        return None
    width = _whole(row, "moe_ffn") or _whole(row, "ffn")
    shared = width if family == "deepseek_v3" else 0
    return MixtureOfExperts(_whole(row, "experts"), _whole(row, "topk"), width, shared_ffn=shared)


def _latent(row: Row) -> LatentAttention | None:
    if not _whole(row, "kv_lora"):
        return None
    widths = ("q_lora", "kv_lora", "nope_dim", "rope_dim", "v_dim")
    return LatentAttention(*(_whole(row, name) for name in widths))


def kernels_of(row: Row) -> Kernels:
    """The kernels an oracle row ran."""
    narrow = "fp32" if row.text("param_dtype") == "fp32" else "bf16"
    labels = row.text("labels")
    return Kernels(
        "amp" if _whole(row, "autocast") else narrow,
        "eager" if row.text("attn") == "eager" else row.text("sdp_backend"),
        dropout=row.number("dropout") or 0.0,
        mask=bool(_whole(row, "pad_mask") or _whole(row, "window")),
        cache=bool(_whole(row, "use_cache")),
        head_loss=labels == "" or bool(float(labels)),
    )


def count_activations(row: Row) -> Counted:
    """Bytes saved for backward by category, and in all."""
    architecture, kernels = architecture_of(row), kernels_of(row)
    batch = Batch(_whole(row, "mbs"), _whole(row, "seq"), _whole(row, "seq"))
    full = bool(_whole(row, "ckpt"))
    layer = saved_by_group(architecture, kernels, batch, architecture.moe is not None, full)
    outside = float(outside_saved(architecture, kernels, batch, full))
    predicted = {name: float(value) for name, value in layer.items()}
    measured = {name: row.number(f"layer_{name}") or 0.0 for name in predicted}
    predicted["outside the layers"] = outside
    measured["outside the layers"] = row.number("nonlayer_activations") or 0.0
    inner = sum(float(value) for value in layer.values())
    predicted["total"] = inner * architecture.layers + outside
    measured["total"] = row.number("saved_activations") or 0.0
    return Counted(measured, predicted, row.text("sdp_backend") != MODELLED)


def peak_configuration(row: Row) -> Configuration:
    """The run of a peak row: PyTorch alone, or FSDP2 over ``world`` ranks."""
    world, mixed = _whole(row, "world"), bool(row.text("mp"))
    wide, autocast = row.text("param_dtype") == "fp32", bool(_whole(row, "autocast"))
    precision = "fp32" if wide and not autocast and not mixed else "bf16"
    return Configuration(
        architecture=architecture_of(row),
        cluster=parse_gpus("8xA100-80G"),
        stack=_peak_stack(row, world, mixed, 4.0 if wide else 2.0),
        precision=precision,
        attention="eager" if row.text("attn") == "eager" else row.text("sdp_backend"),
        optimizer="adamw",
        seq_len=_whole(row, "seq"),
        pp=1,
        dp=max(1, world),
        tp=_whole(row, "tp") or 1,
        micro_batch=_whole(row, "mbs"),
        grad_accum=_whole(row, "accum"),
        zero_stage=3 if world > 1 else 0,
        sequence_parallel=_whole(row, "sp"),
        dropout=row.number("dropout") or 0.0,
    )


def _peak_stack(row: Row, world: int, mixed: bool, element: float) -> Stack:
    stack = load_stack("hf-fsdp2")
    same = dict.fromkeys(PRECISIONS, element)
    profile = stack.memory.model_copy(
        update={
            "engine": "fsdp" if world > 1 else "ddp",
            "autocast": bool(_whole(row, "autocast")),
            "weights": same,
            "gradients": same,
            "master": dict.fromkeys(PRECISIONS, 0.0),
            "moment_factor": element / 4,
            "step_foreach": row.text("opt") == "foreach",
            "reduce_bytes": 4.0 if mixed else element,
            "reshard": not row.text("reshard") or bool(_whole(row, "reshard")),
            "gradients_stay": not _whole(row, "set_to_none"),
            "allocator_factor": 1.0,
            "gradient_leftover": {},
        }
    )
    return stack.model_copy(update={"memory": profile})


def count_peak(row: Row) -> Counted:
    """The step's peak, and whether it is in the right phase."""
    configuration = peak_configuration(row)
    layers = configuration.architecture.layers
    granularity = "full" if _whole(row, "ckpt") else "none"
    top = peak(memory_costs(configuration), layers, {granularity: layers})
    phases = {name: float(np.max(total)) for name, total in top.phases.items()}
    first = max(phases, key=lambda name: phases[name])
    measured = row.number("peak_total") or 0.0
    right = first in PHASES.get(row.text("peak_phase"), ())
    return Counted({"total": measured}, {"total": phases[first]}, True, right)


def score_oracle(table: Table) -> OracleScore:
    """All rows of an oracle table.

    Raises
    ------
    ValueError
        If a cell makes no sense or the table has no rows.
    """
    count = count_activations if table.kind == "activations" else count_peak
    rows = []
    for row in table.rows:
        try:
            rows.append(count(row))
        except (KeyError, ZeroDivisionError):
            raise ValueError(
                f"{row.file} line {row.line}: not a shape that can be counted"
            ) from None
    if not rows:
        raise ValueError(f"{table.path}: no rows")
    return _score(rows)


def _score(rows: Sequence[Counted]) -> OracleScore:
    error = np.array([abs(_error(r, "total")) for r in rows])
    modelled = np.array([r.modelled for r in rows])
    categories: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name in row.measured:
            categories[name].append(abs(_error(row, name)))
    phases = [row.phase for row in rows if row.phase is not None]
    return OracleScore(
        count=len(rows),
        within_half_percent=float((error <= CLOSE).mean()),
        within_two_percent=float((error[modelled] <= NEAR).mean()),
        mape=float(error.mean()),
        worst=float(error.max()),
        right_phase=float(np.mean(phases)) if phases else None,
        by_category={n: float((np.array(e) <= CLOSE).mean()) for n, e in categories.items()},
    )


def _error(row: Counted, name: str) -> float:
    """Relative error of a category; absolute where nothing was counted."""
    measured, predicted = row.measured[name], row.predicted[name]
    return predicted / measured - 1 if measured else float(predicted != 0)
