"""Megatron-LM and Megatron-DeepSpeed arguments: stages, recomputation, sharding, the network."""

from __future__ import annotations

from typing import Any

import pytest
from emit_plans import make_job, make_plan
from emit_spread import MEGATRON, MEGATRON_DEEPSPEED
from hypothesis import given
from hypothesis import strategies as st

from planner.emit.launch import Argument
from planner.emit.megatron import block_layers, check, emit_megatron, plan_arguments
from planner.emit.megatron_deepspeed import balanced, emit_megatron_deepspeed
from planner.emit.megatron_deepspeed import plan_arguments as deepspeed_arguments
from planner.emit.megatron_layout import chunk_layers, pipeline_layout
from planner.emit.megatron_model import model_arguments
from planner.plan import Plan


def flags(arguments: list[Argument]) -> dict[str, str | None]:
    """Flag to value, None for a switch; each flag once."""
    found: dict[str, str | None] = {}
    for flag, *values in arguments:
        assert flag.startswith("--")
        assert flag not in found
        found[flag] = values[0] if values else None
    return found


def of(case: str) -> dict[str, str | None]:
    job, plan = MEGATRON[case]()
    return flags([*model_arguments(job, plan), *plan_arguments(job, plan)])


@pytest.mark.parametrize("case", MEGATRON)
def test_degrees_and_batch(case: str) -> None:
    job, plan = MEGATRON[case]()
    found = of(case)
    assert found["--tensor-model-parallel-size"] == str(plan.tp)
    assert found["--pipeline-model-parallel-size"] == str(plan.pp)
    assert found["--micro-batch-size"] == str(plan.micro_batch)
    assert found["--global-batch-size"] == str(job.global_batch)
    assert int(str(found["--max-position-embeddings"])) >= job.seq_len
    assert ("--sequence-parallel" in found) == plan.sequence_parallel
    assert ("--use-distributed-optimizer" in found) == (plan.zero_stage == 1)


@pytest.mark.parametrize("case", MEGATRON)
def test_what_the_parser_asserts(case: str) -> None:
    """Conditions of validate_args, Megatron-LM megatron/training/arguments.py."""
    found = of(case)
    ways = {
        "--num-layers-per-virtual-pipeline-stage",
        "--num-virtual-stages-per-pipeline-rank",
        "--pipeline-model-parallel-layout",
    }
    assert len(ways & set(found)) <= 1
    if "--overlap-param-gather" in found:
        assert "--use-distributed-optimizer" in found
        assert "--overlap-grad-reduce" in found
    if "--optimizer-cpu-offload" in found:
        assert "--use-precision-aware-optimizer" in found
        assert found["--optimizer"] == "adam"
    if found.get("--recompute-granularity") == "full":
        assert found["--recompute-method"] in ("uniform", "block")
        assert int(str(found["--recompute-num-layers"])) >= 1
    if found.get("--recompute-granularity") == "selective":
        assert "--recompute-method" not in found
    assert not {"--bf16", "--fp16"} <= set(found)


def expand(layout: str) -> list[str]:
    """The stages of a layout string, ``t*n`` written out."""
    stages = []
    for stage in layout.split("|"):
        text = ""
        for part in stage.replace("t*", " *").split(" "):
            if part.startswith("*"):
                digits = "".join(c for c in part[1:] if c.isdigit())
                text += "t" * int(digits) + part[1 + len(digits) :]
            else:
                text += part
        stages.append(text)
    return stages


@given(
    counts=st.lists(st.integers(1, 20), min_size=2, max_size=16),
    virtual=st.integers(1, 4),
)
def test_layout_holds_every_layer_where_the_plan_says(counts: list[int], virtual: int) -> None:
    plan = _staged(tuple(counts), virtual)
    stages = expand(pipeline_layout(plan))
    assert len(stages) == len(counts) * virtual
    assert stages[0][0] == "E"
    assert stages[-1][-1] == "L"
    assert sum(stage.count("E") + stage.count("L") for stage in stages) == 2
    for rank, wanted in enumerate(counts):
        chunks = stages[rank :: len(counts)]
        assert sum(chunk.count("t") for chunk in chunks) == wanted
        sizes = [chunk.count("t") for chunk in chunks]
        assert max(sizes) - min(sizes) <= 1


def _staged(counts: tuple[int, ...], virtual: int = 1) -> Plan:
    job, plan = MEGATRON["dp"]()
    del job
    stage = plan.stages[0]
    stages = tuple(
        stage.model_copy(update={"stage": i, "layers": n, "recompute": {"none": n}})
        for i, n in enumerate(counts)
    )
    update = {"stages": stages, "pp": len(counts), "virtual_stages": virtual}
    return plan.model_copy(update=update)


def test_uneven_stages_are_written_out() -> None:
    found = of("uneven")
    assert found["--pipeline-model-parallel-layout"] == "Et*7|t*9|t*9|t*7L"
    assert of("interleaved")["--num-layers-per-virtual-pipeline-stage"] == "4"
    assert "--pipeline-model-parallel-layout" not in of("3d")


@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    number=st.integers(1, 12),
    virtual=st.integers(1, 3),
)
def test_block_number_gives_each_stage_its_count(
    counts: list[int], number: int, virtual: int
) -> None:
    """Each chunk recomputes its first layers, all of them if it has fewer."""
    plan = _staged(tuple(counts), virtual)
    chunks = chunk_layers(plan)
    full = [sum(min(number, chunk[i]) for chunk in chunks) for i in range(len(counts))]
    stages = tuple(
        stage.model_copy(update={"recompute": {"full": k, "none": stage.layers - k}})
        for stage, k in zip(plan.stages, full, strict=True)
    )
    found = block_layers(plan.model_copy(update={"stages": stages}))
    again = [sum(min(found, chunk[i]) for chunk in chunks) for i in range(len(counts))]
    assert again == full


def test_recompute_forms() -> None:
    assert "--recompute-granularity" not in of("dp")
    assert of("selective")["--recompute-granularity"] == "selective"
    full = of("full")
    assert (full["--recompute-method"], full["--recompute-num-layers"]) == ("uniform", "1")
    assert of("every-4")["--recompute-num-layers"] == "4"
    block = of("block")
    assert (block["--recompute-method"], block["--recompute-num-layers"]) == ("block", "3")


def test_precision_and_gradients() -> None:
    assert "--grad-reduce-in-bf16" in of("bf16-grads")
    assert "--grad-reduce-in-bf16" not in of("dp")
    assert "--accumulate-allreduce-grads-in-fp32" in of("fp16")
    assert not {"--bf16", "--fp16"} & set(of("fp32"))
    assert of("fp8")["--fp8-recipe"] == "delayed"
    assert of("fp8-blackwell")["--fp8-recipe"] == "mxfp8"


def test_network_variants() -> None:
    assert "--add-qkv-bias" in of("qkv-bias")
    assert "--disable-bias-linear" in of("qkv-bias")
    assert "--qk-layernorm" in of("qk-norm")
    gpt = of("gpt")
    assert gpt["--position-embedding-type"] == "learned_absolute"
    assert gpt["--normalization"] == "LayerNorm"
    assert not {"--swiglu", "--disable-bias-linear", "--group-query-attention"} & set(gpt)
    experts = of("experts")
    assert experts["--num-experts"] == "8"
    assert experts["--expert-model-parallel-size"] == "8"
    assert "--moe-layer-freq" not in experts  # every layer is routed


def test_dense_layers_come_first_in_deepseek() -> None:
    found = of("latent")
    assert found["--moe-layer-freq"] == "([0]*3+[1]*58)"
    assert found["--kv-lora-rank"] == "512"
    assert "--multi-latent-attention" in found


def test_vocabulary_counts_the_end_of_document(bundles: dict[str, Any]) -> None:
    """NullTokenizer adds one token to --vocab-size."""
    assert "--vocab-size 31999" in bundles["megatron/dp"][2]["launch.sh"]
    assert "--vocab-size 31999" in bundles["megatron-deepspeed/tp-sp"][2]["launch.sh"]


@pytest.mark.parametrize(
    ("model", "axes", "word"),
    [
        ("llama2-7b", {"zero_stage": 2}, "ZeRO-2"),
        ("llama2-7b", {"precision": "tf32", "attention": "eager"}, "tf32"),
        ("llama2-7b", {"offload_optimizer": "cpu", "offloaded": 4}, "all or nothing"),
        ("llama2-7b", {"offload_optimizer": "nvme"}, "host RAM only"),
        ("llama2-7b", {"recompute": ({"selective": 16, "full": 16},)}, "mixes"),
        ("llama2-7b", {"recompute": ({"every_2": 16, "full": 16},)}, "mixes"),
        (
            "llama2-7b",
            {"pp": 2, "recompute": ({"full": 3, "none": 13}, {"full": 5, "none": 11})},
            "one number of layers",
        ),
        (
            "llama2-7b",
            {
                "pp": 4,
                "layers": (7, 9, 9, 7),
                "recompute": tuple({"every_2": n} for n in (7, 9, 9, 7)),
            },
            "checkpoints of 2 layers",
        ),
        ("bloom-7b1", {"attention": "eager"}, "alibi"),
        ("gemma2-9b", {}, "norms"),
        ("opt-6.7b", {}, "relu"),
        ("llama2-7b", {"ep": 2}, "experts"),
    ],
)
def test_megatron_refuses(model: str, axes: dict[str, Any], word: str) -> None:
    job = make_job(model, stack="megatron", seq_len=2048)
    with pytest.raises(ValueError, match="Megatron-LM cannot express this plan") as refusal:
        emit_megatron(job, make_plan(job, "megatron", **axes))
    assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"optimizer": "lion"}, "lion"),
        ({"cross_entropy": "chunked"}, "chunked"),
        ({"gpus": "8xV100-32G"}, "Ampere"),
    ],
)
def test_megatron_refuses_the_job(fields: dict[str, Any], word: str) -> None:
    job = make_job(**{"stack": "megatron", **fields})
    plan = make_plan(job, "megatron", precision="fp16", attention="eager")
    with pytest.raises(ValueError, match=word):
        check(job, plan)


def deepspeed_flags(case: str) -> dict[str, str | None]:
    job, plan = MEGATRON_DEEPSPEED[case]()
    return flags(deepspeed_arguments(job, plan))


@pytest.mark.parametrize("case", MEGATRON_DEEPSPEED)
def test_zero_stage_is_the_jsons(case: str, bundles: dict[str, Any]) -> None:
    import json

    _, plan, files = bundles[f"megatron-deepspeed/{case}"]
    found = deepspeed_flags(case)
    stage = json.loads(files["deepspeed_config.json"])["zero_optimization"]["stage"]
    assert found["--zero-stage"] == str(stage) == str(plan.zero_stage)
    assert ("--no-pipeline-parallel" in found) == (plan.pp == 1)
    assert "optimizer" not in json.loads(files["deepspeed_config.json"])


def test_megatron_deepspeed_forms() -> None:
    assert deepspeed_flags("every-2")["--checkpoint-num-layers"] == "2"
    assert deepspeed_flags("selective-eager")["--recompute-granularity"] == "selective"
    assert "--use-flash-attn-v2" not in deepspeed_flags("selective-eager")
    assert "--cpu-optimizer" in deepspeed_flags("cpu")
    assert deepspeed_flags("sgd")["--optimizer"] == "sgd"


def test_stages_as_deepspeed_balances_them() -> None:
    """What partition_balanced of DeepSpeed 0.19.8 returns for 0/1 weights."""
    assert balanced(32, 5) == [7, 7, 6, 6, 6]
    assert balanced(126, 16) == [8] * 14 + [7] * 2
    assert balanced(48, 7) == [7] * 6 + [6]
    job = make_job("llama2-7b", stack="megatron-deepspeed")
    files = emit_megatron_deepspeed(
        job, make_plan(job, "megatron-deepspeed", pp=5, gpus=5, dp=1, grad_accum=64)
    )
    assert "--pipeline-model-parallel-size 5" in files["launch.sh"]


def test_megatron_pipeline_checkpoints_reentrantly(bundles: dict[str, Any]) -> None:
    """GPTModelPipe checkpoints transformer layers alone only when reentrant."""
    import json

    config = json.loads(bundles["megatron-deepspeed/3d"][2]["deepspeed_config.json"])
    assert config["pipeline"]["use_reentrant"] is True
    assert config["pipeline"]["pipe_partitioned"] is False  # sequence-parallel activations differ


@pytest.mark.parametrize(
    ("model", "axes", "word"),
    [
        ("llama2-7b", {"pp": 2, "layers": (15, 17)}, "type:transformer"),
        ("llama2-7b", {"pp": 2, "recompute": ({"every_4": 16},) * 2}, "do not cover"),
        ("llama2-13b", {"pp": 8, "recompute": ({"every_2": 5},) * 8}, "do not cover"),
        ("llama2-7b", {"attention": "efficient"}, "flash and eager"),
        ("llama2-7b", {"recompute": ({"full": 30, "none": 2},)}, "alike"),
        ("qwen2.5-7b", {"tp": 2}, "biases"),
        ("qwen3-8b", {"tp": 2}, "norm on queries"),
        ("mixtral-8x7b", {"tp": 2}, "dense"),
        ("llama2-7b", {"zero_stage": 3, "offload_optimizer": "nvme"}, "host RAM"),
    ],
)
def test_megatron_deepspeed_refuses(model: str, axes: dict[str, Any], word: str) -> None:
    job = make_job(model, stack="megatron-deepspeed")
    with pytest.raises(ValueError, match="Megatron-DeepSpeed cannot express") as refusal:
        emit_megatron_deepspeed(job, make_plan(job, "megatron-deepspeed", **axes))
    assert word in str(refusal.value)
