"""Where a plan runs: nodes, processes, and the environment they rely on."""

from __future__ import annotations

from dataclasses import dataclass

from planner.job import Job
from planner.plan import Plan

NVME_PATH = "/local_nvme"  # mount point of the drives, checked by launch.sh before it starts
MASTER_PORT = 29500  # torchrun's default
PINNED_ROUNDING = 64  # MiB; smaller pinned allocations may still round up


@dataclass(frozen=True, slots=True)
class Layout:
    """Processes of a run, one a GPU."""

    nodes: int
    gpus_per_node: int
    cpus_per_gpu: int


def layout(job: Job, plan: Plan) -> Layout:
    """How the plan's GPUs lie on nodes.

    Raises
    ------
    ValueError
        If they cannot be spread evenly over the job's nodes.
    """
    cluster = job.cluster if plan.gpus == job.cluster.gpus else job.cluster.with_gpus(plan.gpus)
    cores = max(1, cluster.node.cpu_cores // cluster.node.gpus)
    return Layout(cluster.nodes, cluster.gpus_per_node, cores)


def environment(job: Job, plan: Plan) -> dict[str, str]:
    """Variables every launch sets unless the user already has.

    Notes
    -----
    Growing segments keep fragmentation to a few per cent (PyTorch, CUDA semantics, "Optimizing
    memory usage"); torch 2.9 renamed the variable and reads both names. CPU Adam runs on
    ``OMP_NUM_THREADS`` threads of each process. torch rounds pinned allocations up to powers of
    two: DeepSpeed's own page-locked allocator does not (deepspeed/utils/pin_memory.py), and from
    torch 2.13 a size can be named above which torch does not (c10/core/AllocatorConfig.h).
    """
    threads = layout(job, plan).cpus_per_gpu
    allocator = "expandable_segments:True"
    pinned = f",pinned_max_round_threshold_mb:{PINNED_ROUNDING}" if rounds_pinned(plan) else ""
    variables = {
        "PYTORCH_CUDA_ALLOC_CONF": allocator,
        "PYTORCH_ALLOC_CONF": allocator + pinned,
        "OMP_NUM_THREADS": str(threads),
        "NCCL_DEBUG": "WARN",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if offloads(plan) and not rounds_pinned(plan):
        variables["DS_PIN_MEMORY_BACKEND"] = "native"
    if plan.precision == "tf32":
        variables["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = "1"
    return variables


def rounds_pinned(plan: Plan) -> bool:
    """Whether the run offloads through torch's own pinned allocator."""
    return offloads(plan) and plan.stack not in ("deepspeed", "megatron-deepspeed")


def offloads(plan: Plan) -> bool:
    """Whether anything is kept on the host or on NVMe."""
    return plan.offload_optimizer != "none" or plan.offload_parameters != "none"


def uses_nvme(plan: Plan) -> bool:
    """Whether anything is kept on NVMe."""
    return "nvme" in (plan.offload_optimizer, plan.offload_parameters)


def single_connection(job: Job, plan: Plan) -> bool:
    """Whether the framework asserts CUDA_DEVICE_MAX_CONNECTIONS=1.

    Megatron-LM megatron/training/arguments.py: tensor or context parallelism before Blackwell
    (the order of kernels then lets communication start first).
    """
    capability = job.cluster.node.gpu.compute_capability
    return (plan.tp > 1 or plan.cp > 1) and (capability is None or capability < (10, 0))
