"""Whole-process time and peak memory of the command line, from one GPU to 16,384.

    python benchmarks/speed.py [--repeat 3]

Prints one line a job: seconds (best of the repeats), peak memory of the process, status and gap.
Machines differ and are shared; compare ratios within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

SOLVE = ("solve", "--no-files", "--json")
JOBS = {
    "help": ("--help",),
    "8 GPUs, 13B": (*SOLVE, "--model", "13b", "--gpus", "8xA100-80G"),
    "8 consumer GPUs, 70B with offload": (*SOLVE, "--model", "70b", "--gpus", "8xRTX4090"),
    "64 GPUs, 70B": (*SOLVE, "--model", "70b", "--gpus", "8x8xA100-80G"),
    "1,024 GPUs, GPT-3 175B": (
        *SOLVE, "--model", "175b", "--gpus", "128x8xA100-80G",
        "--global-batch", "1536", "--seq-len", "2048",
    ),
    "1,024 GPUs, GPT-3 175B on Megatron-LM": (
        *SOLVE, "--model", "175b", "--gpus", "128x8xA100-80G",
        "--global-batch", "1536", "--seq-len", "2048", "--stack", "megatron",
    ),
    "16,384 GPUs, Llama-3.1-405B": (
        *SOLVE, "--model", "llama3.1-405b", "--gpus", "2048x8xH100-80G",
        "--global-batch", "2048", "--seq-len", "8192",
    ),
    "16,384 GPUs, Llama-3.1-405B on Megatron-LM": (
        *SOLVE, "--model", "llama3.1-405b", "--gpus", "2048x8xH100-80G",
        "--global-batch", "2048", "--seq-len", "8192", "--stack", "megatron",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One process."""

    seconds: float
    peak_bytes: int
    output: str


def run(arguments: tuple[str, ...]) -> Run:
    """Run the command line once and wait for what it used."""
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        raise SystemExit(f"{' '.join(arguments)}: exit {os.waitstatus_to_exitcode(status)}")
    return Run(time.monotonic() - start, usage.ru_maxrss * 1024, output)


def main() -> None:
    """Measure every job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=1)
    repeat = parser.parse_args().repeat
    print(f"{'job':45} {'seconds':>8} {'peak MB':>8}  status")
    for name, arguments in JOBS.items():
        runs = [run(arguments) for _ in range(repeat)]
        best = min(runs, key=lambda r: r.seconds)
        note = ""
        if "--json" in arguments:
            result = json.loads(best.output)
            note = f"{result['status']}, gap {result['proof']['gap']}"
        print(f"{name:45} {best.seconds:8.2f} {best.peak_bytes / 1e6:8.0f}  {note}", flush=True)


if __name__ == "__main__":
    main()
