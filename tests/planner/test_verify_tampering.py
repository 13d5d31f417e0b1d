"""A tampered bundle fails with the setting named; what the user may edit passes, and is said."""

import json
import shutil

import pytest

from planner.api import solve_to_files
from planner.job import echoed_fields, resolve
from planner.spec import make_spec
from planner.verify import verify

JOB = {"model": "llama2-7b", "gpus": "8xA100-80G", "global_batch": 64, "top": 0}
JOBS = {
    "deepspeed": {**JOB, "stack": "deepspeed"},
    "megatron": {**JOB, "stack": "megatron", "fix": ["pp=2"]},
    "megatron-deepspeed": {**JOB, "model": "gpt3-6.7b", "stack": "megatron-deepspeed"},
    "fsdp2": {**JOB, "stack": "fsdp2"},
    "accelerate": {**JOB, "model": "gpt2-xl", "stack": "fsdp2"},
    "nodes": {**JOB, "gpus": "2x8xA100-80G", "stack": "megatron"},
    "pipeline": {**JOB, "stack": "deepspeed", "fix": ["pp=2", "micro_batch=1"]},
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Folders as solve writes them, each solved once."""
    root = tmp_path_factory.mktemp("bundles")

    def get(name):
        if not (root / name).exists():
            solve_to_files(JOBS[name], output=root / name)
        return root / name

    return get


@pytest.fixture
def bundle(originals, tmp_path):
    """A copy of a bundle that may be tampered with."""
    return lambda name: shutil.copytree(originals(name), tmp_path / name)


def failures(folder):
    report = verify(folder, run=False)
    return {check.name: check.detail for check in report.checks if check.status == "failed"}


def detail(folder, name):
    return next(c.detail for c in verify(folder, run=False).checks if c.name == name)


@pytest.mark.parametrize("name", JOBS)
def test_an_untouched_bundle_is_as_emitted(name, originals):
    report = verify(originals(name), run=False)
    checks = {check.name: check for check in report.checks}
    assert report.ok, [c for c in report.checks if c.status == "failed"]
    for check in ("plan", "files", "prediction", "emission"):
        assert checks[check].status == "ok"
    assert "edited" not in checks["emission"].detail


# --- plan.json ---


def put(path, value):
    """An edit of a JSON document: the value at a dotted path; None takes the key away."""

    def edit(data):
        *inside, last = path.split(".")
        for key in inside:
            data = data[int(key) if key.isdecimal() else key]
        if value is None:
            del data[last]
        else:
            data[last] = value

    return edit


PLAN = [
    ("megatron", "plan.attention", "eager", "--attention-backend: flash"),
    ("megatron", "plan.recompute", "full", "plan.recompute"),
    ("megatron", "plan.stack", "deepspeed", "plan.stack"),
    ("megatron", "plan.virtual_stages", 1, "predicted.step_time_s"),
    ("megatron", "plan.precision", "fp16", "plan.precision"),
    ("megatron", "plan.sequence_parallel", True, "sequence"),
    ("megatron", "plan.zero_stage", 0, "predicted.peak_memory_bytes"),
    ("megatron", "plan.stages.0.layers", 15, "plan.stages.0.recompute"),
    ("megatron", "plan.stages.1.offloaded_layers", 3, "offloaded_layers"),
    ("megatron", "plan.stages.0.first_layer", 2, "first_layer"),
    ("megatron", "plan.stages.0.peak_memory_bytes", 5, "plan.stages.0.peak_memory_bytes"),
    ("megatron", "plan.tp", 0, "plan.tp"),
    ("megatron", "plan.attention", "none", "plan.attention"),
    ("megatron", "status", "infeasible", "status: infeasible"),
    ("megatron", "plan.pp", 1, "plan.stages"),
    ("megatron", "plan.gpus", 4, "plan.gpus"),
    ("megatron", "predicted.peak_memory_bytes", 1, "predicted.peak_memory_bytes"),
    ("megatron", "predicted.step_time_s", 0.5, "predicted.step_time_s"),
    ("megatron", "job.seq_len", 2048, "job.global_tokens"),
    ("megatron", "job.model", "llama2-13b", "layers"),
    ("megatron", "job.gpu", "h100-sxm5-80g", "job.gpu"),
    ("megatron", "job.optimizer", "sgd", "predicted.peak_memory_bytes"),
    ("megatron", "job.fix.pp", [4], "plan.pp: 2, the job asks for"),
    ("megatron", "job.model", "no-such-model", "no-such-model"),
    ("deepspeed", "plan.zero_stage", 2, "predicted"),
    ("deepspeed", "plan.offload_optimizer", "cpu", "plan.json"),
    ("deepspeed", "predicted", None, "predicted"),
    ("megatron-deepspeed", "plan.micro_batch", 2, "micro_batch 2"),
    ("fsdp2", "plan.attention", "efficient", "attention"),
]


@pytest.mark.parametrize(("name", "path", "value", "named"), PLAN)
def test_a_tampered_plan_fails(name, path, value, named, bundle):
    folder = bundle(name)
    edit_json(folder / "plan.json", put(path, value))
    found = failures(folder)
    assert found
    if named != "plan.json":
        assert any(named in text for text in found.values()), found


@pytest.mark.parametrize(("version", "named"), [(None, "missing"), ("0.9", "'0.9'"), (1, "1 is")])
def test_another_schema_fails(version, named, bundle):
    folder = bundle("megatron")
    edit_json(folder / "plan.json", put("schema_version", version))
    assert "schema_version" in failures(folder)["plan"]
    assert named in failures(folder)["plan"]


def edit_json(path, edit):
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        ("megatron", "plan.json", '"status":', '"status": "unknown", "status":'),
        ("deepspeed", "deepspeed_config.json", '"stage":', '"stage": 3, "stage":'),
        ("accelerate", "accelerate_fsdp2.yaml", "num_machines:", "num_machines: 4\nnum_machines:"),
    ],
)
def test_a_key_given_twice_fails(name, file, old, new, bundle):
    folder = bundle(name)
    swap(folder / file, old, new)
    assert any("is given twice" in text for text in failures(folder).values())


# --- files ---


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("deepspeed", "deepspeed_config.json"),
        ("deepspeed", "model_config.json"),
        ("deepspeed", "train.py"),
        ("deepspeed", "report.md"),
        ("megatron", "launch.sh"),
        ("fsdp2", "titan_model.py"),
        ("accelerate", "accelerate_fsdp2.yaml"),
        ("nodes", "job.sbatch"),
    ],
)
def test_a_missing_file_fails_by_name(name, file, bundle):
    folder = bundle(name)
    (folder / file).unlink()
    assert f"{file}: missing" in failures(folder)["files"]


def swap(path, old, new):
    text = path.read_text()
    assert text.count(old) >= 1, (path, old)
    path.write_text(text.replace(old, new, 1))


LAUNCH = "launch.sh"
TAMPERED = [
    # file, what is replaced, by what, what the report must name
    ("megatron", LAUNCH, "--micro-batch-size 1", "--micro-batch-size 2", "--micro-batch-size: 2"),
    ("megatron", LAUNCH, "--global-batch-size 64", "--global-batch-size 32", "--global-batch-size"),
    ("megatron", LAUNCH, "--pipeline-model-parallel-size 2", "", "--pipeline-model-parallel-size"),
    ("megatron", LAUNCH, "--seq-length 4096", "--seq-length 2048", "--seq-length: 2048"),
    ("megatron", LAUNCH, "--num-layers 32", "--num-layers 31", "--num-layers: 31"),
    ("megatron", LAUNCH, "--bf16", "--fp16", "--fp16"),
    ("megatron", LAUNCH, "  --use-distributed-optimizer\n", "", "--use-distributed-optimizer"),
    ("megatron", LAUNCH, "--bf16", "--bf16 --recompute-granularity full", "--recompute-granul"),
    ("megatron", LAUNCH, "--mock-data", "--recompute_granularity=full", "--recompute-granularity"),
    ("megatron", LAUNCH, "--mock-data", "--micro-batch-size 4", "--micro-batch-size: 4"),
    ("megatron", LAUNCH, "exec ", "PLAN_ARGS+=(--fp8-format hybrid)\nexec ", "--fp8-format"),
    ("megatron", LAUNCH, '"$@"', '"$@" --tensor-model-parallel-size 2', "--tensor-model-parallel"),
    ("megatron", LAUNCH, "--nproc-per-node 8", "--nproc-per-node 4", "--nproc-per-node: 4"),
    ("megatron", LAUNCH, "expandable_segments:True", "backend:native", "PYTORCH_CUDA_ALLOC_CONF"),
    ("megatron", LAUNCH, "exec torchrun", "unset PYTORCH_ALLOC_CONF\nexec torchrun", "PYTORCH_ALL"),
    ("megatron", LAUNCH, "exec torchrun", "exec python", "launching commands"),
    ("megatron", LAUNCH, "--optimizer adam", "--optimizer sgd", "--optimizer: sgd"),
    ("megatron-deepspeed", LAUNCH, "--zero-stage 2", "--zero-stage 3", "--zero-stage: 3"),
    ("megatron-deepspeed", LAUNCH, "  --use-flash-attn-v2\n", "", "--use-flash-attn-v2: absent"),
    ("megatron-deepspeed", "deepspeed_config.json", '"stage": 2', '"stage": 1', "stage: 1"),
    ("megatron-deepspeed", "deepspeed_config.json", '"fp32"', '"bf16"', "grad_accum_dtype: bf16"),
    ("fsdp2", LAUNCH, "--training.seq_len 4096", "--training.seq_len 64", "--training.seq-len: 64"),
    (
        "fsdp2",
        LAUNCH,
        "activation-checkpoint:none",
        "activation-checkpoint:full",
        "checkpoint: ful",
    ),
    ("fsdp2", LAUNCH, "shard_degree 8", "shard_degree 4", "data-parallel-shard-degree: 4"),
    ("fsdp2", LAUNCH, "reshard_after_forward never", "reshard_after_forward always", "reshard"),
    ("fsdp2", LAUNCH, "PYTHONPATH=", "OTHERPATH=", "PYTHONPATH"),
    ("fsdp2", "titan_model.py", "LAYERS = 32", "LAYERS = 31", "LAYERS: 31, the plan says 32"),
    ("fsdp2", "titan_model.py", 'attn_backend="varlen"', 'attn_backend="sdpa"', "_model: differs"),
    ("fsdp2", "titan_model.py", '"AdamW"', '"Adam"', "plan: differs"),
    ("fsdp2", "titan_model.py", "def plan", "def _model():\n    pass\n\n\ndef plan", "_model: 2"),
    ("fsdp2", "accelerate_fsdp2.yaml", "num_processes: 8", "num_processes: 4", "num_processes: 4"),
    (
        "accelerate",
        "accelerate_fsdp2.yaml",
        "precision: bf16",
        "precision: fp16",
        "mixed_precision: fp16",
    ),
    (
        "accelerate",
        "accelerate_fsdp2.yaml",
        "params: false",
        "params: true",
        "offload_params: True",
    ),
    ("accelerate", LAUNCH, "PLAN_ARGS=()", "PLAN_ARGS=(--mixed_precision fp16)", "precision"),
    ("deepspeed", "deepspeed_config.json", '"AdamW"', '"Adam"', "optimizer.type: Adam"),
    ("deepspeed", "deepspeed_config.json", "50000000", "500000000", "reduce_bucket_size"),
    (
        "deepspeed",
        "deepspeed_config.json",
        '"stage"',
        '"cpu_offload": true, "stage"',
        "cpu_offload",
    ),
    ("deepspeed", "model_config.json", '"hidden_size": 4096', '"hidden_size": 2048', "hidden_size"),
    ("deepspeed", "train.py", 'DTYPES[plan["precision"]]', "torch.float32", "build: differs"),
    ("deepspeed", LAUNCH, 'HERE="$(cd "$(dirname', 'HERE="$(cd "/x$(dirname', "HERE"),
    (
        "deepspeed",
        "model_config.json",
        '"attention_dropout": 0.0',
        '"attention_dropout": 0.1',
        "0.1",
    ),
    ("deepspeed", "train.py", "import json\n", "import json\nimport fake as deepspeed\n", "fake"),
    ("deepspeed", "train.py", "import json\n", "import json\nbuild = print\n", "build"),
    ("deepspeed", "train.py", "engine.backward(loss)", "loss.backward()", "train_step: differs"),
    ("deepspeed", LAUNCH, "PLAN_ARGS=(\n  --deepspeed\n", "PLAN_ARGS=(\n", "--deepspeed: absent"),
    ("deepspeed", LAUNCH, "exec torchrun", "CUDA_LAUNCH_BLOCKING=1 exec torchrun", "CUDA_LAUNCH"),
    ("deepspeed", LAUNCH, "set -euo pipefail", "set -euo pipefail\nexit 0", "command: exit 0"),
    ("deepspeed", LAUNCH, "exec torchrun", "torchrun x.py\nexec torchrun", "launching commands: 2"),
    ("pipeline", "train_stages.py", "range(", "reversed(", "train_stages.py"),
    ("nodes", LAUNCH, "--nnodes 2", "--nnodes 4", "--nnodes: 4"),
    ("nodes", "job.sbatch", "--nodes=2", "--nodes=4", "#SBATCH --nodes: 4"),
    ("nodes", "job.sbatch", "--gpus-per-node=8", "--gpus-per-node=4", "gpus-per-node: 4"),
    ("nodes", "job.sbatch", "bash launch.sh", "bash launch.sh --bf16", "--bf16"),
]


@pytest.mark.parametrize(("name", "file", "old", "new", "named"), TAMPERED)
def test_a_tampered_file_fails(name, file, old, new, named, bundle):
    folder = bundle(name)
    swap(folder / file, old, new)
    assert named in failures(folder)["emission"]


EDITED = [
    ("megatron", LAUNCH, "--lr 0.0003", "--lr 0.0001", "--lr: 0.0001"),
    ("megatron", LAUNCH, "--lr-warmup-iters 100", "--lr-warmup-iters 5", "--lr-warmup-iters: 5"),
    ("megatron", LAUNCH, "--mock-data", "--data-path /data/x --save /ckpt", "--data-path: /data/x"),
    ("megatron", LAUNCH, "TRAIN_SCRIPT:-", "TRAIN_SCRIPT:-/opt/pretrain_gpt.py", None),
    ("megatron", LAUNCH, "NCCL_DEBUG:-WARN", "NCCL_DEBUG:-INFO", "NCCL_DEBUG: INFO"),
    ("megatron", LAUNCH, "set -euo", "source /opt/env/bin/activate\nset -euo", None),
    ("megatron-deepspeed", "deepspeed_config.json", 'clipping": 1.0', 'clipping": 0.5', "clipping"),
    ("deepspeed", "deepspeed_config.json", '"lr": 0.0003', '"lr": 0.0001', "optimizer.params.lr"),
    (
        "deepspeed",
        "deepspeed_config.json",
        '"steps_per_print": 10',
        '"steps_per_print": 1',
        "steps",
    ),
    ("deepspeed", "train.py", "manual_seed(replica)", "manual_seed(replica + 1)", "batches"),
    ("deepspeed", "train.py", "import json\n", "import json\nimport random\n", "import random"),
    ("deepspeed", LAUNCH, '"$HERE/train.py"', '"$HERE/other.py"', "TRAIN_SCRIPT: $/other.py"),
    ("deepspeed", LAUNCH, "export OMP", "export A=1 NCCL_SOCKET_IFNAME=eth0\nexport OMP", "eth0"),
    ("deepspeed", "train.py", "# --- YOUR DATA HERE ---", "# my data", None),
    (
        "deepspeed",
        "model_config.json",
        '"use_cache"',
        '"torch_dtype": "bfloat16", "use_cache"',
        "dt",
    ),
    ("fsdp2", "titan_model.py", '"lr": 0.0003', '"lr": 0.0001', "plan"),
    ("fsdp2", "titan_model.py", 'dataset="c4"', 'dataset="mine"', "plan"),
    ("fsdp2", LAUNCH, "--training.steps 1000", "--training.steps 5", "--training.steps: 5"),
    ("accelerate", "accelerate_fsdp2.yaml", "SHARDED_STATE_DICT", "FULL_STATE_DICT", "state_dict"),
    ("nodes", "job.sbatch", "--time=24:00:00", "--time=01:00:00", "--time: 01:00:00"),
    ("nodes", "job.sbatch", "--exclusive", "--partition=big", "--partition: big"),
    ("nodes", "job.sbatch", "--gpus-per-node=8", "--gres=gpu:a100:8", None),
]


@pytest.mark.parametrize(("name", "file", "old", "new", "said"), EDITED)
def test_what_the_user_may_edit_passes(name, file, old, new, said, bundle):
    folder = bundle(name)
    swap(folder / file, old, new)
    assert failures(folder) == {}
    text = detail(folder, "emission")
    assert said is None or ("edited: " in text and said in text), text


def test_files_that_are_not_of_the_bundle_are_left_alone(bundle):
    folder = bundle("megatron")
    (folder / "weights.pt").write_bytes(b"\xff\xfe\x00")
    (folder / "measured.csv").write_text("step_time_s\n1\n")
    assert failures(folder) == {}


# --- the job ---


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "13b", "gpus": "16xA100-80G"},
        {"model": "7b", "gpus": "2x4xp5.48xlarge", "seq_len": 8192, "global_tokens": 1 << 20},
        {"intra_bandwidth": "200GB/s", "inter_bandwidth": "100Gb/s", "host_memory": "1TB"},
        {"nvme": "0", "memory_limit": "60GiB", "allow_idle": True, "accept_tight": True},
        {"fix": ["sequence_parallel=on"], "min": ["tp=2"], "forbid": ["offload_optimizer"]},
        {"optimizer": "lion", "grad_dtype": "fp32", "dropout": 0.1, "cross_entropy": "fused"},
    ],
)
def test_an_echo_holds_its_job(fields):
    job = resolve(make_spec({"model": "llama2-7b", "gpus": "8xA100-80G", **fields}))
    again = resolve(make_spec(echoed_fields(json.loads(json.dumps(job.echo)))))
    assert again.echo == job.echo
    for part in ("architecture", "cluster", "seq_len", "global_batch", "stacks", "precisions"):
        assert getattr(again, part) == getattr(job, part)


SHAPE = "layers: 4\nhidden: 256\nheads: 4\nvocab: 1000\n"


def test_a_model_from_a_file_is_read_again_or_said_to_be_gone(tmp_path):
    model, folder = tmp_path / "mine.yaml", tmp_path / "bundle"
    model.write_text(SHAPE)
    solve_to_files({**JOBS["megatron-deepspeed"], "model": str(model)}, output=folder)
    assert failures(folder) == {}
    assert "as the plan emits them" in detail(folder, "emission")
    model.write_text(SHAPE.replace("layers: 4", "layers: 8"))
    assert "layers" in failures(folder)["prediction"]
    model.unlink()
    assert failures(folder) == {}
    assert f"without model_file {model}" in detail(folder, "prediction")


def test_a_plan_that_breaks_a_rule_fails_with_the_rule(bundle):
    folder = bundle("deepspeed")
    edit_json(folder / "plan.json", put("plan.offload_parameters", "cpu"))
    assert "not a valid configuration" in failures(folder)["prediction"]


# config.json of meta-llama/Llama-2-7b-hf, as published on its model page.
PUBLISHED = {
    **{"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2},
    **{"hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02},
    **{"intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama"},
    **{"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32},
    **{"pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None},
    **{"tie_word_embeddings": False, "torch_dtype": "float16", "use_cache": True},
    **{"transformers_version": "4.31.0.dev0", "vocab_size": 32000},
}


def test_the_published_configuration_may_take_the_place_of_ours(bundle):
    folder = bundle("deepspeed")
    (folder / "model_config.json").write_text(json.dumps(PUBLISHED))
    assert failures(folder) == {}
    (folder / "model_config.json").write_text(json.dumps({**PUBLISHED, "num_key_value_heads": 8}))
    assert "num_key_value_heads: 8, the plan says 32" in failures(folder)["emission"]


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("deepspeed", "deepspeed_config.json", '{"zero_optimization": 3, "bf16": true}'),
        ("deepspeed", "deepspeed_config.json", "[]"),
        ("deepspeed", "model_config.json", '{"model_type": 3}'),
        ("megatron", "launch.sh", "exec torchrun '"),
        ("megatron", "plan.json", "[" * 100_000),
        ("accelerate", "accelerate_fsdp2.yaml", "a: &x [*x]"),
        ("accelerate", "accelerate_fsdp2.yaml", "a: &x {b: *x}"),
        ("fsdp2", "titan_model.py", "x = 1\0"),
        ("fsdp2", "titan_model.py", ""),
    ],
)
def test_nonsense_fails_without_a_crash(name, file, text, bundle):
    folder = bundle(name)
    (folder / file).write_text(text)
    assert failures(folder)
