"""Load Accelerate's YAML files with its own loader, launcher and plugins.

stdin: [[name, path], ...]; stdout: the failures, [[name, error], ...].
"""

import json
import os
import sys

from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin

KNOWN = {action.dest for action in launch_command_parser()._actions}


def check(path: str) -> None:
    config = load_config_from_file(path)
    fsdp, sizes = config.fsdp_config or {}, config.parallelism_config or {}
    unknown = set(fsdp) | set(sizes) | set(config.deepspeed_config or {})
    assert not unknown - KNOWN, f"unknown keys {sorted(unknown - KNOWN)}"
    if fsdp:
        for key, value in fsdp.items():
            os.environ["FSDP_" + key.removeprefix("fsdp_").upper()] = str(value)
        wrapped = fsdp["fsdp_transformer_layer_cls_to_wrap"]
        os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = wrapped
        plugin = FullyShardedDataParallelPlugin()
        assert plugin.fsdp_version == 2
        assert plugin.reshard_after_forward == fsdp["fsdp_reshard_after_forward"]
        assert plugin.activation_checkpointing == fsdp["fsdp_activation_checkpointing"]
    if sizes:
        names = ParallelismConfig.__dataclass_fields__
        given = {key.removeprefix("parallelism_config_"): value for key, value in sizes.items()}
        parallel = ParallelismConfig(**{k: v for k, v in given.items() if k in names})
        assert parallel.total_size == config.num_processes


failures = []
for name, path in json.load(sys.stdin):
    try:
        check(path)
    except Exception as error:
        failures.append([name, f"{type(error).__name__}: {error}"])
print("\n" + json.dumps(failures))
