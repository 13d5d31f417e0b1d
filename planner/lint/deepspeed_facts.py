"""A DeepSpeed file as the engine will see it: ``auto`` filled, aliases merged, defaults known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planner.lint.context import Context
from planner.lint.deepspeed_keys import SECTIONS, canonical
from planner.lint.deepspeed_schema import version_tuple
from planner.lint.deepspeed_words import PIPELINE_DEGREE_KEYS, TENSOR_DEGREE_KEYS
from planner.lint.document import Document, Path, Value, as_bool, as_int, as_number, walk

AUTO = "auto"
BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_ZERO = ("zero_optimization",)

# Defaults of transformers.TrainingArguments (transformers 5.24.0, training_args.py).
TRAINER_DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "bf16": False,
    "fp16": False,
}


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of one ``auto``: the value it takes (None if unknown) and who decides."""

    path: Path
    value: Any
    by: str


@dataclass(frozen=True)
class DeepSpeedFacts:
    """A DeepSpeed document in its context."""

    doc: Document
    ctx: Context

    # --- what surrounds the file ---

    @cached_property
    def version(self) -> tuple[int, ...]:
        """The DeepSpeed release it is read by."""
        return version_tuple(self.ctx.deepspeed_version)

    def trainer(self, name: str) -> Value:
        """A trainer argument: as given, else its default if any flags are known, else None."""
        if self.ctx.trainer is None:
            return None
        value = self.ctx.trainer.get(name)
        return TRAINER_DEFAULTS.get(name) if value is None else value

    # --- values ---

    @cached_property
    def autos(self) -> tuple[Filled, ...]:
        """Every ``auto`` of the file and what it becomes."""
        paths = [path for path, value in walk(self.doc.data) if value == AUTO and path]
        return tuple(self._filled(path) for path in paths)

    @cached_property
    def _auto_values(self) -> dict[Path, Filled]:
        return {filled.path: filled for filled in self.autos}

    def _filled(self, path: Path) -> Filled:
        if self.ctx.hugging_face:
            hf = _hf_value(self, path)
            if hf is not None:
                return hf
        return Filled(path, _default(path), "DeepSpeed's default")

    def value(self, *path: str) -> Value:
        """The value in force at a path as spelt in the file; None if absent or unknown."""
        if path in self._auto_values:
            return self._auto_values[path].value
        return self.doc.get(*path)

    def zero_path(self, name: str) -> Path:
        """Path of a zero_optimization key as the file spells it, else its usual spelling."""
        for spelling in _spellings(name):
            if self.doc.has(*_ZERO, spelling):
                return (*_ZERO, spelling)
        return (*_ZERO, _spellings(name)[-1])

    def zero_given(self, name: str) -> bool:
        """Whether the file holds the key, under either name."""
        return self.doc.has(*self.zero_path(name))

    def zero(self, name: str) -> Value:
        """A zero_optimization value in force, defaults included; None if unknown."""
        path = self.zero_path(name)
        if self.zero_given(name):
            return self.value(*path)  # type: ignore[arg-type]
        return SECTIONS[_ZERO].keys[name].default

    def zero_count(self, name: str) -> float | None:
        """A zero_optimization number in force; None if unknown or not a number."""
        return as_number(self.zero(name))

    @cached_property
    def stage(self) -> int:
        """ZeRO stage; 0 when none is given."""
        section = self.doc.get(*_ZERO)
        if section is True:  # the oldest form of the section
            return 1
        given = self.doc.get(*_ZERO, "stage")
        if given == AUTO and self.ctx.framework == "accelerate":
            yaml = self.ctx.partner("accelerate")
            given = yaml.get("deepspeed_config", "zero_stage", default=2) if yaml else 2
        stage = as_int(given)
        return stage if stage is not None and 0 <= stage <= 3 else 0

    def device(self, which: str) -> str:
        """Device of offload_optimizer or offload_param: none, cpu or nvme."""
        section = self.doc.get(*_ZERO, which)
        if isinstance(section, Mapping):
            device = self.value(*_ZERO, which, "device")
            return device if device in ("cpu", "nvme") else "none"
        old = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_param"}[which]
        return "cpu" if as_bool(self.doc.get(*_ZERO, old)) else "none"

    def enabled(self, section: str) -> bool | None:
        """Whether fp16, bf16, … is on; None if it depends on flags that are unknown."""
        given = self.doc.section(section)
        if not given and section == "bf16":
            given = self.doc.section("bfloat16")
        if "enabled" not in given:
            return False
        if given["enabled"] == AUTO:
            return as_bool(self.value(section, "enabled"))
        return bool(as_bool(given["enabled"]))

    @cached_property
    def half(self) -> bool | None:
        """Whether anything runs in half precision; None if unknown."""
        if self.enabled("torch_autocast"):
            return True
        both = (self.enabled("fp16"), self.enabled("bf16"))
        if True in both:
            return True
        return None if None in both else False

    @cached_property
    def pp(self) -> int:
        """Pipeline stages, where the file says so."""
        sizes = [as_int(self.doc.get(key)) for key in PIPELINE_DEGREE_KEYS]
        return max(1, *[s or 1 for s in sizes])

    @cached_property
    def tp(self) -> int:
        """Tensor-parallel ranks, where the file says so."""
        sizes = [as_int(self.doc.get(key)) for key in TENSOR_DEGREE_KEYS]
        sizes.append(as_int(self.doc.get("tensor_parallel", "autotp_size")))
        sizes.append(as_int(self.doc.get("tensor_parallel", "tp", "tp_size")))
        return max(1, *[s or 1 for s in sizes])

    @cached_property
    def autotp(self) -> bool:
        """Whether DeepSpeed splits tensors itself."""
        return self.doc.has("tensor_parallel") and self.tp > 1

    @cached_property
    def data_ranks(self) -> int | None:
        """Ranks the batch is divided over; None if the number of processes is unknown."""
        plan = self.ctx.partner("plan")
        if plan is not None:  # the degrees are the plan's; the file does not hold them
            return as_int(plan.get("plan", "dp", default=plan.get("dp")))
        if self.ctx.world is None:
            return None
        split = self.pp * (1 if self.autotp else self.tp)
        split *= as_int(self.doc.get("sequence_parallel_size")) or 1
        return self.ctx.world // split if self.ctx.world % split == 0 else None

    def batch(self, name: str) -> int | None:
        """A batch key as a whole number in force; None if absent or unknown."""
        value = self.value(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @cached_property
    def optimizer_type(self) -> str | None:
        """Name in the optimizer section."""
        name = self.doc.get("optimizer", "type")
        return name if isinstance(name, str) else None


def _spellings(name: str) -> tuple[str, ...]:
    key = SECTIONS[_ZERO].keys[name]
    return (name, key.alias) if key.alias else (name,)


def _default(path: Path) -> Value:
    section = SECTIONS.get(tuple(str(p) for p in path[:-1]))
    name = canonical(tuple(str(p) for p in path[:-1]), str(path[-1]))
    if section is None or name is None or not section.strict:
        return AUTO
    return section.keys[name].default


def _hf_value(facts: DeepSpeedFacts, path: Path) -> Filled | None:
    """What Hugging Face puts at a path (transformers, integrations/deepspeed.py), if anything."""
    trainer, world = facts.trainer, facts.ctx.world
    hidden = facts.ctx.hidden_size
    key = ".".join(map(str, path))
    micro, accum = trainer("per_device_train_batch_size"), trainer("gradient_accumulation_steps")
    from_flags: dict[str, tuple[Any, str]] = {
        "train_micro_batch_size_per_gpu": (micro, "--per_device_train_batch_size"),
        "gradient_accumulation_steps": (accum, "--gradient_accumulation_steps"),
        "train_batch_size": (
            micro * accum * world
            if isinstance(micro, int) and isinstance(accum, int) and world
            else None,
            "processes x micro-batch x accumulation",
        ),
        "gradient_clipping": (trainer("max_grad_norm"), "--max_grad_norm"),
        "optimizer.params.lr": (trainer("learning_rate"), "--learning_rate"),
        "optimizer.params.betas": (
            [trainer("adam_beta1"), trainer("adam_beta2")] if facts.ctx.trainer else None,
            "--adam_beta1 and --adam_beta2",
        ),
        "optimizer.params.eps": (trainer("adam_epsilon"), "--adam_epsilon"),
        "optimizer.params.weight_decay": (trainer("weight_decay"), "--weight_decay"),
        "scheduler.params.warmup_min_lr": (0, "Hugging Face"),
        "scheduler.params.warmup_max_lr": (trainer("learning_rate"), "--learning_rate"),
        "scheduler.params.total_num_steps": (None, "the number of steps"),
        "scheduler.params.warmup_num_steps": (None, "--warmup_steps"),
        "fp16.enabled": (as_bool(trainer("fp16")), "--fp16"),
        "bf16.enabled": (as_bool(trainer("bf16")), "--bf16"),
        "zero_optimization.reduce_bucket_size": (
            hidden * hidden if hidden else None,
            "hidden size squared",
        ),
    }
    if facts.stage == 3:
        from_flags["zero_optimization.stage3_prefetch_bucket_size"] = (
            int(0.9 * hidden * hidden) if hidden else None,
            "0.9 x hidden size squared",
        )
        from_flags["zero_optimization.stage3_param_persistence_threshold"] = (
            10 * hidden if hidden else None,
            "10 x hidden size",
        )
    if facts.ctx.framework == "accelerate":
        yaml = facts.ctx.partner("accelerate")
        plugin = yaml.section("deepspeed_config") if yaml else {}
        mixed = yaml.get("mixed_precision") if yaml else None
        from_flags |= {
            "zero_optimization.stage": (plugin.get("zero_stage", 2), "zero_stage"),
            "zero_optimization.offload_optimizer.device": (
                plugin.get("offload_optimizer_device", "none"),
                "offload_optimizer_device",
            ),
            "zero_optimization.offload_param.device": (
                plugin.get("offload_param_device", "none"),
                "offload_param_device",
            ),
            "zero_optimization.stage3_gather_16bit_weights_on_model_save": (
                plugin.get("zero3_save_16bit_model", False),
                "zero3_save_16bit_model",
            ),
        }
        if facts.ctx.trainer is None:
            from_flags |= {
                "fp16.enabled": (None if mixed is None else mixed == "fp16", "mixed_precision"),
                "bf16.enabled": (
                    None if mixed is None else mixed in ("bf16", "fp8"),
                    "mixed_precision",
                ),
            }
    if key not in from_flags:
        return None
    value, by = from_flags[key]
    return Filled(path, value, by)
