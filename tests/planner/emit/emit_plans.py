"""Jobs and hand-made plans."""

from __future__ import annotations

from typing import Any

from planner.job import Job, resolve
from planner.plan import Plan, Stage
from planner.spec import make_spec


def make_job(model: str = "llama2-7b", gpus: str = "8xA100-80G", **fields: Any) -> Job:
    """A resolved job with a small batch."""
    given = {"model": model, "gpus": gpus, "seq_len": 2048, "global_batch": 64, **fields}
    return resolve(make_spec(given))


def make_plan(
    job: Job,
    stack: str = "deepspeed",
    *,
    layers: tuple[int, ...] = (),
    recompute: tuple[dict[str, int], ...] = (),
    offloaded: int | None = None,
    **axes: Any,
) -> Plan:
    """A plan with even stages and no recomputation unless told otherwise.

    ``dp`` and ``grad_accum`` follow from the other axes where not given.
    """
    chosen = {
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "ep": 1,
        "micro_batch": 1,
        "virtual_stages": 1,
        "zero_stage": 1,
        "precision": "bf16",
        "attention": "flash",
        "sequence_parallel": False,
        "offload_optimizer": "none",
        "offload_parameters": "none",
        "gpus": job.cluster.gpus,
        **axes,
    }
    model = chosen["tp"] * chosen["pp"] * chosen["cp"]
    chosen.setdefault("dp", chosen["gpus"] // model)
    chosen.setdefault("grad_accum", job.global_batch // (chosen["dp"] * chosen["micro_batch"]))
    pp, total = chosen["pp"], job.architecture.layers
    layers = layers or tuple(total // pp + (i < total % pp) for i in range(pp))
    kinds = recompute or tuple({"none": n} for n in layers)
    away = total if offloaded is None and chosen["offload_optimizer"] != "none" else offloaded or 0
    stages = tuple(
        Stage(
            stage=i,
            first_layer=sum(layers[:i]),
            layers=n,
            recompute=kinds[i],
            offloaded_layers=away if pp == 1 else (n if away else 0),
            embedding=i == 0,
            head=i == pp - 1,
            time_s=1.0,
            peak_memory_bytes=1 << 34,
        )
        for i, n in enumerate(layers)
    )
    used = {name for kind in kinds for name, count in kind.items() if count}
    summary = used.pop() if len(used) == 1 else "mixed"
    return Plan(stack=stack, stages=stages, recompute=summary, **chosen)
