"""train.py and its companions: what they hold, without the frameworks they drive."""

import csv
import importlib.util
import io
import json
import subprocess
import sys

import pytest

from planner.catalogue import load_model, model_names
from planner.emit.model_config import WRITERS, model_config
from planner.emit.model_parts import PARTS
from planner.emit.train import tiny, tiny_layers, train_files
from planner.emit.train_row import COLUMNS, measured_row
from planner.hf_config import read_config
from planner.job import resolve
from planner.plan import Plan, Stage
from planner.spec import make_spec

# The header of a table of measured runs.
HEADER = (
    "source,ref,model,params_b,layers,hidden,heads,kv_heads,ffn,vocab,gated_mlp,tied_embeddings,"
    "experts,topk,gpu,gpu_mem_gb,n_gpus,gpus_per_node,intra_bw,inter_bw,framework,precision,"
    "optimizer,seq_len,micro_batch,global_batch_seqs,grad_accum,dp,tp,pp,cp,ep,virtual_stages,"
    "sequence_parallel,zero_stage,offload,act_ckpt,attention,step_time_s,tokens_per_s_per_gpu,"
    "tflops_per_gpu,mfu_pct,peak_mem_gib,mem_kind,outcome,notes,fused_norm"
)


def job_of(**fields):
    spec = {"model": "llama2-7b", "gpus": "8xA100-80G", "seq_len": 4096, "global_batch": 64}
    return resolve(make_spec({**spec, **fields}))


def plan_of(job, recompute=None, **fields):
    counts = recompute or [{"full": job.architecture.layers}]
    starts = [sum(sum(c.values()) for c in counts[:i]) for i in range(len(counts))]
    stages = [
        Stage(
            stage=i,
            first_layer=starts[i],
            layers=sum(count.values()),
            recompute=count,
            offloaded_layers=0,
            embedding=i == 0,
            head=i == len(counts) - 1,
            time_s=1.0,
            peak_memory_bytes=1,
        )
        for i, count in enumerate(counts)
    ]
    values = {
        **{"stack": "deepspeed", "gpus": 8, "dp": 8, "tp": 1, "pp": 1, "cp": 1, "ep": 1},
        **{"micro_batch": 2, "grad_accum": 4, "virtual_stages": 1, "zero_stage": 1},
        **{"precision": "bf16", "attention": "flash", "recompute": "mixed"},
        **{"offload_optimizer": "none", "offload_parameters": "none"},
    }
    return Plan(stages=tuple(stages), sequence_parallel=False, **{**values, **fields})


PIPELINE = {"dp": 4, "pp": 2, "grad_accum": 8}
UNEVEN = [{"full": 10, "none": 7}, {"none": 11, "every_4": 4}]
CASES = {
    "plain": ({}, {"zero_stage": 0, "recompute": [{"none": 32}]}),
    "stage 3": ({}, {"zero_stage": 3}),
    "pipeline": ({}, {**PIPELINE, "recompute": UNEVEN}),
    "pipeline, chunked": ({"cross_entropy": "chunked"}, {**PIPELINE, "recompute": UNEVEN}),
    "pipeline, fused": ({"cross_entropy": "fused"}, {**PIPELINE, "recompute": UNEVEN}),
    "tensor parallel": ({}, {"dp": 4, "tp": 2, "grad_accum": 8}),
    "chunked": ({"cross_entropy": "chunked"}, {"zero_stage": 2}),
    "fused": ({"cross_entropy": "fused"}, {"zero_stage": 2}),
    "8-bit Adam": ({"optimizer": "adam8bit"}, {}),
    "tuples": ({"model": "falcon-7b"}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_files_are_clean_python_and_json(name, tmp_path):
    spec, fields = CASES[name]
    job = job_of(**spec)
    files = train_files(job, plan_of(job, **fields))
    for file, text in files.items():
        (tmp_path / file).write_text(text)
        if file.endswith(".json"):
            json.loads(text)
        else:
            compile(text, file, "exec")
            assert max(map(len, text.splitlines())) <= 100
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "E,F,I,UP,B,RET,SIM,PTH"]
    answer = subprocess.run(
        [*ruff, "--line-length", "100", "--isolated", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("name", CASES)
def test_every_module_it_imports_is_in_the_bundle(name):
    spec, fields = CASES[name]
    job = job_of(**spec)
    files = train_files(job, plan_of(job, **fields))
    for text in files.values():
        for line in text.splitlines():
            if line.startswith("from train_"):
                assert f"{line.split()[1]}.py" in files
    assert files == train_files(job, plan_of(job, **fields))


def test_one_marked_place_for_the_data():
    job = job_of()
    assert train_files(job, plan_of(job))["train.py"].count("YOUR DATA HERE") == 1


def test_8_bit_adam_is_made_by_the_script():
    job = job_of(optimizer="adam8bit")
    assert "bitsandbytes.optim.AdamW8bit(" in train_files(job, plan_of(job))["train.py"]
    assert "bitsandbytes" not in train_files(job_of(), plan_of(job_of()))["train.py"]


@pytest.mark.parametrize(
    ("spec", "fields", "reason"),
    [
        ({}, {"stack": "megatron"}, "not megatron"),
        ({}, {"dp": 2, "tp": 2, "pp": 2, "recompute": UNEVEN}, "AutoTP"),
        ({}, {"dp": 4, "cp": 2}, "cp 2"),
        ({}, {"precision": "fp8"}, "fp8"),
        ({"model": "mpt-7b"}, {"recompute": [{"full": 32}]}, "eager attention only"),
        ({"model": "llama4-scout-17b-16e"}, {"recompute": [{"full": 48}]}, "llama4_text"),
    ],
)
def test_what_it_cannot_do_is_refused(spec, fields, reason):
    job = job_of(**spec)
    with pytest.raises(ValueError, match=reason):
        train_files(job, plan_of(job, **fields))


@pytest.mark.parametrize("family", sorted(WRITERS))
def test_a_written_config_reads_back_as_the_same_network(family, tmp_path):
    assert family in PARTS
    for name in model_names():
        arch = load_model(name)
        if arch.family != family or name == "gpt3-13b":
            continue
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(model_config(arch)))
        read, _ = read_config(path)
        for field in arch.__slots__:
            if field not in ("name", "published_parameters"):
                assert getattr(read, field) == getattr(arch, field), (name, field)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="hidden = heads x head size"):
        model_config(load_model("gpt3-13b"))


def test_the_measured_row_has_the_columns_of_measured_runs():
    assert ",".join(COLUMNS) == HEADER
    job = job_of()
    row = measured_row(job, plan_of(job))
    assert tuple(row) == COLUMNS
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS).writerow(row)
    assert (row["params_b"], row["act_ckpt"], row["offload"]) == (6.738416, "full", "none")
    assert row["global_batch_seqs"] == 64
    mixed = measured_row(job, plan_of(job, recompute=[{"full": 20, "none": 12}]))
    assert mixed["act_ckpt"] == "mixed"
    assert "full 20, none 12" in str(mixed["notes"])


def tiny_module(job, plan, folder):
    """train_tiny.py, which imports nothing but the standard library."""
    path = folder / "train_tiny.py"
    path.write_text(train_files(job, plan)["train_tiny.py"])
    spec = importlib.util.spec_from_file_location("train_tiny", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", [name for name, (spec, _) in CASES.items() if not spec])
def test_the_small_stages_hold_the_layers_of_the_small_model(name, tmp_path):
    _, fields = CASES[name]
    job = job_of()
    plan = plan_of(job, **fields)
    small = plan.model_dump(mode="json")
    config = {"train_batch_size": 64, "zero_optimization": {"stage": plan.zero_stage}}
    tiny_module(job, plan, tmp_path).shrink(small, config, 2)
    layers = [stage["layers"] for stage in small["stages"]]
    assert sum(layers) == tiny_layers(plan) == tiny(job.architecture, plan).layers
    assert small["dp"] * small["tp"] * small["pp"] == small["gpus"] == 2
    assert config["train_batch_size"] == small["dp"] * small["micro_batch"] * small["grad_accum"]
    for ours, theirs in zip(
        small["stages"], [plan.stages[0], plan.stages[-1]][: len(layers)], strict=True
    ):
        assert sum(ours["recompute"].values()) == ours["layers"]
        assert {g for g, n in ours["recompute"].items() if n} == {
            g for g, n in theirs.recompute.items() if n
        }
    if not plan.even:
        assert layers[0] != layers[1]


def test_a_cpu_takes_bf16_for_fp16_and_pins_nothing(tmp_path):
    job = job_of()
    module = tiny_module(job, plan_of(job), tmp_path)
    config = {
        "fp16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp16"},
        "zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": True}},
    }
    plan = {"precision": "fp16"}
    module.for_cpu(plan, config)
    assert config["bf16"] == {"enabled": True}
    assert "fp16" not in config
    assert config["data_types"] == {}
    assert config["zero_optimization"]["offload_optimizer"]["pin_memory"] is False
    assert plan["precision"] == "bf16"
