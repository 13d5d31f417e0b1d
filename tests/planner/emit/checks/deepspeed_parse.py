"""Load configurations in DeepSpeed's own class, as a rank of the plan's world would.

stdin: [[name, world size, configuration], ...]; stdout: the failures, [[name, error], ...].
"""

import json
import sys

import deepspeed.runtime.config as config


class World:
    """Stands in for torch.distributed."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_rank(self) -> int:
        return 0

    def get_world_size(self, *_: object) -> int:
        return self.size


failures = []
for name, size, data in json.load(sys.stdin):
    config.dist = World(size)
    try:
        config.DeepSpeedConfig(data)
    except Exception as error:
        failures.append([name, f"{type(error).__name__}: {error}"])
print("\n" + json.dumps(failures))
