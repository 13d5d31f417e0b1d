"""What is known when causes are ranked, and a cause as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

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
    def engine(self) -> str:
        """Who shards: deepspeed, fsdp, megatron, or none (plain data parallelism)."""
        if self.doc.kind == "megatron" or self.get("stack") == "megatron":
            return "megatron"
        if self.get("stack") == "fsdp2":
            return "fsdp"
        yaml = self.doc if self.doc.kind == "accelerate" else self.ctx.partner("accelerate")
        named = self.doc.get("deepspeed") or self.doc.get("deepspeed_config")
        if self.doc.kind in ("deepspeed", "plan") or self.ctx.partner("deepspeed") or named:
            return "deepspeed"
        if yaml is not None and yaml.get("distributed_type") == "DEEPSPEED":
            return "deepspeed"
        return "none"

    @property
    def mixture(self) -> bool:
        """Whether the model has experts, by its layers' class or its name."""
        names = (self.ctx.layer_class, self.flag("model_name_or_path"), self.flag("base_model"))
        text = " ".join(str(name).lower() for name in names if name)
        words = ("mixtral", "moe", "a3b", "a22b", "deepseek_v", "deepseek-v", "deepseekv", "x7b")
        return any(word in text for word in words) or bool(self.flag("num_experts"))

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
    """A cause as data: how likely it is for a case (0: not at all), and what to do.

    ``remedies`` and ``checks`` hold those in the words of one engine, where they differ.
    """

    cause: str
    likely: Callable[[Case], float]
    check: str
    remedy: str
    source: str
    engines: tuple[str, ...] = ()  # those it can happen under, () for all
    remedies: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    checks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def suits(self, case: Case) -> bool:
        """Whether the cause exists under the engine of a configuration."""
        return not self.engines or case.engine in self.engines
