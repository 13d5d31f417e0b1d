"""The shell reader: expansion as bash does it where it is safe, unknown where it is not."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from planner.advisor.arguments import find_launch
from planner.advisor.arithmetic import calculate
from planner.advisor.flags import parse_flags
from planner.advisor.shell import read_script
from planner.advisor.shell_words import UNKNOWN
from planner.advisor.source import Unreadable

SCRIPT = r"""#!/bin/bash
GPUS=8; NNODES=${NNODES:-2}   # a comment with "quotes
WORLD=$(($GPUS*$NNODES))
export CUDA_DEVICE_MAX_CONNECTIONS=1
MODEL_ARGS=(
   --num-layers 32   # layers
   --hidden-size 4096
)
OPTS=" \
 --micro-batch-size 2 \
 --global-batch-size $((WORLD * 2)) "
OPTS+=" --bf16"
DATE=`date`
torchrun --nproc_per_node $GPUS --nnodes=$NNODES \
    pretrain_gpt.py "${MODEL_ARGS[@]}" $OPTS --save "$OUT/x" --seed $(date +%s) 2>&1 | tee log
"""


def test_variables_arrays_and_arithmetic() -> None:
    script = read_script(SCRIPT, "x.sh")
    launch = find_launch(script, "x.sh", SCRIPT)
    assert launch is not None
    assert (launch.launcher, launch.world, launch.target) == ("torchrun", 16, "pretrain_gpt.py")
    assert launch.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    data = launch.flags.data
    assert data["num_layers"] == 32
    assert data["global_batch_size"] == 32
    assert data["bf16"] is True
    assert data["save"] is None
    assert data["seed"] is None
    assert {f.path[0] for f in launch.flags.flaws} == {"save", "seed"}


BASH = [
    'A=1; echo "$A" ${A}2 \'$A\' a"$A"b',
    'X="a b"; echo $X "$X" --y=$X',
    "N=3; echo $((N*4+2)) $(( (N+1) % 3 ))",
    'A=(one "two words" three); echo "${A[@]}" end',
    "echo ${MISSING:-default} ${MISSING:-}x",
    "A=x; A+=y; echo $A; B=(1); B+=(2 3); echo ${B[@]}",
    'echo "a\\"b" a\\ b "c\\$d"',
    "A=1 \\\n  ; echo one \\\n two",
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("text", BASH)
def test_expands_as_bash_does(text: str) -> None:
    """The words echo gets, one per line, against bash's own."""
    command = text.replace("echo ", "printf '%s\\n' ")
    real = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    ours = [w.text for c in read_script(text, "x").commands if c[0].text == "echo" for w in c[1:]]
    assert ours == real.stdout.splitlines()


def test_nothing_is_run(tmp_path: object) -> None:
    text = f"X=$(touch {tmp_path}/ran) `touch {tmp_path}/ran`; python train.py --lr $X"
    script = read_script(text, "x")
    words = [word for command in script.commands for word in command]
    assert any(UNKNOWN in word.text for word in words)
    assert not list(__import__("pathlib").Path(str(tmp_path)).iterdir())


def test_here_documents_become_files() -> None:
    text = 'N=4\ncat <<EOF > ds.json\n{"train_batch_size": $N}\nEOF\npython t.py\n'
    script = read_script(text, "x")
    assert script.files["ds.json"] == ('{"train_batch_size": 4}', 3)


def test_growth_is_bounded() -> None:
    with pytest.raises(Unreadable, match="grows"):
        read_script("A=xx\n" + 'A="$A$A"\n' * 60, "x")


@settings(max_examples=500)
@given(st.text(alphabet="abA=$(){}[]\"'`\\\n ;|&<>#-!*@0:+", max_size=60))
def test_any_text_is_read_or_one_line(text: str) -> None:
    try:
        script = read_script(text, "x.sh")
    except Unreadable as error:
        one_line(error)
        return
    find_launch(script, "x.sh", text)
    parse_flags([w for c in script.commands for w in c], "x.sh")


@given(st.integers(-99, 99), st.integers(-99, 99), st.integers(1, 99))
def test_arithmetic(a: int, b: int, c: int) -> None:
    assert calculate(f"({a}) + ({b}) * {c}") == a + b * c
    assert calculate(f"({a}) / {c}") == int(a / c)
    assert calculate(f"({a}) % {c}") == a - int(a / c) * c


@pytest.mark.parametrize(
    ("line", "launcher", "world"),
    [
        ("accelerate launch --num_processes 4 train.py --bf16", "accelerate", 4),
        ("deepspeed --num_gpus 8 train.py --deepspeed ds.json", "deepspeed", 8),
        ("deepspeed --include localhost:0,1 t.py --deepspeed ds.json", "deepspeed", 2),
        ("python -m torch.distributed.launch --nproc_per_node=2 t.py --fp16", "torchrun", 2),
        ("torchrun --standalone --nproc-per-node 4 t.py --bf16 --deepspeed d.json", "torchrun", 4),
        ("python train.py --per_device_train_batch_size 4", "python", 1),
        ("srun bash -c 'torchrun --nnodes 2 --nproc_per_node 8 t.py --bf16'", "torchrun", 16),
        ("llamafactory-cli train x.yaml --bf16", "llamafactory", None),
        ("accelerate launch -m axolotl.cli.train x.yaml", "accelerate", None),
    ],
)
def test_launchers(line: str, launcher: str, world: int | None) -> None:
    launch = find_launch(read_script(line, "x"), "x", line)
    assert launch is not None
    assert (launch.launcher, launch.world) == (launcher, world)


def test_words_about_a_launcher_are_no_launch() -> None:
    text = 'command -v torchrun > /dev/null || echo "torchrun missing"\n'
    assert find_launch(read_script(text, "x"), "x", text) is None
