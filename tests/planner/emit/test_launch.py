"""launch.sh: valid shell, the right torchrun, and clear words when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from emit_plans import make_job, make_plan
from emit_spread import ALL, MEGATRON

from planner.emit import emit
from planner.emit.launch import shell_words

SHELLCHECK = Path(sys.executable).parent / "shellcheck"
FAKE_TORCHRUN = '#!/usr/bin/env bash\nprintf "%s\\n" "$@"\nenv > "$(dirname "$0")/env.txt"\n'
SETTINGS = {
    "TRAIN_SCRIPT": "script.py",
    "NODE_RANK": "0",
    "MASTER_ADDR": "node0",
    "DATA_PATH": "/data/text",
    "HF_ASSETS_PATH": "/data/tokenizer",
}


def run(
    folder: Path, files: dict[str, str], *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run launch.sh with a torchrun that prints its arguments."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "script.py").touch()
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "torchrun").write_text(FAKE_TORCHRUN, encoding="utf-8")
    (tools / "torchrun").chmod(0o755)
    variables = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder), **settings}
    return subprocess.run(
        ["bash", str(folder / "launch.sh"), *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_shell_is_clean(bundles: dict[str, Any], tmp_path: Path) -> None:
    """``bash -n`` and shellcheck, on every script of the spread at once."""
    checker = str(SHELLCHECK) if SHELLCHECK.exists() else shutil.which("shellcheck")
    assert checker, "shellcheck is missing: install the test extra"
    scripts = []
    for name, (_, _, files) in bundles.items():
        for file, text in files.items():
            if file.endswith((".sh", ".sbatch")):
                path = tmp_path / name.replace("/", "-") / file
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
                scripts.append(str(path))
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
    checked = subprocess.run(
        [checker, "-S", "style", *scripts], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", ALL)
def test_launch_starts_the_plans_processes(
    name: str, bundles: dict[str, Any], tmp_path: Path
) -> None:
    _, plan, files = bundles[name]
    if "nvme" in (plan.offload_optimizer, plan.offload_parameters):
        pytest.skip("refuses without its drives; tested below")
    done = run(tmp_path, files, "--extra", **SETTINGS)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    per_node = int(words[words.index("--nproc-per-node") + 1])
    nodes = int(words[words.index("--nnodes") + 1]) if "--nnodes" in words else 1
    assert nodes * per_node == plan.gpus
    assert ("--standalone" in words) == (nodes == 1)
    if plan.stack == "fsdp2":
        assert words[-1].startswith("activation-checkpoint:")
        assert words[-2] == "--extra"
    else:
        assert words[-1] == "--extra"


def test_bundled_script_runs_unless_another_is_named(
    bundles: dict[str, Any], tmp_path: Path
) -> None:
    files = bundles["deepspeed/zero2"][2]
    own = run(tmp_path, files)
    assert own.returncode == 0, own.stderr
    assert str(tmp_path / "train.py") in own.stdout
    assert "--deepspeed" not in own.stdout
    other = run(tmp_path, files, TRAIN_SCRIPT="script.py")
    words = other.stdout.splitlines()
    assert "script.py" in words
    assert words[words.index("--deepspeed_config") + 1] == str(tmp_path / "deepspeed_config.json")


@pytest.mark.parametrize(
    ("name", "unset", "word"),
    [
        ("megatron/dp", "TRAIN_SCRIPT", "pretrain_gpt.py"),
        ("megatron-deepspeed/tp-sp", "TRAIN_SCRIPT", "pretrain_gpt.py"),
        ("megatron-deepspeed/tp-sp", "DATA_PATH", "DATA_PATH"),
        ("fsdp2/zero3", "HF_ASSETS_PATH", "tokenizer"),
        ("megatron/3d", "NODE_RANK", "NODE_RANK to 0..3"),
        ("megatron/3d", "MASTER_ADDR", "MASTER_ADDR"),
    ],
)
def test_what_is_missing_is_said(
    name: str, unset: str, word: str, bundles: dict[str, Any], tmp_path: Path
) -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != unset}
    done = run(tmp_path, bundles[name][2], **settings)
    assert done.returncode == 2
    assert done.stderr.startswith("launch.sh: ")
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("setting", "value"), [("NODE_RANK", "4"), ("NODE_RANK", "x"), ("MASTER_PORT", "abc")]
)
def test_bad_rendezvous_is_refused(
    setting: str, value: str, bundles: dict[str, Any], tmp_path: Path
) -> None:
    done = run(tmp_path, bundles["megatron/3d"][2], **{**SETTINGS, setting: value})
    assert done.returncode == 2
    assert setting in done.stderr


def test_a_missing_script_is_named(bundles: dict[str, Any], tmp_path: Path) -> None:
    done = run(tmp_path, bundles["megatron/dp"][2], TRAIN_SCRIPT="nowhere.py")
    assert done.returncode == 2
    assert "no file nowhere.py" in done.stderr


def test_nvme_is_checked_before_anything_starts(bundles: dict[str, Any], tmp_path: Path) -> None:
    done = run(tmp_path, bundles["deepspeed/zero3-nvme"][2], **SETTINGS)
    assert done.returncode == 2
    assert "/local_nvme" in done.stderr


def environment_of(folder: Path, files: dict[str, str], **settings: str) -> dict[str, str]:
    assert run(folder, files, **SETTINGS, **settings).returncode == 0
    lines = (folder / "tools" / "env.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_environment(bundles: dict[str, Any], tmp_path: Path) -> None:
    variables = environment_of(tmp_path, bundles["deepspeed/zero2-cpu"][2])
    assert variables["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert variables["DS_PIN_MEMORY_BACKEND"] == "native"
    assert int(variables["OMP_NUM_THREADS"]) > 1
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in variables


def test_the_users_environment_wins_except_where_asserted(
    bundles: dict[str, Any], tmp_path: Path
) -> None:
    variables = environment_of(
        tmp_path, bundles["megatron/3d"][2], OMP_NUM_THREADS="3", CUDA_DEVICE_MAX_CONNECTIONS="8"
    )
    assert variables["OMP_NUM_THREADS"] == "3"
    assert variables["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


def test_offload_elsewhere_names_a_rounding_threshold(
    bundles: dict[str, Any], tmp_path: Path
) -> None:
    variables = environment_of(tmp_path, bundles["megatron/offload"][2])
    assert "pinned_max_round_threshold_mb" in variables["PYTORCH_ALLOC_CONF"]
    assert "DS_PIN_MEMORY_BACKEND" not in variables


def test_blackwell_needs_no_single_connection(tmp_path: Path) -> None:
    """Megatron-LM asserts CUDA_DEVICE_MAX_CONNECTIONS=1 only before Blackwell."""
    for gpus, expected in (("8xB200", False), ("8xH100-80G", True)):
        job = make_job("llama2-7b", gpus, stack="megatron")
        text = emit(job, make_plan(job, "megatron", tp=2))["launch.sh"]
        assert ("CUDA_DEVICE_MAX_CONNECTIONS" in text) is expected


def test_tf32_is_switched_on_in_the_environment() -> None:
    job = make_job()
    plan = make_plan(job, zero_stage=2, precision="tf32", attention="efficient")
    assert "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE" in emit(job, plan)["launch.sh"]


def test_fewer_gpus_than_the_cluster_has() -> None:
    job = make_job(gpus="2x8xA100-80G", allow_idle=True)
    text = emit(job, make_plan(job, gpus=8))["launch.sh"]
    assert "--nproc-per-node 8" in text
    assert "--standalone" in text


def test_sbatch_gives_every_node_its_rank(bundles: dict[str, Any], tmp_path: Path) -> None:
    """The batch script under stand-ins for scontrol and srun: one launch a node, ranks 0 to 3."""
    files = bundles["megatron/3d"][2]
    run(tmp_path, files, **SETTINGS)  # writes the files and torchrun
    tools = tmp_path / "tools"
    (tools / "torchrun").write_text(FAKE_TORCHRUN.split("env >")[0], encoding="utf-8")
    (tools / "scontrol").write_text("#!/bin/sh\necho first\necho second\n", encoding="utf-8")
    (tools / "srun").write_text(
        "#!/usr/bin/env bash\n"
        'while [[ "${1:-}" == --* ]]; do shift; done\n'
        'for ((i = 0; i < SLURM_NNODES; i++)); do SLURM_NODEID=$i "$@"; done\n',
        encoding="utf-8",
    )
    for tool in ("scontrol", "srun"):
        (tools / tool).chmod(0o755)
    done = subprocess.run(
        ["bash", "job.sbatch"],
        cwd=tmp_path,
        env={
            "PATH": f"{tools}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "4242",
            "SLURM_JOB_NODELIST": "x[0-3]",
            "SLURM_NNODES": "4",
            "TRAIN_SCRIPT": "script.py",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    words = done.stdout.splitlines()
    ranks = [words[i + 1] for i, word in enumerate(words) if word == "--node-rank"]
    assert ranks == ["0", "1", "2", "3"]
    hosts = {words[i + 1] for i, word in enumerate(words) if word == "--master-addr"}
    assert hosts == {"first"}


@pytest.mark.parametrize("name", ALL)
def test_same_plan_same_bytes(name: str, bundles: dict[str, Any]) -> None:
    job, plan = ALL[name]()
    assert emit(job, plan) == bundles[name][2]


def test_an_unknown_stack_is_refused() -> None:
    job, plan = MEGATRON["dp"]()
    with pytest.raises(ValueError, match="no emitter"):
        emit(job, plan.model_copy(update={"stack": "nanotron"}))


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (("--a", "b"), "--a b"),
        (("--a", "b c"), "--a 'b c'"),
        (("--a", "949,50,1"), "--a '949,50,1'"),
        (("--a", "$HERE/x.json"), '--a "$HERE/x.json"'),
        (("--a", "Et*3|t*3L"), "--a 'Et*3|t*3L'"),
    ],
)
def test_arguments_are_quoted(argument: tuple[str, ...], text: str) -> None:
    assert shell_words(argument) == text
