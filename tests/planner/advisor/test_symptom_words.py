"""Causes speak of what the configuration has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner import advise
from planner.advisor.report import Cause
from planner.advisor.symptoms import SYMPTOMS

FSDP = (
    "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
    "  fsdp_version: 1\n  fsdp_sharding_strategy: FULL_SHARD\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
)
MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
    " --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
    " --micro-batch-size 1 --global-batch-size 64 --fp16\n"
)
KEYS = re.compile(
    r"gradient_clipping|overlap_comm|hpZ|zero\.Init|grad_accum_dtype|wall_clock_breakdown"
    r"|initial_scale_power|DS_BUILD|leaf_module|DeepSpeedCPUAdam|ZeRO stage|bucket sizes"
)


def likely(path: Path, symptom: str, **options: str) -> tuple[Cause, ...]:
    """The causes of a symptom for one file."""
    return advise(path, symptom=symptom, advice=False, **options).files[0].causes


@pytest.mark.parametrize("symptom", SYMPTOMS)
@pytest.mark.parametrize(("name", "text"), [("a.yaml", FSDP), ("m.sh", MEGATRON)])
def test_no_keys_of_deepspeed_elsewhere(tmp_path: Path, name: str, text: str, symptom: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    for cause in likely(path, symptom, gpus="2x8xA100-80G" if name == "a.yaml" else "8xA100-80G"):
        assert not KEYS.search(f"{cause.cause} {cause.check} {cause.remedy}"), cause


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_no_experts_in_a_dense_model_and_no_offload_without(tmp_path: Path, symptom: str) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}))
    for cause in likely(path, symptom, model="llama3-8b", gpus="8xA100-80G"):
        assert "expert" not in cause.cause
        assert not cause.cause.startswith(("offload", "optimizer or parameter offload", "pinned"))
    for cause in likely(path, "hang", model="mixtral-8x7b"):
        if "expert" in cause.cause:
            break
    else:
        pytest.fail("experts are a cause for a mixture")
