"""A launch line: which launcher, how many processes, which script, which flags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from planner.advisor.flags import FLAG, MARKS, flag_name, flags_kind, parse_flags
from planner.advisor.shell import Script, Word
from planner.advisor.shell_words import UNKNOWN
from planner.lint.document import Document, Path, Place, Value, as_int

_PYTHON = re.compile(r"(?:.*/)?python[\d.]*$")
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
        "dynamo_use_regional_compilation",
        "enable_cpu_affinity",
        "tpu_cluster",
        "no_tpu_cluster",
        "tpu_use_sudo",
        "downcast_bf16",
        "fp8_use_autocast_during_eval",
        "run_path",
        "virtual_local_rank",
        "no_ssh_check",
        "q",
    }
)

# Where a file of these kinds is named on a launch line.
FILE_FLAGS = {"deepspeed": "deepspeed", "deepspeed_config": "deepspeed", "ds_config": "deepspeed"}
FILE_FLAGS |= {"deepspeed_config_file": "deepspeed", "config_file": "accelerate"}


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch line taken apart.

    ``launcher``: accelerate, deepspeed, torchrun, python, llamafactory, axolotl or arguments (a
    bare list of flags). ``target`` is the script, or the configuration it is given. ``places``
    and ``spelling`` are those of the options.
    """

    launcher: str
    options: Mapping[str, Any]
    flags: Document
    target: str
    world: int | None
    gpus_per_node: int | None
    environment: Mapping[str, str]
    places: Mapping[Path, Place] = field(default_factory=lambda: MappingProxyType({}))
    spelling: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def find_launch(script: Script, name: str, text: str) -> Launch | None:
    """The first training launch of a script; None if there is none."""
    for command in script.commands:
        launch = _launch(command, name, text)
        if launch is not None:
            return replace(launch, environment=script.variables)
    for command in script.commands:  # a bare argument list
        if any(flag_name(word.text.partition("=")[0]) in MARKS for word in command):
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
    parsed = parse_flags(options, name)
    made = _made(launcher, parsed.data, parse_flags(words[index:], name, text=text), target)
    return replace(made, places=parsed.places, spelling=parsed.spelling)


def _with_file(launcher: str, words: Sequence[Word], name: str, text: str) -> Launch | None:
    """``llamafactory-cli train FILE``, ``axolotl train FILE``."""
    for index, word in enumerate(words):
        if word.text.lower().endswith((".yaml", ".yml", ".json")):
            flags = parse_flags(words[index + 1 :], name, text=text)
            return _made(launcher, {}, flags, word.text)
    if any(FLAG.match(word.text) for word in words):
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
