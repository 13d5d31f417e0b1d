"""What FSDP does that a plan cannot say: units, sharding inside a node, gradients kept whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from costmodels.params import total_parameters
from planner.advisor.readers import Reading
from planner.job import Job
from planner.lint import Context
from planner.lint.document import as_int
from planner.lint.finding import Finding

if TYPE_CHECKING:
    from hardware_db import Cluster

_HYBRID = frozenset({"HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5"})
_GRADIENT_BYTES = 2  # of a gradient in 16 bit; kept in the dtype of the computation


def whole_unit(findings: Iterable[Finding]) -> bool:
    """Whether the model is one FSDP unit, gathered at once."""
    return any(finding.id in ("acc-no-wrap", "hf-no-wrap") for finding in findings)


def hybrid(reading: Reading, ctx: Context) -> bool:
    """Whether FSDP shards inside a node only, with a copy on every node."""
    for doc in (reading.document, *ctx.partners):
        section = doc.section("fsdp_config")
        for key in ("fsdp_sharding_strategy", "sharding_strategy"):
            if str(section.get(key)).upper() in _HYBRID:
                return True
        words = doc.get("fsdp")
        text = " ".join(map(str, words)) if isinstance(words, list) else str(words)
        if "hybrid_shard" in text.lower():
            return True
    return False


def one_node(fields: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """The job's fields on one node of a cluster; a global batch is shared out.

    >>> node_of("4x8xH100-80G", 8), node_of("32xA100-80G", 8)
    ('8xH100-80G', '8xA100-80G')
    """
    out = dict(fields)
    out["gpus"] = node_of(str(fields["gpus"]), cluster.gpus_per_node)
    total = as_int(fields.get("global_batch"))
    if total and total % cluster.nodes == 0:
        out["global_batch"] = total // cluster.nodes
    return out


def node_of(gpus: str, per_node: int) -> str:
    """One node of a GPU argument."""
    return f"{per_node}x{re.sub(r'^([0-9]+x){1,2}', '', gpus.strip())}"


def kept_gradients(reading: Reading, ctx: Context, fix: Mapping[str, Any], job: Job) -> str:
    """A note where accumulation keeps whole gradients on every GPU; empty elsewhere.

    Accelerate leaves gradients unsharded between the micro-batches of a step (no_sync).
    """
    titan = reading.document.has("parallelism.data_parallel_shard_degree")
    accumulates = int(fix.get("grad_accum", 1)) > 1 and int(fix.get("zero_stage", 0)) > 1
    sharded = job.stacks[0].name == "fsdp2" and int(fix.get("dp", 1)) > 1
    if not (sharded and accumulates and ctx.hugging_face) or titan:
        return ""
    size = total_parameters(job.architecture) * _GRADIENT_BYTES
    return (
        f"between micro-batches FSDP keeps whole gradients on every GPU (no_sync):"
        f" {size / 2**30:.1f} GiB or more that the prediction does not count"
    )
