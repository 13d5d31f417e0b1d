"""train.py and the files beside it: a training script that does exactly what the plan says.

It carries what deepspeed_config.json cannot: which layers are checkpointed and how, where the
pipeline is cut, the attention kernel, a loss that spares memory, an optimizer DeepSpeed has no
name for.
"""

from __future__ import annotations

import dataclasses

from costmodels.architecture import Architecture
from planner.emit.deepspeed import NATIVE, TORCH, check_deepspeed
from planner.emit.model_config import model_config
from planner.emit.model_parts import PARTS
from planner.emit.recipe import RECIPES
from planner.emit.refusal import require
from planner.emit.text import dump_json, render
from planner.emit.train_row import measured_row
from planner.job import Job
from planner.plan import Plan

TINY_WIDTH = 256  # hidden units of the scaled-down check
TINY_FFN = 704  # its gated feed-forward; others have 4 x width
TINY_VOCAB = 512
TINY_SEQ_LEN = 128


def train_files(job: Job, plan: Plan) -> dict[str, str]:
    """train.py and what it reads besides plan.json and deepspeed_config.json.

    Raises
    ------
    ValueError
        If the plan is for another stack, or the script cannot do what it says.
    """
    require(plan.stack == "deepspeed", "train.py", f"it drives DeepSpeed, not {plan.stack}")
    check_deepspeed(job, plan)
    values = template_values(job, plan)
    dropout = job.spec.dropout
    files = {
        "train.py": render("train_script.py.j2", **values),
        "train_measure.py": render("train_measure.py.j2", **values),
        "train_tiny.py": render("train_tiny.py.j2", **values),
        "model_config.json": dump_json(model_config(job.architecture, dropout)),
        "model_config_tiny.json": dump_json(model_config(tiny(job.architecture, plan), dropout)),
    }
    if values["checkpoints"] or plan.pp > 1:
        files["train_recompute.py"] = render("train_recompute.py.j2", **values)
    if values["cross_entropy"] == "chunked":
        files["train_loss.py"] = render("train_loss.py.j2", **values)
    if plan.pp > 1:
        files["train_stages.py"] = render("train_stages.py.j2", **values)
    return dict(sorted(files.items()))


def template_values(job: Job, plan: Plan) -> dict[str, object]:
    """What the templates show."""
    family = job.architecture.family
    require(family in PARTS, "train.py", f"it does not know the layers of {family} models")
    checkpointed = {g: n for g, n in plan.recompute_layers.items() if n and g != "none"}
    loss = cross_entropy(job, plan)
    require(
        not (family == "gemma2" and loss == "chunked" and plan.pp > 1),
        "train.py",
        f"{family} caps its logits, which the chunked loss of a pipeline cannot",
    )
    eager = PARTS[family].eager_only
    require(
        plan.attention == "eager" or not eager,
        "train.py",
        f"transformers' {family} runs in eager attention only, not {plan.attention}",
    )
    parts = dataclasses.asdict(PARTS[family])
    if plan.tp > 1:
        replica = 'rank // plan["tp"]'
    else:
        replica = "engine.grid.data_parallel_id" if plan.pp > 1 else "rank"
    return {
        "model": job.architecture.name,
        "family": family,
        "summary": summary(plan),
        "beyond_json": beyond_json(job, plan, checkpointed, loss),
        "pipeline": plan.pp > 1,
        "checkpoints": bool(checkpointed),
        "cross_entropy": loss,
        "zero_stage": plan.zero_stage,
        "tp": plan.tp,
        "layers": parts["layers"],
        "parts": parts,
        "replica": replica,
        "optimizer_code": optimizer_code(job),
        "row": measured_row(job, plan),
    }


def cross_entropy(job: Job, plan: Plan) -> str:
    """The loss the plan was costed with: eager, fused or chunked."""
    if job.spec.cross_entropy != "auto":
        return job.spec.cross_entropy
    stack = next(s for s in job.stacks if s.name == plan.stack)
    return stack.memory.cross_entropy


def optimizer_code(job: Job) -> dict[str, str] | None:
    """How the script makes an optimizer that deepspeed_config.json cannot name."""
    name, recipe = job.spec.optimizer, RECIPES[job.spec.optimizer]
    if name in NATIVE or name in TORCH:
        return None
    require(name == "adam8bit", "train.py", f"it has no {name} optimizer")
    options = f"lr={recipe.lr}, betas={recipe.betas}, eps={recipe.eps}"
    call = f"bitsandbytes.optim.AdamW8bit(\n        parameters, {options}, "
    return {"module": "bitsandbytes", "call": f"{call}weight_decay={recipe.weight_decay}\n    )"}


def summary(plan: Plan) -> str:
    """The plan in half a line."""
    degrees = [f"{name} {getattr(plan, name)}" for name in ("dp", "tp", "pp")]
    return ", ".join([*degrees, f"ZeRO-{plan.zero_stage}", plan.precision])


def beyond_json(job: Job, plan: Plan, checkpointed: dict[str, int], loss: str) -> list[str]:
    """What the script does that the JSON alone would not."""
    lines = [f"{plan.attention} attention"]
    if plan.pp > 1:
        layers = ", ".join(str(stage.layers) for stage in plan.stages)
        lines.append(f"pipeline stages of {layers} layers (train_stages.py)")
    if checkpointed:
        counts = ", ".join(f"{n} {g}" for g, n in checkpointed.items())
        where = "layers" if plan.pp == 1 else "layers, stage by stage"
        lines.append(f"gradient checkpointing of {counts} {where} (train_recompute.py)")
    if plan.zero_stage == 3 and plan.tp == 1:
        lines.append("the model is built in shards (zero.Init)")
    if loss == "fused":
        lines.append("fused cross-entropy")
    if loss == "chunked":
        lines.append("the loss in chunks of tokens (train_loss.py)")
    if optimizer_code(job):
        lines.append("8-bit AdamW (bitsandbytes)")
    return lines


def tiny(arch: Architecture, plan: Plan) -> Architecture:
    """A network of the same kind whose layers a CPU runs at once.

    Heads keep their grouping, so that the same branches of the model's code run; the layers are
    as many as the scaled-down stages of train_tiny.py hold.
    """
    heads = 8
    shared = min(arch.heads // arch.kv_heads, heads // min(plan.tp, 2))  # queries of one key
    kv_heads = heads // (shared if heads % shared == 0 else 2)
    ffn = TINY_FFN if arch.gated_mlp else 4 * TINY_WIDTH
    moe = arch.moe and dataclasses.replace(
        arch.moe,
        experts=min(arch.moe.experts, 4),
        top_k=min(arch.moe.top_k, 2),
        ffn=128,
        shared_ffn=min(arch.moe.shared_ffn, 128),
        first_dense_layers=min(arch.moe.first_dense_layers, 1),
    )
    return dataclasses.replace(
        arch,
        layers=tiny_layers(plan),
        hidden=TINY_WIDTH,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=TINY_WIDTH // heads,
        ffn=ffn,
        vocab=TINY_VOCAB,
        max_seq_len=TINY_SEQ_LEN,
        position_rows=TINY_SEQ_LEN + 2 if arch.position_rows else 0,
        embedding_width=TINY_WIDTH // 2 if arch.embedding_width else 0,
        sliding_window=min(arch.sliding_window, 32),
        rope_scaling=(),  # its texts are too short for one, and heads too small for its lists
        moe=moe,
    )


def tiny_layers(plan: Plan) -> int:
    """Layers of the scaled-down stages; the rule of train_tiny.py's shrink_stages."""
    from costmodels.costs import SEGMENT

    kept = [plan.stages[0], plan.stages[-1]][: min(plan.pp, 2)]
    uneven = len({stage.layers for stage in kept}) > 1
    segments = [min(n, SEGMENT[g]) for stage in kept for g, n in stage.recompute.items()]
    return sum(segments) + uneven
