"""A launch line: which launcher, how many processes, which script, which flags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.advisor.shell import UNKNOWN, Script, Word
from planner.lint.document import Document, Flaw, Path, Place, Value, as_int

_PYTHON = re.compile(r"(?:.*/)?python[\d.]*$")
_FLAG = re.compile(r"--?[A-Za-z]")
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")

# Switches of the launchers: flags that take no value before the training script.
_LAUNCHER_SWITCHES = frozenset(
    {
        "use_env",
        "no_python",
        "module",
        "m",
        "standalone",
        "multi_gpu",
        "use_deepspeed",
        "use_fsdp",
        "use_megatron_lm",
        "use_parallelism_config",
        "debug",
        "quiet",
        "same_network",
        "cpu",
        "tpu",
        "use_xpu",
        "no_local_rank",
        "no_ssh",
        "force_multi",
        "save_pid",
        "elastic_training",
        "enable_each_rank_log",
        "bind_cores_to_rank",
        "dynamo_use_fullgraph",
        "dynamo_use_dynamic",
        "q",
    }
)

# Where a file of these kinds is named on a launch line.
FILE_FLAGS = {"deepspeed": "deepspeed", "deepspeed_config": "deepspeed", "ds_config": "deepspeed"}
FILE_FLAGS |= {"deepspeed_config_file": "deepspeed", "config_file": "accelerate"}

MEGATRON_MARKS = frozenset(
    {
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "num_layers",
        "num_attention_heads",
        "micro_batch_size",
        "global_batch_size",
        "ffn_hidden_size",
        "max_position_embeddings",
        "use_distributed_optimizer",
        "zero_stage",
        "context_parallel_size",
    }
)
_MEGATRON_ONLY = frozenset(
    {"tensor_model_parallel_size", "pipeline_model_parallel_size", "num_attention_heads"}
) | {"micro_batch_size", "max_position_embeddings", "use_distributed_optimizer"}
TRAINER_MARKS = frozenset(
    {
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "model_name_or_path",
        "learning_rate",
        "output_dir",
        "num_train_epochs",
        "deepspeed",
        "fsdp",
        "gradient_checkpointing",
    }
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch line taken apart.

    ``launcher``: accelerate, deepspeed, torchrun, python, llamafactory, axolotl or arguments (a
    bare list of flags). ``target`` is the script, or the configuration it is given.
    """

    launcher: str
    options: Mapping[str, Any]
    flags: Document
    target: str
    world: int | None
    gpus_per_node: int | None
    environment: Mapping[str, str]


def value_of(text: str) -> Value:
    """A flag's text as a value: number, switch, or text.

    >>> value_of("8"), value_of("1e-5"), value_of("True"), value_of("bf16")
    (8, 1e-05, True, 'bf16')
    """
    if re.fullmatch(r"[-+]?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"[-+]?(\d{1,40}\.?\d{0,40}|\.\d{1,40})([eE][-+]?\d{1,3})?", text):
        return float(text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def flag_name(text: str) -> str:
    """A flag's name without dashes in front, with underscores inside.

    >>> flag_name("--tensor-model-parallel-size")
    'tensor_model_parallel_size'
    """
    return text.lstrip("-").replace("-", "_")


def parse_flags(
    words: Sequence[Word], name: str, kind: str = "trainer", text: str = ""
) -> Document:
    """The flags of an argument list as a document.

    A flag without a value is true; several values make a list; a value only a run would give is
    None, with a flaw.

    Examples
    --------
    >>> from planner.lint.document import Place
    >>> line = [Word(w, Place(1, 1)) for w in "--bf16 --lr=1e-5 --sizes 1 2".split()]
    >>> parse_flags(line, "x").data
    {'bf16': True, 'lr': 1e-05, 'sizes': [1, 2]}
    """
    data: dict[str, Any] = {}
    places: dict[Path, Place] = {(): words[0].place if words else Place(1, 1)}
    spelling: dict[str, str] = {}
    flaws: list[Flaw] = []
    values: list[Word] = []
    current = ""

    def finish() -> None:
        if current:
            if any(not word.known for word in values):
                flaws.append(Flaw("unresolved", (current,), places[(current,)], current))
            data[current] = _flag_value(values)

    for word in words:
        if _FLAG.match(word.text):
            finish()
            typed, sign, attached = word.text.partition("=")
            current = flag_name(typed)
            values = [Word(attached, word.place)] if sign else []
            if current in data:
                flaws.append(Flaw("repeated", (current,), word.place, typed))
            places[(current,)] = word.place
            spelling[current] = typed
        elif (word.known and current) or (not word.known and current and not values):
            values.append(word)
        elif not word.known:
            flaws.append(Flaw("unresolved", (), word.place, "an argument"))
    finish()
    return Document(
        kind=kind,
        name=name,
        data=data,
        places=places,
        flaws=tuple(flaws),
        format="arguments",
        text=text,
        spelling=spelling,
    )


def _flag_value(values: Sequence[Word]) -> Value:
    if not values:
        return True
    read = [value_of(word.text) if word.known else None for word in values]
    return read[0] if len(read) == 1 else read


def flags_kind(data: Mapping[str, Any]) -> str:
    """megatron or trainer, by the flags used."""
    megatron = MEGATRON_MARKS & data.keys()
    sure = megatron & _MEGATRON_ONLY or len(megatron) > 3
    return "megatron" if sure and len(megatron) > len(TRAINER_MARKS & data.keys()) else "trainer"


def find_launch(script: Script, name: str, text: str) -> Launch | None:
    """The first training launch of a script; None if there is none."""
    for command in script.commands:
        launch = _launch(command, name, text)
        if launch is not None:
            return replace(launch, environment=script.variables)
    for command in script.commands:  # a bare argument list
        if any(flag_name(word.text.partition("=")[0]) in _MARKS for word in command):
            flags = parse_flags(command, name, text=text)
            made = _made("arguments", {}, flags, "")
            return replace(made, environment=script.variables)
    return None


def other_launches(script: Script, chosen: Launch, name: str, text: str) -> tuple[str, ...]:
    """A note naming the launches of a script that are not looked at; empty if there are none."""
    found = [
        (launch.target or launch.launcher, command[0].place.line)
        for command in script.commands
        if (launch := _launch(command, name, text)) is not None
    ][1:]
    if not found or chosen.launcher == "arguments":
        return ()
    listed = ", ".join(f"{what} (line {line})" for what, line in found)
    return (f"only the first launch of the script is judged; not looked at: {listed}",)


_MARKS = MEGATRON_MARKS | TRAINER_MARKS


_TALK = frozenset({"command", "which", "type", "hash", "echo", "printf", "[", "[[", "test", "cat"})


def _launch(words: Sequence[Word], name: str, text: str) -> Launch | None:
    if words[0].text in _TALK:
        return None
    for index, word in enumerate(words):
        after = words[index + 1 :]
        base = word.text.rsplit("/", 1)[-1]
        following = after[0].text if after else ""
        if base == "accelerate" and following == "launch":
            return _with_script("accelerate", after[1:], name, text)
        if base in ("llamafactory-cli", "axolotl", "llamafactory"):
            return _with_file(base.split("-")[0], after, name, text)
        if base in ("deepspeed", "torchrun"):
            return _with_script(base, after, name, text)
        if base in ("bash", "sh") and following.startswith("-") and "c" in following:
            return _nested(after[1:], name, text)
        if _PYTHON.match(word.text):
            return _python(after, name, text)
    return None


def _nested(words: Sequence[Word], name: str, text: str) -> Launch | None:
    """``bash -c '...'``: the inner text read the same way."""
    from planner.advisor.shell import read_script

    if not words:
        return None
    inner = read_script(words[0].text, name, words[0].place.line)
    return next((found for c in inner.commands if (found := _launch(c, name, text))), None)


def _python(words: Sequence[Word], name: str, text: str) -> Launch | None:
    for index, word in enumerate(words):
        if word.text == "-m" and index + 1 < len(words):
            module, rest = words[index + 1].text, words[index + 2 :]
            if module in _TORCH_MODULES:
                return _with_script("torchrun", rest, name, text)
            if module.startswith("deepspeed.launcher"):
                return _with_script("deepspeed", rest, name, text)
            if module.startswith("accelerate.commands"):
                rest = rest[1:] if rest and rest[0].text == "launch" else rest
                return _with_script("accelerate", rest, name, text)
            if module.startswith(("axolotl.cli", "llamafactory")):
                return _with_file(module.split(".")[0], words[index + 2 :], name, text)
            return _made("python", {}, parse_flags(rest, name, text=text), module)
        if word.text.endswith(".py"):
            flags = parse_flags(words[index + 1 :], name, text=text)
            return _made("python", {}, flags, word.text)
        if not word.text.startswith("-"):
            return None
    return None


def _with_script(launcher: str, words: Sequence[Word], name: str, text: str) -> Launch:
    """Launcher options up to the script, flags after it."""
    index = 0
    options: list[Word] = []
    target = ""
    while index < len(words):
        word = words[index]
        if word.text.startswith("-"):
            options.append(word)
            flag = flag_name(word.text.partition("=")[0])
            takes = "=" not in word.text and flag not in _LAUNCHER_SWITCHES
            if flag in ("m", "module"):
                index += 1
                continue
            if takes and index + 1 < len(words) and not words[index + 1].text.startswith("-"):
                if words[index + 1].text.endswith(".py") and flag not in FILE_FLAGS:
                    index += 1
                    continue
                options.append(words[index + 1])
                index += 1
            index += 1
            continue
        target = word.text
        index += 1
        break
    parsed = parse_flags(options, name).data
    return _made(launcher, parsed, parse_flags(words[index:], name, text=text), target)


def _with_file(launcher: str, words: Sequence[Word], name: str, text: str) -> Launch | None:
    """``llamafactory-cli train FILE``, ``axolotl train FILE``."""
    for index, word in enumerate(words):
        if word.text.lower().endswith((".yaml", ".yml", ".json")):
            flags = parse_flags(words[index + 1 :], name, text=text)
            return _made(launcher, {}, flags, word.text)
    if any(_FLAG.match(word.text) for word in words):
        return _made(launcher, {}, parse_flags(words, name, text=text), "")
    return None


def _made(launcher: str, options: Mapping[str, Value], flags: Document, target: str) -> Launch:
    kind = flags_kind(flags.data)
    document = Document(
        kind=kind,
        name=flags.name,
        data=flags.data,
        places=flags.places,
        flaws=flags.flaws,
        format="arguments",
        text=flags.text,
        spelling=flags.spelling,
    )
    per_node, nodes = _processes(launcher, options)
    world = None
    if launcher == "accelerate":
        world = as_int(options.get("num_processes"))
    elif per_node is not None and nodes is not None:
        world = per_node * nodes
    elif launcher == "python":
        world = 1
    if "srun " in flags.text and "nnodes" not in options:
        world = None  # the job allocation decides
    target = target.rsplit("/", 1)[-1] if UNKNOWN in target else target
    target = "" if UNKNOWN in target else target
    return Launch(launcher, options, document, target, world, per_node, {})


def _processes(launcher: str, options: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Processes per node and nodes, where the launch line says so."""
    if launcher == "torchrun":
        nodes = options.get("nnodes", 1)
        return as_int(options.get("nproc_per_node", 1)), as_int(nodes)
    if launcher == "deepspeed":
        include = options.get("include")
        if isinstance(include, str) and "@" not in include and include.startswith("localhost:"):
            return include.count(",") + 1, 1
        per_node = as_int(options.get("num_gpus", options.get("num_accelerators")))
        nodes = 1 if "hostfile" not in options else None
        return per_node, as_int(options.get("num_nodes", nodes))
    return None, None
