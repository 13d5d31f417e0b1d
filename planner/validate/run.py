"""What a row of a table trained: everything a prediction needs, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodels.architecture import Architecture
from hardware_db import Cluster
from planner.validate.kinds import Kind
from planner.validate.table import Row

Changes = tuple[tuple[str, str, str], ...]  # section, field, value as JSON


@dataclass(frozen=True, slots=True)
class Machine:
    """The cluster of a run, as far as a prediction depends on it."""

    gpu: str
    nodes: int
    gpus_per_node: int
    network: float | None  # a node's, None: as the reference node [byte/s]
    pair: float  # between two GPUs of a node [byte/s]
    memory: float | None  # of one GPU, None: as the database [byte]


@dataclass(frozen=True, slots=True)
class Run:
    """One row with all its conventions applied.

    ``layers``: of each stage. ``group``: runs between which a planner would choose, and
    which --logo leaves out together. ``assumed``: columns whose cell was empty and filled by a
    default of its kind.
    """

    row: Row
    kind: Kind
    source: str
    group: tuple[str, ...]
    architecture: Architecture
    machine: Machine
    cluster: Cluster
    stack: str
    changes: Changes
    precision: str
    attention: str
    optimizer: str
    seq_len: int
    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    micro_batch: int
    grad_accum: int
    virtual_stages: int
    etp: int
    zero_stage: int
    sequence_parallel: int
    offload_optimizer: int
    cross_entropy: str
    dropout: float
    offload_parameters: int
    recompute: str
    mix: tuple[tuple[str, int], ...]  # layers at each granularity, where not all at one
    layers: tuple[int, ...]
    n_gpus: int
    time: float | None  # measured [s]
    memory: float | None  # measured [byte]
    memory_kind: str
    outcome: str  # ok, oom, crashed_or_oom or empty
    time_skip: str
    memory_skip: str
    comparable: bool = True  # counts in intervals
    report: str = "worst"  # whose memory the row prints, or "first": of the first stage
    stage: int | None = None  # whose memory the row prints, where it names a rank
    apart: str = ""  # what sets the spread of its time apart from that of its kind
    assumed: tuple[str, ...] = field(default=())

    def spread(self, quantity: str) -> str:
        """The runs whose residuals say how sure a prediction of it is."""
        own = self.apart if quantity == "time" else ""
        return f"{self.kind.name}, {own}" if own else self.kind.name

    @property
    def sequences(self) -> int:
        """Sequences of a step."""
        return self.dp * self.micro_batch * self.grad_accum

    @property
    def key(self) -> tuple[object, ...]:
        """What runs must share to be predicted as one array."""
        return (
            self.architecture,
            self.machine,
            self.stack,
            self.changes,
            self.precision,
            self.attention,
            self.optimizer,
            self.cross_entropy,
            self.dropout,
            self.offload_optimizer,
            self.offload_parameters,
            self.seq_len,
            self.pp,
            self.layers,
            self.recompute,
            self.mix,
        )


class Skip(Exception):
    """A row that cannot be predicted, with the reason in a few words."""
