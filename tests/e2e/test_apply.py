"""A file that --apply patched trains: DeepSpeed refuses the broken one, not the patched one."""

import json
import math

import bundles

from planner import advise
from planner.advisor.writing import write_patched
from planner.verify_run import LOSS, launch

STEPS = 3


def test_a_patched_file_trains(tmp_path):
    folder = tmp_path / "bundle"
    bundles.bundle(folder, {}, zero_stage=2)
    path = folder / "deepspeed_config.json"
    broken = json.loads(path.read_text())
    broken["zero_optimization"]["mics_shard_size"] = 2  # removed: the parser stops
    path.write_text(json.dumps(broken, indent=2))
    run = [str(folder / "train.py"), "--tiny", "--steps", str(STEPS), "--warmup", "0"]
    assert launch(run)[0] != 0

    options = {"context": "plain"}
    report = advise(path, **options)
    assert report.exit_code("error") == 1
    (patched,) = write_patched(report, 1, **options)
    assert advise(patched, **options).exit_code("warning") == 0
    path.write_text(patched.read_text())
    code, text = launch(run)
    assert code == 0, text[-3000:]
    losses = [float(loss) for loss in LOSS.findall(text)]
    assert len(losses) == STEPS
    assert all(math.isfinite(loss) for loss in losses)
