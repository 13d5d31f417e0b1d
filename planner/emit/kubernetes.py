"""A Kubeflow PyTorchJob (kubeflow.org/v1) that runs launch.sh on every node.

The training operator sets MASTER_ADDR, MASTER_PORT and RANK in every replica (Kubeflow Training
Operator v1, "PyTorchJob"); with one replica a node, RANK is the node's.
"""

from __future__ import annotations

from typing import Any

from planner.emit.launch import describe
from planner.emit.layout import MASTER_PORT, NVME_PATH, layout, uses_nvme
from planner.emit.text import dump_yaml
from planner.job import Job
from planner.plan import Plan

FOLDER = "/workspace/plan"
RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}


def pytorch_job(job: Job, plan: Plan) -> str:
    """pytorchjob.yaml.

    Raises
    ------
    ValueError
        If no device plugin is known for the GPU.
    """
    gpu = job.cluster.node.gpu
    if gpu.vendor not in RESOURCES:
        raise ValueError(f"kubernetes: no device plugin known for {gpu.name}")
    where = layout(job, plan)
    name = f"{job.architecture.name}-{plan.gpus}gpu".lower().replace(".", "-").replace("_", "-")
    replicas = {"Master": _replica(job, plan, 1)}
    if where.nodes > 1:
        replicas["Worker"] = _replica(job, plan, where.nodes - 1)
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0},
            "pytorchReplicaSpecs": replicas,
        },
    }
    header = [
        *describe(job, plan),
        f"Set image, and put the bundle into the volume claim plan, mounted at {FOLDER}.",
    ]
    return dump_yaml(manifest, "\n".join(header))


def _replica(job: Job, plan: Plan, count: int) -> dict[str, Any]:
    where = layout(job, plan)
    resource = RESOURCES[job.cluster.node.gpu.vendor]
    limits = {resource: where.gpus_per_node, "cpu": where.cpus_per_gpu * where.gpus_per_node}
    mounts = [
        {"name": "plan", "mountPath": FOLDER},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    volumes: list[dict[str, Any]] = [
        {"name": "plan", "persistentVolumeClaim": {"claimName": "plan"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},  # NCCL and data loaders need it
    ]
    if uses_nvme(plan):
        mounts.append({"name": "nvme", "mountPath": NVME_PATH})
        volumes.append({"name": "nvme", "hostPath": {"path": NVME_PATH, "type": "Directory"}})
    container = {
        "name": "pytorch",
        "image": "pytorch/pytorch:latest",
        "workingDir": FOLDER,
        "command": ["bash", "-c", 'NODE_RANK="${RANK:-0}" exec bash launch.sh'],
        "ports": [{"name": "pytorchjob-port", "containerPort": MASTER_PORT}],
        "resources": {"limits": limits},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},  # pinned and RDMA memory
        "volumeMounts": mounts,
    }
    return {
        "replicas": count,
        "restartPolicy": "Never",
        "template": {"spec": {"containers": [container], "volumes": volumes}},
    }
