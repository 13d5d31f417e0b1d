"""What is known when causes are ranked, and a cause as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.advisor.judgement import Judgement
from planner.advisor.settings import Settings
from planner.lint.context import Context
from planner.lint.document import Document, Value, as_int
from planner.lint.finding import Finding


@dataclass(frozen=True, slots=True)
class Case:
    """What is known when causes are ranked."""

    doc: Document
    ctx: Context
    settings: Settings
    judged: Judgement | None
    findings: tuple[Finding, ...]

    def get(self, name: str) -> Value:
        """A setting, None if unknown."""
        return self.settings.get(name)

    def found(self, *ids: str) -> bool:
        """Whether one of these rules found something."""
        return any(finding.id in ids for finding in self.findings)

    def part(self, name: str) -> float:
        """Share of a memory class at the predicted peak; a third where nothing is predicted."""
        if self.judged is None:
            return 1 / 3
        total = sum(self.judged.memory.values()) or 1
        return self.judged.memory.get(name, 0) / total

    def time(self, *names: str) -> float:
        """Share of parts of the predicted step; a fifth where nothing is predicted."""
        if self.judged is None or not self.judged.largest_parts:
            return 0.2
        return sum(p.share for p in self.judged.largest_parts if p.name in names)

    @property
    def offloads(self) -> bool:
        """Whether anything is offloaded."""
        tiers = (self.get("offload_optimizer"), self.get("offload_parameters"))
        return any(tier in ("cpu", "nvme") for tier in tiers)

    @property
    def stage(self) -> int:
        """ZeRO stage, 0 if unknown."""
        return as_int(self.get("zero_stage")) or 0

    @property
    def gpus(self) -> int:
        """Processes, 1 if unknown."""
        return self.ctx.world or self.settings.gpus or 1

    @property
    def nodes(self) -> int:
        """Nodes, as far as the GPUs given tell."""
        per_node = self.ctx.device.gpus_per_node if self.ctx.device else self.gpus
        return max(1, self.gpus // max(1, per_node))

    def key(self, *names: str) -> Value:
        """A key of the DeepSpeed file, in the file itself or beside it."""
        doc = self.doc if self.doc.kind == "deepspeed" else self.ctx.partner("deepspeed")
        return None if doc is None else doc.get(*names)

    def flag(self, name: str) -> Value:
        """A trainer flag or key of the same name."""
        return self.doc.get(name, default=self.ctx.flag(name))


@dataclass(frozen=True, slots=True)
class Known:
    """A cause as data: how likely it is for a case (0: not at all), and what to do."""

    cause: str
    likely: Callable[[Case], float]
    check: str
    remedy: str
    source: str
