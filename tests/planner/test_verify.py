"""``verify`` accepts what the emitters write and finds what was changed afterwards."""

import json

import pytest

from planner.emit import emit
from planner.job import resolve
from planner.plan import Plan, Result, Stage
from planner.spec import make_spec
from planner.verify import verify
from planner.verify_run import last_words

AXES = {
    **{"stack": "deepspeed", "gpus": 8, "dp": 8, "tp": 1, "pp": 1, "cp": 1, "ep": 1},
    **{"micro_batch": 2, "grad_accum": 4, "virtual_stages": 1, "zero_stage": 2},
    **{"precision": "bf16", "attention": "flash", "recompute": "full"},
    **{"sequence_parallel": False, "offload_optimizer": "none", "offload_parameters": "none"},
}
STAGE = {
    **{"stage": 0, "first_layer": 0, "layers": 32, "recompute": {"full": 32}},
    **{"offloaded_layers": 0, "embedding": True, "head": True},
    **{"time_s": 1.0, "peak_memory_bytes": 1},
}


@pytest.fixture
def folder(tmp_path):
    job = resolve(make_spec({"model": "llama2-7b", "gpus": "8xA100-80G", "global_batch": 64}))
    plan = Plan(stages=(Stage(**STAGE),), **AXES)
    for name, text in emit(job, plan).items():
        (tmp_path / name).write_text(text)
    result = Result(status="optimal", job=dict(job.echo), plan=plan, predicted=None, proof=None)
    (tmp_path / "plan.json").write_text(result.model_dump_json())
    return tmp_path


def statuses(folder):
    return {check.name: check for check in verify(folder, run=False).checks}


def change(folder, name, edit):
    path = folder / name
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def test_an_emitted_bundle_passes(folder):
    report = verify(folder, run=False)
    assert report.ok, report
    found = {check.name: check.status for check in report.checks}
    for name in ("plan", "json", "rules", "shell", "python", "consistency"):
        assert found[name] == "ok"
    assert found["run"] == "skipped"


def test_no_plan_is_a_clear_error(tmp_path):
    with pytest.raises(ValueError, match=r"no plan\.json"):
        verify(tmp_path, run=False)


def test_a_broken_plan_fails(folder):
    change(folder, "plan.json", lambda data: data.pop("status"))
    assert statuses(folder)["plan"].status == "failed"
    assert "status" in statuses(folder)["plan"].detail


def test_broken_files_fail_by_name(folder):
    (folder / "deepspeed_config.json").write_text("{")
    (folder / "train.py").write_text("def main(:\n")
    (folder / "launch.sh").write_text("if true; then\n")
    (folder / "extra.yaml").write_text("a: [1\n")
    checks = statuses(folder)
    for name, file in (
        ("json", "deepspeed_config.json"),
        ("python", "train.py"),
        ("shell", "launch.sh"),
        ("yaml", "extra.yaml"),
    ):
        assert checks[name].status == "failed"
        assert file in checks[name].detail


def batch(config):
    config["train_micro_batch_size_per_gpu"] += 1


def stage(config):
    config["zero_optimization"]["stage"] = 1


def precision(config):
    config["fp16"] = {"enabled": True}
    del config["bf16"]


def offload(config):
    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}


@pytest.mark.parametrize("edit", [batch, stage, precision, offload])
def test_a_configuration_that_says_something_else_fails(folder, edit):
    change(folder, "deepspeed_config.json", edit)
    check = statuses(folder)["consistency"]
    assert check.status == "failed"
    assert "the plan says" in check.detail


def test_a_launcher_for_another_world_fails(folder):
    path = folder / "launch.sh"
    path.write_text(path.read_text().replace("--nproc-per-node 8", "--nproc-per-node 4"))
    assert "launch.sh processes: 4, the plan says 8" in statuses(folder)["consistency"].detail


def test_a_model_with_other_layers_fails(folder):
    change(folder, "model_config.json", lambda data: data.update(num_hidden_layers=31))
    assert "model_config.json layers: 31" in statuses(folder)["consistency"].detail


def test_what_deepspeed_ignores_fails_by_our_rules(folder):
    change(
        folder,
        "deepspeed_config.json",
        lambda data: data["zero_optimization"].update(offload_param={"device": "cpu"}),
    )
    assert statuses(folder)["rules"].status == "failed"


def test_a_broken_bundle_is_not_run(folder):
    (folder / "train.py").write_text("def main(:\n")
    run = {check.name: check for check in verify(folder, run=True).checks}["run"]
    assert run.status == "skipped"
    assert "failed" in run.detail


def test_errors_are_found_among_what_a_launcher_prints():
    text = """
    Traceback (most recent call last):
    ValueError: the batch does not divide
    torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
    """
    assert last_words(text) == "ValueError: the batch does not divide"
