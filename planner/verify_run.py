"""What needs the frameworks themselves: DeepSpeed's parser, and a scaled-down run on the CPU.

Both run in a process of their own: the frameworks print when imported and change global state.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from planner.plan import Result

PACKAGES = ("torch", "deepspeed", "transformers")
PROCESSES = 2
STEPS = 4  # losses of the same few batches: they must fall
PARSE_SECONDS = 300.0
RUN_SECONDS = 1500.0  # DeepSpeed compiles its CPU kernels on first use, minutes each
LOSS = re.compile(r"train\.py: step \d+ loss (\S+)")
LAST_WORDS = 3  # lines of an error that are shown

PARSER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import deepspeed.runtime.config as module

class Group:
    def get_rank(self, *_, **__): return 0
    def get_world_size(self, *_, **__): return world

world, documents = json.load(sys.stdin)
module.dist = Group()
answers = []
for document in documents:
    try:
        module.DeepSpeedConfig(document)
        answers.append("")
    except Exception as error:
        answers.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
print("ANSWERS" + json.dumps(answers))
"""


def missing_packages(*names: str) -> list[str]:
    """Those of ``names`` that cannot be imported."""
    return [name for name in names if find_spec(name) is None]


def parse_with_deepspeed(documents: Sequence[dict[str, Any]], world: int) -> list[str]:
    """What DeepSpeed's configuration class says of each document; empty if it accepts it.

    Parameters
    ----------
    documents : sequence of dict
        DeepSpeed configurations.
    world : int
        Ranks it shall believe in. [-]
    """
    answer = subprocess.run(
        [sys.executable, "-c", PARSER],
        input=json.dumps([world, list(documents)]),
        capture_output=True,
        text=True,
        timeout=PARSE_SECONDS,
        env=cpu_environment(),
        check=False,
    )
    for line in answer.stdout.splitlines():
        if line.startswith("ANSWERS"):
            answers: list[str] = json.loads(line.removeprefix("ANSWERS"))
            return answers
    return [f"the parser did not run: {last_words(answer.stderr)}"] * len(documents)


def why_not_run(folder: Path, result: Result | None) -> str:
    """Why a bundle's train.py cannot be run here; empty if it can."""
    if not (folder / "train.py").is_file():
        return "no train.py in the bundle"
    missing = missing_packages(*PACKAGES)
    if missing:
        return f"not installed: {', '.join(missing)}"
    job = result.job if result else {}
    plan = result.plan if result else None
    if job.get("optimizer") == "lion" and plan and plan.offload_optimizer == "none":
        return "DeepSpeed has no Lion kernel for a CPU"
    if job.get("optimizer") == "adam8bit":
        return "8-bit Adam is not run on a CPU"
    return ""


def tiny_run(folder: Path) -> tuple[str, str]:
    """Run train.py --tiny with two processes: what went wrong, and what it showed."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "measured.csv"
        arguments = ["--tiny", "--steps", str(STEPS), "--warmup", "0", "--output", str(output)]
        code, text = launch([str(folder / "train.py"), *arguments])
        rows = read_rows(output)
    losses = [float(loss) for loss in LOSS.findall(text)]
    trained = len(losses) == STEPS and len(rows) == 1  # the row is written when all ranks are done
    if code and not trained:
        return f"train.py --tiny failed: {last_words(text)}", ""
    if not trained or not all(math.isfinite(loss) for loss in losses):
        return f"train.py --tiny: losses {losses}, {len(rows)} measured rows", ""
    if losses[-1] >= losses[0]:
        return f"train.py --tiny: the loss does not fall: {losses}", ""
    if not float(rows[0]["step_time_s"]) > 0:
        return "train.py --tiny measured no step time", ""
    shown = f"{PROCESSES} processes, loss {losses[0]:.3f} to {losses[-1]:.3f} in {STEPS} steps"
    # gloo's threads now and then abort a process that is shutting down
    return "", shown + (f"; after that, exit code {code} while shutting down" if code else "")


def launch(command: Sequence[str], processes: int = PROCESSES) -> tuple[int, str]:
    """torchrun a script on the CPU: exit code, and all it printed.

    A run that takes too long is ended with every process it started.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    process = subprocess.Popen(
        [sys.executable, *launcher, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=cpu_environment(),
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        return 1, f"{text}\nError: not finished after {RUN_SECONDS:.0f} s"
    return process.returncode, text


def cpu_environment() -> dict[str, str]:
    """The environment of a CPU run; ninja beside the interpreter is found."""
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    fixed = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **fixed, "PATH": os.pathsep.join(paths)}


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def last_words(text: str) -> str:
    """The errors a process printed last, launchers' own aside."""
    ours = ("ChildFailedError", "error_file", "elastic")
    errors = [
        line.strip()
        for line in text.splitlines()
        if re.search(r"(Error|SystemExit|Exception)\b", line) and not any(o in line for o in ours)
    ]
    return " | ".join(dict.fromkeys(errors[-LAST_WORDS:])) or text.strip()[-200:]
