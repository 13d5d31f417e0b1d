"""How intrusive a shape is: the order of the ladder, as integer columns."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Array
from planner.job import Job
from planner.space import Shapes

RANKED = (
    "NVMe offload",
    "CPU offload",
    "tensor parallelism across nodes",
    "context or expert parallelism",
    "pipeline stages",
    "ZeRO-3",
    "tensor parallelism",
    "ZeRO-2",
    "ZeRO-1",
    "a stack with a training script of its own",
    "virtual stages",
)  # what the columns of ``rank`` count


def rank(job: Job, shapes: Shapes) -> Array:
    """Intrusiveness of what each shape uses, most intrusive technique first, shape (n, K).

    The order is the ladder's: NVMe offload, CPU offload, TP across nodes, CP and EP, PP, ZeRO-3,
    TP inside a node, ZeRO-2, ZeRO-1. Recomputation comes after all of them and is counted by the
    program. Ties go to the stack listed first and to fewer virtual stages.
    """
    node = job.cluster.gpus_per_node
    inside, across = shapes.tp * (shapes.tp <= node), shapes.tp * (shapes.tp > node)
    order = [stack.name for stack in job.stacks].index(shapes.stack.name)
    columns = [
        (shapes.offload_optimizer == 2) * 1 + (shapes.offload_parameters == 2),
        (shapes.offload_optimizer >= 1) * 1 + (shapes.offload_parameters >= 1),
        across,
        shapes.cp * shapes.ep - 1,
        shapes.pp - 1,
        shapes.zero_stage == 3,
        np.maximum(inside - 1, 0),
        shapes.zero_stage == 2,
        shapes.zero_stage == 1,
        np.full(len(shapes), order),
        shapes.virtual_stages - 1,
    ]
    return np.stack([np.asarray(c, dtype=np.int64) for c in columns], axis=1)
