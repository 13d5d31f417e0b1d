"""Options that describe a job, each once; the commands that take a job share the list."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from planner.cli_common import Profile

Model = Annotated[
    str | None,
    typer.Option(help="Catalogue name, size such as 13b, config.json, or YAML shape."),
]
Gpus = Annotated[
    str | None, typer.Option(help="8xA100-80G, 4x8xH100-80G, 2xp4d.24xlarge, or auto.")
]
SeqLen = Annotated[int | None, typer.Option(help="Tokens in a sequence (4096).")]
GlobalBatch = Annotated[int | None, typer.Option(help="Sequences in a step (512).")]
GlobalTokens = Annotated[int | None, typer.Option(help="Tokens in a step, instead.")]
Optimizer = Annotated[
    str | None,
    typer.Option(help="sgd momentum adam adamw adafactor adam8bit lion muon (adamw)."),
]
Precision = Annotated[str | None, typer.Option(help="auto fp32 tf32 fp16 bf16 fp8 (auto).")]
StackOption = Annotated[
    str | None,
    typer.Option("--stack", help="auto deepspeed megatron-deepspeed megatron fsdp2 (auto)."),
]
GradDtype = Annotated[str | None, typer.Option(help="Gradient accumulation dtype (the stack's).")]
Dropout = Annotated[float | None, typer.Option(help="Dropout probability (0).")]
CrossEntropy = Annotated[str | None, typer.Option(help="auto eager fused chunked (auto).")]
Hardware = Annotated[Path | None, typer.Option(help="YAML with your own GPUs or nodes.")]
IntraBandwidth = Annotated[str | None, typer.Option(help="Between GPUs of a node: 300GB/s.")]
InterBandwidth = Annotated[str | None, typer.Option(help="Between nodes, per node: 400Gb/s.")]
HostMemory = Annotated[str | None, typer.Option(help="RAM of a node: 512GB.")]
Nvme = Annotated[str | None, typer.Option(help="NVMe capacity of a node: 8TB; 0 for none.")]
MemoryLimit = Annotated[str | None, typer.Option(help="Memory to plan for on a GPU: 72GiB.")]
Fix = Annotated[list[str] | None, typer.Option(help="AXIS=VALUE[,VALUE...], e.g. tp=4.")]
Min = Annotated[list[str] | None, typer.Option(help="AXIS=NUMBER, e.g. pp=2.")]
Max = Annotated[list[str] | None, typer.Option(help="AXIS=NUMBER, e.g. zero_stage=2.")]
Forbid = Annotated[
    list[str] | None, typer.Option(help="AXIS or AXIS=VALUE, e.g. offload_optimizer.")
]
JobFile = Annotated[
    Path | None, typer.Argument(help="job.yaml with the same fields; options override it.")
]


def _job_options(
    model: Model = None,
    gpus: Gpus = None,
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    global_tokens: GlobalTokens = None,
    optimizer: Optimizer = None,
    precision: Precision = None,
    stack: StackOption = None,
    grad_dtype: GradDtype = None,
    dropout: Dropout = None,
    cross_entropy: CrossEntropy = None,
    hardware: Hardware = None,
    profile: Profile = None,
    intra_bandwidth: IntraBandwidth = None,
    inter_bandwidth: InterBandwidth = None,
    host_memory: HostMemory = None,
    nvme: Nvme = None,
    memory_limit: MemoryLimit = None,
    fix: Fix = None,
) -> None:
    """Fields of a job that every command about one takes."""


def takes_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose ``**options`` are typed as those of a job, after its first parameter.

    typer reads options from a signature; so they have their help, and need saying only once.
    """
    first, *own = inspect.signature(command, eval_str=True).parameters.values()
    shared = inspect.signature(_job_options, eval_str=True).parameters.values()
    own = [p for p in own if p.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (first, *shared, *own)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command
