"""Emitted Megatron-LM arguments pass megatron-core's own validation of a configuration."""

import dataclasses

import bundles
import pytest

from planner.emit.megatron import plan_arguments
from planner.emit.megatron_model import model_arguments
from planner.job import resolve
from planner.spec import make_spec

torch = pytest.importorskip("torch")
transformer = pytest.importorskip("megatron.core.transformer")

# Flags the configuration class spells differently (megatron/training/arguments.py,
# core_transformer_config_from_args), and what they mean there.
RENAMED = {
    "--num-experts": "num_moe_experts",
    "--attention-backend": None,
    "--fp8-format": "fp8",
    "--window-size": None,
    "--swiglu": None,
    "--normalization": "normalization",
}
FIELDS = {field.name: field for field in dataclasses.fields(transformer.TransformerConfig)}
# Degrees and recomputation must reach the class; a renamed flag would pass unnoticed.
MUST_REACH = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "num_layers", "hidden_size"),
    *("num_attention_heads", "ffn_hidden_size"),
)


def typed(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def configuration(job, plan):
    """What core_transformer_config_from_args would hand to the class."""
    dtype = torch.float16 if plan.precision == "fp16" else torch.bfloat16
    values = {"params_dtype": dtype, "pipeline_dtype": dtype}
    values |= {"num_query_groups": job.architecture.kv_heads}
    for flag, *words in [*model_arguments(job, plan), *plan_arguments(job, plan)]:
        name = RENAMED.get(flag, flag.removeprefix("--").replace("-", "_"))
        if flag == "--swiglu":
            values |= {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu}
        elif flag == "--disable-bias-linear":
            values["add_bias_linear"] = False
        elif flag == "--num-layers-per-virtual-pipeline-stage":
            chunk = job.architecture.layers // plan.pp // int(words[0])
            values["virtual_pipeline_model_parallel_size"] = chunk
        elif name in FIELDS:
            values[name] = typed(words[0]) if words else True
    assert set(MUST_REACH) <= set(values)
    return transformer.TransformerConfig(**values)


# model, degrees, layers a stage with their recomputation
SMALL = {"dp": 1, "tp": 1, "pp": 1}
PLANS = [
    ("llama2-7b", {"dp": 8}, None),
    ("llama2-7b", {"dp": 8, "zero_stage": 1}, [{"full": 32}]),
    ("llama2-7b", {"dp": 4, "tp": 2, "sequence_parallel": True}, [{"selective": 32}]),
    ("llama2-7b", {"dp": 2, "tp": 4, "sequence_parallel": True}, [{"full": 20, "none": 12}]),
    ("llama2-7b", {"dp": 4, "pp": 2}, [{"none": 17}, {"none": 15}]),
    ("llama2-7b", {"dp": 2, "pp": 4}, [{"none": 8}] * 4),
    ("llama2-7b", {"dp": 2, "pp": 4}, [{"none": 9}, {"none": 8}, {"none": 8}, {"none": 7}]),
    ("llama2-7b", {"dp": 2, "pp": 4, "virtual_stages": 2}, [{"none": 8}] * 4),
    ("llama2-7b", {"dp": 2, "pp": 4}, [{"full": 8}] * 4),
    ("llama2-7b", {"dp": 2, "pp": 4}, [{"every_2": 8}] * 4),
    ("llama2-7b", {"dp": 2, "pp": 4}, [{"full": 4, "none": 4}] * 4),
    ("llama2-7b", {"dp": 4, "cp": 2}, None),
    ("llama2-13b", {"dp": 1, "tp": 2, "pp": 4}, [{"none": 10}] * 4),
    ("llama2-13b", {"dp": 4, "tp": 2, "precision": "fp16"}, [{"selective": 40}]),
    ("llama2-70b", {"dp": 1, "tp": 8, "sequence_parallel": True}, [{"full": 80}]),
    ("llama2-70b", {"dp": 1, "tp": 4, "pp": 2}, [{"full": 40}] * 2),
    ("llama2-70b", {"dp": 1, "tp": 2, "pp": 4}, [{"full": n} for n in (19, 20, 21, 20)]),
    ("gpt3-175b", {"dp": 1, "tp": 8}, [{"full": 96}]),
    ("gpt3-1.3b", {"dp": 8, "zero_stage": 1}, None),
    ("mixtral-8x7b", {"dp": 8, "ep": 8}, [{"full": 32}]),
    ("qwen2-7b", {"dp": 2, "tp": 4, "sequence_parallel": True}, [{"selective": 28}]),
]


@pytest.mark.parametrize("index", range(len(PLANS)))
def test_the_class_accepts_the_plan(index):
    model, fields, recompute = PLANS[index]
    fields = {**SMALL, "grad_accum": 8, "cp": 1, "ep": 1, "stack": "megatron", **fields}
    gpus = fields["dp"] * fields["tp"] * fields["pp"] * fields["cp"]
    batch = fields["dp"] * 2 * fields["grad_accum"]
    spec = {"model": model, "gpus": f"{gpus}xH100-80G", "seq_len": 2048, "global_batch": batch}
    job = resolve(make_spec({**spec, "stack": "megatron"}))
    plan = bundles.make_plan(job, recompute=recompute, **{**fields, "gpus": gpus})
    accepted = configuration(job, plan)
    assert accepted.tensor_model_parallel_size == plan.tp
    assert accepted.pipeline_model_parallel_size == plan.pp
    assert accepted.sequence_parallel == plan.sequence_parallel
    assert accepted.num_layers == job.architecture.layers


def test_the_class_refuses_a_wrong_layout():
    """The check is worth something: a layer too many is refused."""
    job = resolve(make_spec({"model": "llama2-7b", "gpus": "8xH100-80G", "stack": "megatron"}))
    fields = {"stack": "megatron", "dp": 2, "pp": 4, "gpus": 8, "grad_accum": 8}
    counts = [{"none": n} for n in (9, 8, 8, 8)]
    plan = bundles.make_plan(job, recompute=counts, **fields)
    with pytest.raises((ValueError, AssertionError)):
        configuration(job, plan)
