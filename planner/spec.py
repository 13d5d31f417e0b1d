"""What the user asks: one job, from the command line, a ``job.yaml`` or Python alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from planner.axes import AXES, Constraint, parse_bound, parse_fix, parse_forbid

DEFAULT_SEQ_LEN = 4096
DEFAULT_GLOBAL_BATCH = 512  # sequences

Optimizer = Literal["sgd", "momentum", "adam", "adamw", "adafactor", "adam8bit", "lion", "muon"]
Precision = Literal["auto", "fp32", "tf32", "fp16", "bf16", "fp8"]
StackName = Literal["auto", "deepspeed", "megatron-deepspeed", "megatron", "fsdp2"]

# Every one-value axis constraint, in the spelling a user types.
FixMap = Annotated[dict[str, tuple[int | str, ...]], BeforeValidator(parse_fix)]
BoundMap = Annotated[dict[str, int], BeforeValidator(parse_bound)]
ForbidMap = Annotated[dict[str, tuple[int | str, ...]], BeforeValidator(parse_forbid)]


class JobSpec(BaseModel):
    """One planning job. Text fields take the forms the command line takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    model: Annotated[str, Field(min_length=1)]
    gpus: Annotated[str, Field(min_length=1)]
    seq_len: Annotated[int, Field(gt=0, le=1 << 24)] | None = None
    global_batch: Annotated[int, Field(gt=0, le=1 << 24)] | None = None  # sequences a step
    global_tokens: Annotated[int, Field(gt=0, le=1 << 40)] | None = None  # tokens a step
    optimizer: Optimizer = "adamw"
    precision: Precision = "auto"
    stack: StackName = "auto"
    grad_dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    cross_entropy: Literal["auto", "eager", "fused", "chunked"] = "auto"
    tuning: Literal["full"] = "full"  # LoRA is not planned yet
    profile: Path | None = None  # written by calibrate
    # hardware overrides, e.g. "600GB/s", "400Gb/s", "2TB"
    hardware: Path | None = None
    intra_bandwidth: str | None = None
    inter_bandwidth: str | None = None
    host_memory: str | None = None
    nvme: str | None = None
    memory_limit: str | None = None
    # search
    fix: FixMap = {}
    min: BoundMap = {}
    max: BoundMap = {}
    forbid: ForbidMap = {}
    priority: Literal["balanced", "strict", "fastest"] = "balanced"
    top: Annotated[int, Field(ge=0, le=100)] = 3
    time_limit: Annotated[float, Field(gt=0, le=86400)] = 60.0
    allow_idle: bool = False
    accept_tight: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> JobSpec:
        if self.global_batch is not None and self.global_tokens is not None:
            raise ValueError("give global_batch or global_tokens, not both")
        for axis, values in self.fix.items():
            low, high = self.min.get(axis), self.max.get(axis)
            for value in values:
                if isinstance(value, int) and (
                    (low is not None and value < low) or (high is not None and value > high)
                ):
                    raise ValueError(f"fix {axis}={value} contradicts min/max of {axis}")
            if set(values) <= set(self.forbid.get(axis, ())):
                raise ValueError(f"{axis}={_join(values)} is both fixed and forbidden")
        for axis, low in self.min.items():
            if axis in self.max and low > self.max[axis]:
                raise ValueError(f"min {axis}={low} is above max {axis}={self.max[axis]}")
        if self.precision != "auto" and self.precision not in self.fix.get(
            "precision", (self.precision,)
        ):
            raise ValueError(f"precision={self.precision} contradicts fix precision")
        return self

    def constraint(self, axis: str) -> Constraint:
        """What the user demands of one axis, all forms together."""
        return Constraint(
            axis=axis,
            allowed=self.fix.get(axis),
            low=self.min.get(axis),
            high=self.max.get(axis),
            forbidden=self.forbid.get(axis, ()),
        )

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """All constraints that bind anything."""
        return tuple(c for c in map(self.constraint, AXES) if c.binds)


def _join(values: tuple[int | str, ...]) -> str:
    return ",".join(str(v) for v in values)


def make_spec(fields: dict[str, Any], where: str = "job") -> JobSpec:
    """A validated job from plain fields; unset (None) fields take their defaults.

    Raises
    ------
    ValueError
        One line naming the field, what it was given, and what would be accepted.
    """
    try:
        return JobSpec.model_validate({k: v for k, v in fields.items() if v is not None})
    except ValidationError as error:
        raise ValueError(f"{where}: {first_error(error)}") from None


def first_error(error: ValidationError) -> str:
    """The first problem pydantic found, as one line."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(p) for p in problem["loc"])
    text = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        text = f"unknown field; expected one of {', '.join(sorted(JobSpec.model_fields))}"
    elif problem["type"] not in ("value_error", "missing"):
        given = problem.get("input")
        text = f"{text} (got {given!r})" if isinstance(given, str | int | float | bool) else text
    text = " ".join(text.split())
    return f"{place}: {text}" if place else text


def read_job(path: Path) -> dict[str, Any]:
    """The fields of a ``job.yaml``.

    Raises
    ------
    ValueError
        If the file cannot be read, is not UTF-8 YAML, or is not a mapping.
    """
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text; expected a YAML job file") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"{path}: not valid YAML{line}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{path}: not valid YAML (a value cannot be read)") from None
    if not isinstance(data, dict) or not all(isinstance(k, str) for k in data):
        raise ValueError(f"{path}: expected a mapping of job fields such as 'model: 13b'")
    return {key.replace("-", "_"): value for key, value in data.items()}
