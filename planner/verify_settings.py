"""Settings that differ between a file and what the plan emits, and whose they are.

A setting the plan decides must be as planned; one that is the user's, such as the learning rate or
the data, may be edited. Files are read as text, never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.advisor.shell import Script, read_script
from planner.advisor.shell_words import UNKNOWN


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that is not as emitted; ``decided`` if the plan decides it.

    ``expected`` is empty where ``found`` says it all.
    """

    place: str
    found: str
    expected: str
    decided: bool

    def __str__(self) -> str:
        says = f", the plan says {self.expected}" if self.expected else ""
        return f"{self.place}: {self.found}{says}"


ABSENT = "absent"
# Keys of deepspeed_config.json that are the user's: the optimizer's numbers, logs, loss scaling.
DEEPSPEED_OWN = re.compile(
    r"optimizer\.params\.(lr|betas|eps|weight_decay)$|scheduler\b|gradient_clipping$"
    r"|steps_per_print$|wall_clock_breakdown$|dump_state$|memory_breakdown$|seed$"
    r"|(tensorboard|wandb|comet|csv_monitor|flops_profiler|comms_logger|checkpoint|aio)\b"
    r"|fp16\.(loss_scale|initial_scale_power|loss_scale_window|hysteresis|min_loss_scale)"
    r"|.*\.nvme_path$"
)
ACCELERATE_OWN = re.compile(
    r"(compute_environment|machine_rank|main_process_ip|main_process_port|main_training_function"
    r"|rdzv_backend|same_network|debug)$|fsdp_config\.fsdp_(state_dict_type|cpu_ram_efficient_)"
)
# Flags of a training script that are the user's, wherever they stand.
SCRIPT_OWN = re.compile(
    r"(min-|init-|decoupled-)?lr(-|$)|weight-decay|(start|end)-weight|adam-|sgd-momentum$|clip-grad$"
    r"|seed$|init-method|train-(iters|samples|data)|eval-|log-|save|load|data-(path|args|cache)"
    r"|dataloader|dataset|split$|tokenizer|vocab|merge-file|mock-data$|tensorboard|wandb"
    r"|num-workers|exit-|hf-assets-path$|finetune$|no-(load|save)|initial-loss-scale|loss-scale"
    r"|training\.(steps|max-norm|dataset|seed)|(metrics|lr-scheduler|profiling|profiler|checkpoint"
    r"|validation|validator|dataloader|debug)\.|optimizer\.(lr|beta|eps|weight-decay)|job\."
)
# Flags the plan decides although it left them out: they would change memory, time or the model.
SCRIPT_DECIDED = re.compile(
    r"parallel|fsdp|zero|offload|recompute|checkpoint|micro-batch|batch-size|rampup|seq-len"
    r"|^(no-)?(bf|fp|tf)\d|dtype|precision|num-layers|hidden-size|attention|attn|flash"
    r"|query-groups|key-value|kv-|head-dim|ffn|position|rope|rotary|norm|swiglu|relu|gelu|bias"
    r"|embeddings|make-vocab|dropout|transformer-impl|cross-entropy|grad-reduce|accumulate|overlap|optimizer"
    r"|virtual|pipeline|expert|moe|lora|deepspeed|compile|cuda-graph|^config$|^module$|exp-avg"
    r"|main-(grads|params)|cpu-init|distribute-saved"
)
LAUNCHER_DECIDED = re.compile(
    r"nproc-per-node|nnodes|num-processes|num-machines|config-file|^words$"
)
SLURM_DECIDED = re.compile(r"nodes|ntasks|gpus|gres|array$")
RELIED = re.compile(  # environment the plan relies on
    r"PYTORCH_|CUDA_|PYTHONPATH$|DS_|TORCH_ALLOW_TF32|NVTE_|NVIDIA_TF32|FSDP_|ACCELERATE_|XFORMERS"
)
LAUNCHERS = ("torchrun", "accelerate", "srun", "deepspeed", "mpirun")
SCRIPT_NAME = re.compile(r"\$TRAIN_(?:SCRIPT|MODULE)\b|\$\{TRAIN_(?:SCRIPT|MODULE)\}")
SCRIPT = "TRAINING_SCRIPT"
RESET = re.compile(r"^\s+PLAN_ARGS=\(\).*$", re.MULTILINE)  # where the bundle's own script runs
HERE = re.compile(r"^\s*(?:export\s+)?HERE=(.*)$", re.MULTILINE)  # where the files are read from
CONTROL = {"exit", "return", "exec", "eval"}
VARIABLE = re.compile(r"(?:^|\s)([A-Za-z_]\w*)(?==|\s|$)")
SBATCH = re.compile(r"^#SBATCH\s+(?:--([\w-]+)(?:[= ]\s*(\S+))?|-([Nn])\s*(\d+))", re.MULTILINE)


def document_differences(
    found: Any, expected: Any, own: re.Pattern[str], extra_own: bool = False
) -> Iterator[Difference]:
    """Key by key through two JSON or YAML documents.

    ``own`` matches dotted keys that are the user's; ``extra_own`` makes so all that were not
    emitted.
    """
    left, right = flatten(found), flatten(expected)
    for key in dict.fromkeys((*right, *left)):
        if left.get(key, ABSENT) != right.get(key, ABSENT) or type(left.get(key)) is not type(
            right.get(key)
        ):
            decided = not own.match(key) and not (extra_own and key not in right)
            yield Difference(key, str(left.get(key, ABSENT)), str(right.get(key, ABSENT)), decided)


def flatten(document: Any, place: str = "") -> dict[str, Any]:
    """Dotted keys to values; lists are values.

    >>> flatten({"zero_optimization": {"stage": 2}})
    {'zero_optimization.stage': 2}
    """
    if not isinstance(document, dict) or (place and not document):
        return {place or "(document)": document}
    return {
        key: value
        for name, inner in document.items()
        for key, value in flatten(inner, f"{place}.{name}" if place else str(name)).items()
    }


def script_differences(found: str, expected: str) -> Iterator[Difference]:
    """Launching command, environment and Slurm options of two shell scripts.

    Raises
    ------
    planner.advisor.source.Unreadable
        If a quote or a bracket of one is not closed.
    """
    left, right = _read(found), _read(expected)
    changed = list(_launch_differences(left, right))
    if RESET.search(expected):  # with a script of one's own the plan's arguments stay
        texts = (RESET.sub("", text) for text in (found, expected))
        changed += _launch_differences(*map(_read, texts))
    yield from dict.fromkeys(changed)
    here, planned = HERE.findall(found), HERE.findall(expected)
    if here != planned:
        yield Difference("HERE", " ".join(here) or ABSENT, " ".join(planned) or ABSENT, True)
    yield from _control_differences(left, right)
    yield from _environment_differences((found, left), (expected, right))
    yield from _slurm_differences(found, expected)


def _launch_differences(found: Script, expected: Script) -> Iterator[Difference]:
    starts, planned = launching(found), launching(expected)
    if len(starts) != len(planned):
        yield Difference("launching commands", str(len(starts)), str(len(planned)), True)
        return
    for words, wanted in zip(starts, planned, strict=True):
        if words[0] != wanted[0]:
            yield Difference("launcher", words[0], wanted[0], True)
        yield from _command_differences(words[1:], wanted[1:])
    for name in ("TRAIN_SCRIPT", "TRAIN_MODULE"):
        script, emitted = found.variables.get(name, ""), expected.variables.get(name, "")
        if script != emitted:
            yield Difference(name, _plain(script) or "unset", _plain(emitted) or "unset", False)


def _control_differences(found: Script, expected: Script) -> Iterator[Difference]:
    """Commands that end the script or hide others from a reader."""

    def control(script: Script) -> list[str]:
        lines = [[word.text for word in command] for command in script.commands]
        return [_plain(" ".join(words)) for words in lines if set(words[:2]) & CONTROL]

    planned = control(expected)
    for line in control(found):
        if line in planned:
            planned.remove(line)
        elif not set(line.split()) & set(LAUNCHERS):  # those are compared word by word
            yield Difference("command", line, ABSENT, True)


def _plain(text: str) -> str:
    """Text for people, what only a run would tell as a dollar sign."""
    return text.replace(UNKNOWN, "$")


def _read(text: str) -> Script:
    return read_script(SCRIPT_NAME.sub(SCRIPT, text), "script")


def launching(script: Script) -> list[list[str]]:
    """The commands that start processes, assignments and ``exec`` before them left out."""
    found = []
    for command in script.commands:
        words = [word.text for word in command]
        at = next((i for i, w in enumerate(words) if w.rsplit("/", 1)[-1] in LAUNCHERS), None)
        if at is not None and not {"command", "type", "which", "echo"} & set(words[:at]):
            found.append([words[at].rsplit("/", 1)[-1], *words[at + 1 :]])
    return found


def _command_differences(found: list[str], expected: list[str]) -> Iterator[Difference]:
    pairs = zip(_parts(found), _parts(expected), strict=True)
    for own, decided, (left, right) in zip(
        (None, SCRIPT_OWN), (LAUNCHER_DECIDED, SCRIPT_DECIDED), pairs, strict=True
    ):
        for flag in dict.fromkeys((*right, *left)):
            if left.get(flag) == right.get(flag):
                continue
            name = flag.removeprefix("--")
            if own is None:  # before the script: only the world is the plan's
                planned = bool(decided.search(name))
            else:
                planned = not own.match(name) and (flag in right or bool(decided.search(name)))
            yield Difference(flag, _shown(left.get(flag)), _shown(right.get(flag)), planned)


def _parts(words: list[str]) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Flags of the launcher and flags of the script it starts."""
    ends = (i for i, word in enumerate(words) if word == SCRIPT or word.endswith((".py", ".sh")))
    at = next(ends, len(words))
    return flags(words[:at]), flags(words[at + 1 :])


def flags(words: list[str]) -> dict[str, tuple[str, ...]]:
    """Flags to their values; the last of equal ones counts, as in argparse.

    >>> flags(["--micro_batch-size=2", "--bf16", "--split", "1,2"])
    {'--micro-batch-size': ('2',), '--bf16': (), '--split': ('1,2',)}
    """
    out: dict[str, tuple[str, ...]] = {}
    flag = "words"
    for word in words:
        choice = re.match(r"(activation-checkpoint):(.*)", word)
        if choice:  # torchtitan takes the kind of checkpointing as a word of its own
            out[choice[1]] = (*out.get(choice[1], ()), choice[2])
        elif re.match(r"--?[A-Za-z]", word):
            name, sign, value = word.partition("=")
            flag = f"--{name.lstrip('-').replace('_', '-')}"
            out[flag] = (value,) if sign else ()
        elif word:
            out[flag] = (*out.get(flag, ()), word)
    return out


def _shown(values: tuple[str, ...] | None) -> str:
    if values is None:
        return ABSENT
    return _plain(" ".join(values)) or "given"


def _environment_differences(
    found: tuple[str, Script], expected: tuple[str, Script]
) -> Iterator[Difference]:
    left, right = exported(*found), exported(*expected)
    for name in dict.fromkeys((*right, *left)):
        if left.get(name) != right.get(name):
            mine, planned = (_plain(side.get(name, ABSENT)) for side in (left, right))
            yield Difference(name, mine, planned, bool(RELIED.match(name)))


def exported(text: str, script: Script) -> dict[str, str]:
    """Variables a script hands on, with their values where nothing else sets them."""
    lines = re.findall(r"^\s*(?:export|declare -x)\s+(.*)", text, re.MULTILINE)
    names = [name for line in lines for name in VARIABLE.findall(line)]
    names += [name for name in script.variables if RELIED.match(name)]
    gone = {
        word.text for command in script.commands if command[0].text == "unset" for word in command
    }
    return {
        name: script.variables[name]
        for name in dict.fromkeys(names)
        if name in script.variables and name not in gone
    }


def _slurm_differences(found: str, expected: str) -> Iterator[Difference]:
    left, right = slurm_options(found), slurm_options(expected)
    for name in dict.fromkeys((*right, *left)):
        if left.get(name) != right.get(name):
            decided = bool(right) and bool(SLURM_DECIDED.match(name))
            mine, planned = (str(side.get(name, ABSENT)) for side in (left, right))
            yield Difference(f"#SBATCH --{name}", mine, planned, decided)


def slurm_options(text: str) -> Mapping[str, str]:
    """``#SBATCH`` options of a batch script; GPUs asked for by --gres count as --gpus-per-node.

    >>> slurm_options("#SBATCH --nodes=2\\n#SBATCH --gres=gpu:a100:8")
    {'nodes': '2', 'gpus-per-node': '8'}
    """
    out = {}
    for name, value, letter, count in SBATCH.findall(text):
        key = {"N": "nodes", "n": "ntasks"}[letter] if letter else name
        gres = re.fullmatch(r"gpu(?::\w+)?:(\d+)", value) if key == "gres" else None
        out["gpus-per-node" if gres else key] = gres[1] if gres else value or count
    return out
