"""Fill DeepSpeed's ``auto`` from TrainingArguments, as the Trainer does before it starts.

stdin: [[name, world size, training arguments, configuration], ...]; stdout: the failures.
"""

import dataclasses
import json
import os
import sys

from transformers import TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

FIELDS = {field.name for field in dataclasses.fields(TrainingArguments)}


class Model:
    """What the ``auto`` bucket sizes would read; the files leave none to it."""

    class config:
        hidden_size = 64


def check(size: int, arguments: dict, data: dict) -> None:
    assert set(arguments) <= FIELDS, sorted(set(arguments) - FIELDS)
    device = {"deepspeed": None, "bf16": False, "fp16": False, "tf32": None}  # no GPU here
    built = TrainingArguments(**{**arguments, **device})
    built.bf16, built.fp16 = arguments["bf16"], arguments["fp16"]
    type(built).world_size = property(lambda _: size)
    config = HfTrainerDeepSpeedConfig(data)
    config.trainer_config_process(built)
    config.trainer_config_finalize(built, Model, arguments["max_steps"])
    assert '"auto"' not in json.dumps(config.config), "auto is left"


os.environ.setdefault("DS_ACCELERATOR", "cpu")
failures = []
for name, size, arguments, data in json.load(sys.stdin):
    try:
        check(size, arguments, data)
    except Exception as error:
        failures.append([name, f"{type(error).__name__}: {error}"])
print("\n" + json.dumps(failures))
