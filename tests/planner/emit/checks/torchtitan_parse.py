"""Parse torchtitan command lines with its own configuration manager, and build the model.

stdin: [[name, folder, arguments, world size, parameters, norm_eps], ...]; stdout: the failures.
"""

import importlib
import json
import sys

import torch
from torchtitan.config import ConfigManager
from torchtitan.distributed.parallel_dims import ParallelDims


def check(folder: str, arguments: list, size: int, parameters: int, norm_eps: float) -> None:
    sys.path.insert(0, folder)
    sys.modules.pop("titan_model", None)
    importlib.invalidate_caches()
    try:
        config = ConfigManager().parse_args(arguments)
    finally:
        sys.path.remove(folder)
    degrees = config.parallelism
    ParallelDims(
        dp_replicate=degrees.data_parallel_replicate_degree,
        dp_shard=degrees.data_parallel_shard_degree,
        cp=degrees.context_parallel_degree,
        tp=degrees.tensor_parallel_degree,
        pp=degrees.pipeline_parallel_degree,
        ep=degrees.expert_parallel_degree,
        world_size=size,
    )
    with torch.device("meta"):
        model = config.model_spec.model.build()
    count = sum(weight.numel() for weight in model.parameters())
    assert count == parameters, f"{count} parameters, not {parameters}"
    epsilons = {part.eps for part in model.modules() if isinstance(part, torch.nn.RMSNorm)}
    assert epsilons == {norm_eps}, f"norms with {epsilons}, not {norm_eps}"


failures = []
for name, *case in json.load(sys.stdin):
    try:
        check(*case)
    except BaseException as error:
        failures.append([name, f"{type(error).__name__}: {error}"])
print("\n" + json.dumps(failures))
