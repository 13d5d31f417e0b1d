"""A plan of the planner's own beside the files: the model and the GPUs it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.advisor.options import Options
from planner.advisor.readers import Reading
from planner.lint.document import Document

_OVERRIDES = ("host_memory", "inter_bandwidth", "intra_bandwidth", "nvme", "memory_limit")


def job_of(reading: Reading) -> Mapping[str, Any]:
    """The job that a plan among the files answers; empty without one."""
    doc = plan_of(reading)
    return doc.section("job") if doc is not None else {}


def plan_of(reading: Reading) -> Document | None:
    """The plan among the files, or the file itself."""
    docs = (reading.document, *reading.partners)
    return next((doc for doc in docs if doc.kind == "plan"), None)


def with_gpus(reading: Reading, options: Options) -> tuple[Options, tuple[str, ...]]:
    """The options with the hardware of the plan, where none is given, and a note of it."""
    job, doc = job_of(reading), plan_of(reading)
    gpus = job.get("gpus")
    if doc is None or options.gpus or not isinstance(gpus, str) or not gpus:
        return options, ()
    own = {k: v for k in _OVERRIDES if isinstance(v := job.get(k), str)}
    fields = {**own, **options.fields}
    return replace(options, gpus=gpus, fields=fields), (f"GPUs {gpus}, as {doc.name} says",)
