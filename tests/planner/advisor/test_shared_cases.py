"""Users' configuration files and runs, against what is known of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from user_cases import ADAPTERS, judge_row, rows, usable

from planner import advise

# What each context column of the collected files means as options.
FLAGS_25 = "--gradient_accumulation_steps 8 --per_device_train_batch_size 1 --bf16"
FLAGS_39 = (
    "--per_device_train_batch_size 4 --gradient_accumulation_steps 4 --learning_rate 5e-5"
    " --warmup_steps 500 --fp16"
)


def options_of(context: str) -> dict[str, Any]:
    """Options of the advisor for one context in words."""
    options: dict[str, Any] = {"advice": False}
    if "HF" in context:
        options["context"] = "hf"
    elif "egatron" in context or "neox" in context:
        options["context"] = "megatron"
    elif "accelerate" in context or "partner" in context:
        options["context"] = "accelerate"
    else:
        options["context"] = "plain"
    if "V100" in context:
        options["gpus"] = "8xV100-32G"
    elif "8 GPUs" in context:
        options["gpus"] = "8xA100-80G"
    if "0.9.5" in context:
        options["deepspeed_version"] = "0.9.5"
    if "client" in context:
        options["client_optimizer"] = "FusedAdam"
    if "--bf16" in context:
        options["args"] = "--bf16 True"
    if "--gradient_accumulation_steps" in context:
        options["args"] = FLAGS_25
    if "global batch 128" in context:
        options |= {"args": FLAGS_39, "gpus": "8xA100-80G"}
    return options


def table(folder: Path) -> list[tuple[str, str, str]]:
    """File, context and verdict of each row of the README."""
    out = []
    for line in (folder / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) > 3 and (folder / cells[0]).is_file():
            out.append((cells[0], cells[1], cells[2]))
    return out


def test_every_file_gets_its_level(shared_cases: Path) -> None:
    folder = shared_cases / "configs"
    wrong = []
    for name, context, verdict in table(folder):
        level = advise(folder / name, **options_of(context)).files[0].level
        level = {"warning": "warn"}.get(level, level)
        if level != verdict and not (verdict == "ok" and level == "info"):
            wrong.append((name, verdict, level))
    assert len(table(folder)) > 30
    assert wrong == []


def test_named_faults_are_found_by_key(shared_cases: Path) -> None:
    keys = {
        "21_aio_inside_zero.json": "zero_optimization.aio",
        "22_deprecated_cpu_offload.json": "zero_optimization.cpu_offload_params",
        "24_accelerate_vs_json.yaml": "deepspeed_config.zero_stage",
        "25_string_ga.json": "gradient_accumulation_steps",
        "27_batch_triple.json": "train_batch_size",
        "28_only_ga.json": "gradient_accumulation_steps",
        "30_fp32_zero3.json": "bf16.enabled",
        "31_bf16_on_v100.json": "bf16.enabled",
        "33_auto_without_hf.json": "train_batch_size",
        "34_zeropp_old_version.json": "zero_optimization.zero_hpz_partition_size",
        "36_force_cpu_opt_in_yaml.yaml": "deepspeed_config.zero_force_ds_cpu_optimizer",
        "37_stage2_with_pipeline.json": "zero_optimization.stage",
        "39_hf_mismatch.json": "optimizer.params.lr",
        "45_ga_conflict_launch.sh": "--gradient_accumulation_steps",
        "46_client_adam_with_offload.json": "zero_optimization.offload_optimizer",
        "48_llamafactory_z3_fp8.json": "monitor_config",
        "49_stage2_offload_param.json": "zero_optimization.offload_param",
        "52_duplicate_key.json": "zero_optimization",
    }
    folder = shared_cases / "configs"
    contexts = {name: context for name, context, _ in table(folder)}
    for name, key in keys.items():
        report = advise(folder / name, **options_of(contexts[name])).files[0]
        found = {f.key for f in report.findings if f.severity != "info"}
        assert key in found, (name, sorted(found))


def test_runs_that_fitted_and_runs_that_did_not(shared_cases: Path) -> None:
    """Accuracy of fits or out of memory over full runs that state all that is needed."""
    every = rows(shared_cases / "cases.csv")
    assert sum(bool(ADAPTERS.search(row["tuning"])) for row in every) > 100  # skipped as such
    judged = [judge_row(row) for row in every if usable(row)]
    assert len(judged) > 80
    ran = [one for one in judged if one.ran]
    failed = [one for one in judged if not one.ran]
    right_ran = sum(one.says_fits for one in ran) / len(ran)
    right_failed = sum(not one.says_fits for one in failed) / len(failed)
    accuracy = sum(one.ran == one.says_fits for one in judged) / len(judged)
    assert (right_ran + right_failed) / 2 >= 0.88
    assert accuracy >= 0.92
    for one in ran:  # called impossible only where the whole interval is above the limit
        if one.impossible:
            assert one.predicted.peak_memory_interval_bytes.low > one.predicted.memory_limit_bytes


@pytest.mark.parametrize("row", ["R088", "R042"])
def test_host_memory_cases_have_a_host_line(shared_cases: Path, row: str) -> None:
    wanted = next(r for r in rows(shared_cases / "cases.csv") if r["id"] == row)
    if not usable(wanted):
        pytest.skip("the row does not state enough for a prediction")
    predicted = judge_row(wanted).predicted
    assert {line.what for line in predicted.host} == {"loading", "training", "saving"}
    assert predicted.host_memory_bytes > 0
