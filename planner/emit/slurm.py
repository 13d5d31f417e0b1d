"""job.sbatch: launch.sh on every node of a Slurm allocation."""

from __future__ import annotations

from planner.emit.launch import describe
from planner.emit.layout import layout
from planner.emit.text import render
from planner.job import Job
from planner.plan import Plan


def sbatch(job: Job, plan: Plan) -> str:
    """The batch script. One task a node; torchrun starts the processes.

    Slurm 22.05 and later do not hand --cpus-per-task of the job to srun, so it is repeated
    (Slurm release notes 22.05).
    """
    where = layout(job, plan)
    return render(
        "job.sbatch.j2",
        comment=describe(job, plan),
        name=f"{job.architecture.name}-{plan.gpus}gpu",
        layout=where,
        cpus=where.cpus_per_gpu * where.gpus_per_node,
    )
