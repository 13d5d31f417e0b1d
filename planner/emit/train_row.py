"""The row of the measured schema that a bundle's train.py completes."""

from __future__ import annotations

from costmodels.params import total_parameters
from planner.job import Job
from planner.plan import Plan

# The columns of a table of measured runs, in order.
COLUMNS = (
    *("source", "ref", "model", "params_b", "layers", "hidden", "heads", "kv_heads", "ffn"),
    *("vocab", "gated_mlp", "tied_embeddings", "experts", "topk", "gpu", "gpu_mem_gb", "n_gpus"),
    *("gpus_per_node", "intra_bw", "inter_bw", "framework", "precision", "optimizer", "seq_len"),
    *("micro_batch", "global_batch_seqs", "grad_accum", "dp", "tp", "pp", "cp", "ep"),
    *("virtual_stages", "sequence_parallel", "zero_stage", "offload", "act_ckpt", "attention"),
    *("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "peak_mem_gib"),
    *("mem_kind", "outcome", "notes", "fused_norm"),
)
BILLION = 1e9


def measured_row(job: Job, plan: Plan) -> dict[str, object]:
    """What is known before the run; what is measured is empty."""
    arch, moe = job.architecture, job.architecture.moe
    known: dict[str, object] = {
        "source": "bundle",
        "ref": "train.py",
        "model": arch.name,
        "params_b": round(float(total_parameters(arch)) / BILLION, 6),
        **{name: getattr(arch, name) for name in ("layers", "hidden", "heads", "kv_heads", "ffn")},
        "vocab": arch.vocab,
        "gated_mlp": _flag(arch.gated_mlp),
        "tied_embeddings": _flag(arch.tied_embeddings),
        "experts": moe.experts if moe else "",
        "topk": moe.top_k if moe else "",
        "gpu": job.cluster.node.gpu.id,
        "n_gpus": plan.gpus,
        "gpus_per_node": min(plan.gpus, job.cluster.gpus_per_node),
        "framework": "DeepSpeed",
        "precision": plan.precision,
        "optimizer": job.spec.optimizer,
        "seq_len": job.seq_len,
        "global_batch_seqs": plan.dp * plan.micro_batch * plan.grad_accum,
        **{
            n: getattr(plan, n) for n in ("micro_batch", "grad_accum", "dp", "tp", "pp", "cp", "ep")
        },
        "virtual_stages": plan.virtual_stages,
        "sequence_parallel": _flag(plan.sequence_parallel),
        "zero_stage": plan.zero_stage,
        "offload": offload(plan),
        "act_ckpt": checkpointing(plan),
        "attention": plan.attention,
        "notes": notes(plan),
        "fused_norm": "false",
    }
    return {column: known.get(column, "") for column in COLUMNS}


def _flag(value: bool) -> str:
    return "true" if value else "false"


def offload(plan: Plan) -> str:
    """The farthest tier anything is offloaded to."""
    tiers = ("none", "cpu", "nvme")
    return max(plan.offload_optimizer, plan.offload_parameters, key=tiers.index)


def checkpointing(plan: Plan) -> str:
    """The granularity of all layers, or ``mixed``."""
    used = [granularity for granularity, layers in plan.recompute_layers.items() if layers]
    if len(used) != 1:
        return "mixed" if used else "none"
    return used[0].replace("every_", "every_n:")


def notes(plan: Plan) -> str:
    """What no column says."""
    lines = []
    if checkpointing(plan) == "mixed":
        counts = ", ".join(f"{g} {n}" for g, n in plan.recompute_layers.items() if n)
        lines.append(f"recompute layers: {counts}")
    if not plan.even:
        lines.append(f"layers per stage: {' '.join(str(s.layers) for s in plan.stages)}")
    if plan.offload_parameters != "none":
        lines.append(f"parameters on {plan.offload_parameters}")
    return "; ".join(lines)
