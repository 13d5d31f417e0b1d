"""Validate Megatron-LM arguments with megatron-core's TransformerConfig.

stdin: [[name, {flag: value or null}], ...]; stdout: the failures, [[name, error], ...].
"""

import dataclasses
import json
import sys

import torch
from megatron.core.transformer import MLATransformerConfig, TransformerConfig

RENAMED = {
    "swiglu": "gated_linear_unit",
    "num-experts": "num_moe_experts",
    "num-query-groups": "num_query_groups",
    "pipeline-model-parallel-layout": "pipeline_model_parallel_layout",
}
OFF = {"disable-bias-linear": "add_bias_linear"}
NOT_CORE = {"fp8-format"}  # named fp8 in the class; needs Transformer Engine


def fields_of(flags: dict, kind: type) -> dict:
    """The class's fields that the flags set."""
    known = {field.name: field.type for field in dataclasses.fields(kind)}
    found = {}
    for flag, value in flags.items():
        name = flag.removeprefix("--")
        if name in OFF:
            found[OFF[name]] = False
            continue
        field = RENAMED.get(name, name.replace("-", "_"))
        if field not in known or name in NOT_CORE or name.startswith("fp8"):
            continue
        text = str(known[field])
        if value is None:
            found[field] = True
        elif "layer_freq" in field:
            found[field] = eval(value)
        elif "str" in text and "int" not in text:
            found[field] = value
        else:
            found[field] = float(value) if "float" in text else value
            if "int" in text:
                found[field] = int(value) if value.lstrip("-").isdigit() else value
    return found


def check(flags: dict) -> None:
    kind = MLATransformerConfig if "--multi-latent-attention" in flags else TransformerConfig
    fields = fields_of(flags, kind)
    fields.pop("attention_backend", None)
    fields.pop("window_size", None)
    dtype = torch.bfloat16 if "--bf16" in flags else torch.half if "--fp16" in flags else None
    if dtype is not None:
        fields["params_dtype"] = fields["pipeline_dtype"] = dtype
    if fields.get("pipeline_model_parallel_size", 1) > 1:
        fields.setdefault("pipeline_dtype", torch.float32)
    chunk = flags.get("--num-layers-per-virtual-pipeline-stage")
    if chunk:
        stages = fields["num_layers"] // fields["pipeline_model_parallel_size"]
        fields["virtual_pipeline_model_parallel_size"] = stages // int(chunk)
    layout = fields.get("pipeline_model_parallel_layout")
    if layout:
        chunks = len(layout.split("|")) // fields["pipeline_model_parallel_size"]
        fields["virtual_pipeline_model_parallel_size"] = chunks if chunks > 1 else None
    kind(**fields)


failures = []
for name, flags in json.load(sys.stdin):
    try:
        check(flags)
    except Exception as error:
        failures.append([name, f"{type(error).__name__}: {error}"])
print("\n" + json.dumps(failures))
