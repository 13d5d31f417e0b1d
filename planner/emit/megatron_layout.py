"""Which layers each pipeline rank holds, in Megatron-LM's words."""

from __future__ import annotations

from planner.plan import Plan


def chunk_layers(plan: Plan) -> list[list[int]]:
    """Layers of every model chunk: ``[virtual stage][pipeline rank]``.

    A rank's layers are spread over its chunks as evenly as whole layers allow, the earlier chunks
    taking one more.
    """
    v = plan.virtual_stages
    return [
        [stage.layers // v + (chunk < stage.layers % v) for stage in plan.stages]
        for chunk in range(v)
    ]


def needs_layout(plan: Plan) -> bool:
    """Whether stages differ, so that a plain division by pp does not describe them."""
    return any(len(set(chunk)) > 1 for chunk in chunk_layers(plan)) or any(
        stage.layers % plan.virtual_stages for stage in plan.stages
    )


def pipeline_layout(plan: Plan) -> str:
    """The value of --pipeline-model-parallel-layout.

    Stages are separated by ``|``, in the order a micro-batch passes them: all ranks of the first
    chunk, then of the second. ``E`` is the embedding, ``t*n`` n layers, ``L`` the head and loss
    (megatron/core/transformer/pipeline_parallel_layer_layout.py).
    """
    counts = [count for chunk in chunk_layers(plan) for count in chunk]
    parts = [f"t*{count}" if count > 1 else "t" * count for count in counts]
    parts[0] = "E" + parts[0]
    parts[-1] += "L"
    return "|".join(parts)
