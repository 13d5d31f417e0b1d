"""The flags of an argument list, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.advisor.shell import Word
from planner.lint.document import Document, Flaw, Path, Place, Value

FLAG = re.compile(r"--?[A-Za-z]")

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
        if FLAG.match(word.text):
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


MARKS = MEGATRON_MARKS | TRAINER_MARKS
