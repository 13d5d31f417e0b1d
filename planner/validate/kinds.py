"""What a table leaves unsaid: conventions of each kind of source, as data in ``kinds.yaml``."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from costmodels.intervals import Quantity
from costmodels.numeric import GIB
from costmodels.stack import Stack
from planner.validate.table import Row

Flops = Literal[
    "megatron_hardware",
    "megatron_model",
    "parameters_hardware",
    "model_full_attention",
    "model_causal_attention",
]
MemoryKind = Literal["allocated", "reserved", "nvidia-smi"]


class Strict(BaseModel):
    """Base of the entries."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Network(Strict):
    """Effective bandwidth of a node's network, per direction."""

    value: float = Field(gt=0)  # GB/s
    source: str


class When(Strict):
    """What holds for the rows of a kind whose cells match."""

    match: dict[str, str]  # column -> regular expression that must be found in it
    skip: str = ""
    time_skip: str = ""
    memory_skip: str = ""
    comparable: bool = True
    apart: str = ""  # what to call such rows, where their spread is another than the kind's
    report: Literal["worst", "first"] | None = None  # of these rows, instead of the kind's
    set: dict[str, str] = {}  # column -> what its cell means
    network: Network | None = None
    time: dict[str, Any] = {}  # fields of the stack's time profile
    memory: dict[str, Any] = {}
    fitted: dict[str, str] = {}  # fields its own runs decided -> how, and the error without


class Kind(Strict):
    """How to read the rows of one kind of source."""

    name: str
    match: dict[str, str]
    stack: str
    about: str  # why this stack and these defaults
    cite: str  # where its rows were published
    guessed: bool = False  # the stack is read off the framework's name, or off the layout
    comparable: bool = True  # its rows say what a prediction needs, and count in intervals
    network: Network | None = None
    pair: Network | None = None  # between two GPUs of nodes that have no switch
    gpu: str = ""  # where the source does not name it fully
    gpus_per_node: int | None = None
    biases: bool = True  # GPT-like models have them
    partition: Literal["even", "accounted", "blocks", "weighed"] = "even"
    local_batch: str = ""  # finds a pipeline's local batch, cut into as many parts as stages
    rescue: dict[str, Any] = {}  # memory fields of a switch that is turned on where nothing fits
    expert_tensor: int = 0  # ranks that share an expert; 0: as many as share a dense layer
    spare: bool = False  # checkpointing it leaves unsaid is the least that fits
    blocks: tuple[int, int] = (1, 2)  # what counts like a layer before and after the layers
    report: Literal["worst", "first"] = "worst"  # whose memory it prints
    memory_kind: MemoryKind = "allocated"
    memory_unit: float = Field(default=GIB, gt=0)  # bytes in what its tables print as one GiB
    flops: Flops = "model_full_attention"
    defaults: dict[str, str] = {}  # column -> what an empty cell means
    set: dict[str, str] = {}  # column -> what it means whatever it says
    time: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    fitted: dict[str, str] = {}  # fields its own runs decided -> how, and the error without
    when: tuple[When, ...] = ()
    informs: dict[str, str] | None = {}  # rows that constants may be fitted to; None: no row
    try_memory: dict[str, tuple[Any, ...]] = {}  # memory fields fitted to the kind, values tried
    # stacks whose plans its residuals speak for, where not those of its own stack alone
    speaks_for: dict[Quantity, tuple[str, ...]] = {}

    def speaks(self, quantity: Quantity) -> tuple[str, ...]:
        """Stacks whose plans its residuals speak for."""
        return self.speaks_for.get(quantity, (self.stack,))


class Spelling(Strict):
    """How a cell is spelled in the database's terms."""

    match: str
    means: str


class Kinds(Strict):
    """The whole file."""

    gpus: tuple[Spelling, ...]
    attention: tuple[Spelling, ...]
    flash: tuple[Spelling, ...]
    optimizers: tuple[Spelling, ...]
    recompute: tuple[Spelling, ...]
    precisions: tuple[Spelling, ...]
    offload: tuple[Spelling, ...]
    everywhere: tuple[When, ...]
    kinds: tuple[Kind, ...]


@cache
def load_kinds() -> Kinds:
    """The conventions the package ships."""
    text = (resources.files("planner.validate") / "kinds.yaml").read_text(encoding="utf-8")
    return Kinds.model_validate(yaml.safe_load(text))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def found(pattern: str, text: str) -> bool:
    """Whether a regular expression is found in a text, whatever the case."""
    return _pattern(pattern).search(text) is not None


def matches(row: Row, match: dict[str, str]) -> bool:
    """Whether every pattern is found in its column; ``!`` before one: must not be found."""
    return all(
        not found(pattern[1:], row.text(column))
        if pattern.startswith("!")
        else found(pattern, row.text(column))
        for column, pattern in match.items()
    )


def kind_of(row: Row, kinds: Kinds) -> Kind:
    """The first kind a row matches; the last entry matches everything."""
    return next(kind for kind in kinds.kinds if matches(row, kind.match))


def spelled(spellings: tuple[Spelling, ...], text: str) -> str | None:
    """What a cell means, None where no spelling matches."""
    return next((s.means for s in spellings if found(s.match, text)), None)


def changed(stack: Stack, time: dict[str, Any], memory: dict[str, Any]) -> Stack:
    """The stack with fields of its profiles replaced; mappings are merged.

    Raises
    ------
    ValueError
        If a profile has no such field.
    """
    sections = {"time": (stack.time, time), "memory": (stack.memory, memory)}
    update = {
        name: profile.model_copy(update=_merged(profile, fields))
        for name, (profile, fields) in sections.items()
        if fields
    }
    return stack.model_copy(update=update)


def _merged(profile: BaseModel, fields: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(fields) - set(type(profile).model_fields))
    if unknown:
        raise ValueError(f"a stack's profile has no field {', '.join(unknown)}")
    whole = {**profile.model_dump(exclude={"sources"})}
    for name, value in fields.items():
        old = whole[name]
        whole[name] = (
            {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
        )
    checked = type(profile).model_validate(
        {**whole, "sources": dict.fromkeys(whole, "as the row says")}
    )
    return {name: getattr(checked, name) for name in fields}
