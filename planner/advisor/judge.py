"""A file's settings as a job, predicted by the cost models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from costmodels.architecture import Architecture
from planner.advisor.judgement import Judgement, judgement
from planner.advisor.settings import AXES, Settings
from planner.emit.rope import MEGATRON_FACTOR, MEGATRON_LLAMA3
from planner.estimating import estimate_job
from planner.job import Job, resolve
from planner.lint.document import Document, Value, as_int, as_number
from planner.lint.megatron_flags import number, on
from planner.spec import make_spec


@dataclass(frozen=True, slots=True)
class Target:
    """What the file runs on: the user's options, as fields of a job."""

    fields: Mapping[str, Any]  # model, gpus, and hardware overrides
    architecture: Architecture | None = None  # where the file itself gives the shape
    precision: str = "bf16"  # where nothing says which


def gather(settings: Settings, target: Target, gpus: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job's fields and its ``fix``, gaps filled and named in ``settings.assumed``.

    Raises
    ------
    ValueError
        If the degrees do not divide the GPUs.
    """
    s = settings
    for name in ("tp", "pp", "cp", "ep", "virtual_stages"):
        s.assume(name, 1, "not in the file")
    part = _count(s, "tp") * _count(s, "pp") * _count(s, "cp")
    if gpus % part:
        raise ValueError(f"{gpus} GPUs are not a multiple of tp x pp x cp = {part}")
    dp = gpus // part
    if s.get("dp") is not None and _count(s, "dp") != dp:
        raise ValueError(f"dp {s.get('dp')} x tp x pp x cp {part} is not {gpus} GPUs")
    s.assume("dp", dp, "the GPUs divided by tp x pp x cp")
    s.assumed[:] = [text for text in s.assumed if not text.startswith(_QUIET)]
    _batch(s, target.fields, dp)
    s.assume("recompute", "none", "activation checkpointing is decided in the script")
    for name in ("offload_optimizer", "offload_parameters"):
        s.assume(name, "none", "not in the file")
    s.assume("sequence_parallel", 0, "not in the file")
    s.assume("zero_stage", 0, "not in the file")
    s.assume("precision", target.precision, "not in the file; the best of the GPU")
    fields = {k: v for k, v in target.fields.items() if v is not None}
    for name in ("seq_len", "optimizer", "grad_dtype", "cross_entropy", "stack"):
        if s.get(name) is not None and name not in fields:
            fields[name] = s.get(name)
    fields["global_batch"] = _count(s, "micro_batch") * _count(s, "grad_accum") * dp
    fix = {name: s.get(name) for name in AXES if s.get(name) is not None}
    return fields, fix


_QUIET = ("dp ", "virtual_stages ", "ep ", "pp ", "tp ", "cp ")  # nothing was chosen there


def _count(settings: Settings, name: str) -> int:
    return max(1, as_int(settings.get(name)) or 1)


def _batch(s: Settings, fields: Mapping[str, Any], dp: int) -> None:
    """Micro-batch and accumulation from whatever is known."""
    total = as_int(s.get("global_batch")) or as_int(fields.get("global_batch"))
    micro, accum = as_int(s.get("micro_batch")), as_int(s.get("grad_accum"))
    if micro is None and total and accum and total % (dp * accum) == 0:
        s.assume("micro_batch", total // (dp * accum), "global batch / (dp x accumulation)")
    s.assume("micro_batch", 1, "not in the file")
    micro = _count(s, "micro_batch")
    if accum is None and total:
        if total % (dp * micro):
            raise ValueError(
                f"global batch {total} is not a multiple of micro-batch {micro} x dp {dp}"
            )
        s.values.pop("grad_accum", None)
        s.assume("grad_accum", total // (dp * micro), "global batch / (dp x micro-batch)")
        s.assumed.pop()
    s.assume("grad_accum", 1, "not in the file")


def make_job(fields: Mapping[str, Any], fix: Mapping[str, Any], target: Target) -> Job:
    """A resolved job with every axis fixed."""
    fields = {**fields, "fix": dict(fix)}
    if target.architecture is not None:
        fields["model"] = "llama3.1-8b"  # stands in until the shape of the file takes its place
    job = resolve(make_spec(fields, "advise"))
    if target.architecture is not None:
        job = replace(job, architecture=target.architecture)
    return job


def judge(job: Job) -> Judgement:
    """Predict a job whose axes are all fixed.

    Raises
    ------
    ValueError
        If the stack or the hardware refuses the configuration.
    """
    return judgement(estimate_job(job))


def megatron_shape(doc: Document) -> Architecture | None:
    """The network that Megatron's flags describe; None if a size is missing."""
    layers, hidden = number(doc, "num_layers"), number(doc, "hidden_size")
    heads = number(doc, "num_attention_heads")
    if not layers or not hidden or not heads or min(layers, hidden, heads) < 1:
        return None
    grouped = on(doc, "group_query_attention")
    groups = number(doc, "num_query_groups") if grouped else None
    groups = groups or number(doc, "num_key_value_heads") or heads
    gated = on(doc, "swiglu")
    width = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    rope = doc.get("position_embedding_type") == "rope"
    rope = rope or on(doc, "use_rotary_position_embeddings")
    length = number(doc, "max_position_embeddings") or number(doc, "seq_length") or 2048
    rms = str(doc.get("normalization", default="")).lower() == "rmsnorm"
    size = number(doc, "kv_channels") or hidden // heads
    fields: dict[str, Value] = {
        "name": f"megatron-{layers}x{hidden}",
        "family": "llama" if rope else "gpt2",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": groups,
        "head_dim": size,
        "ffn": number(doc, "ffn_hidden_size") or width,
        "vocab": number(doc, "vocab_size") or 51200,
        "max_seq_len": length,
        "gated_mlp": gated,
        "activation": "silu" if gated else "gelu",
        "norm": "rmsnorm" if rms else "layernorm",
        "norms_per_layer": 2,
        "norm_bias": not rms,
        "tied_embeddings": not on(doc, "untie_embeddings_and_output_weights"),
        "bias": "none" if on(doc, "disable_bias_linear") else "all",
        "positional": "rope" if rope else "learned",
        **(megatron_rotation(doc) if rope else {}),
        **megatron_epsilon(doc),
    }
    if number(doc, "num_experts"):
        return None  # sizes of experts have too many spellings to be read off
    return Architecture(**fields)


def megatron_epsilon(doc: Document) -> dict[str, Value]:
    """The norms' epsilon in Megatron-LM's flag, or in Megatron-DeepSpeed's."""
    given = (as_number(doc.get(key)) for key in ("norm_epsilon", "layernorm_epsilon"))
    return next(({"norm_eps": float(value)} for value in given if value and value > 0), {})


def megatron_rotation(doc: Document) -> dict[str, Value]:
    """Base, turned part and scaling of rotary positions in Megatron's flags."""
    base = number(doc, "rotary_base") or number(doc, "rotary_position_embeddings_theta")
    part, factor = (as_number(doc.get(key)) for key in ("rotary_percent", "rope_scaling_factor"))
    found: dict[str, Value] = {"rope_theta": float(base)} if base and base > 0 else {}
    if part and 0 < part <= 1:
        found["rope_fraction"] = float(part)
    if on(doc, "use_rope_scaling"):
        scaling = {"rope_type": "llama3", "factor": factor or MEGATRON_FACTOR, **MEGATRON_LLAMA3}
        found["rope_scaling"] = tuple(sorted(scaling.items()))
    return found
