"""The schema of the YAML files, ours and the user's: every value with unit, kind and source.

A user's file holds ``gpus`` and ``nodes``, each a list of the same entries as in ``gpus/*.yaml``
and ``nodes/*.yaml``. What has a default in ``measured/defaults.yaml`` may be left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hardware_db.schema_errors import one_line
from hardware_db.units import BYTES, FLOPS, RATES, UNITS
from hardware_db.user_yaml import load_unique

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Quantity(_Strict):
    """A value that can be traced."""

    value: float | bool | str | list[str]
    unit: str
    kind: Literal["datasheet", "measured", "derived", "assumed"]
    source: str = Field(min_length=3)

    @field_validator("unit")
    @classmethod
    def _known(cls, unit: str) -> str:
        if unit not in UNITS:
            raise ValueError(f"unknown unit {unit!r}, expected one of {', '.join(sorted(UNITS))}")
        return unit


class Number(Quantity):
    """A finite number, not negative."""

    value: float = Field(ge=0, allow_inf_nan=False)


class Positive(Quantity):
    """A finite number above zero."""

    value: float = Field(gt=0, allow_inf_nan=False)


class Fraction(Quantity):
    """A share, above zero and at most 1.2 (boost clocks exceed nominal ones)."""

    value: float = Field(gt=0, le=1.2)
    unit: Literal["-"]


class Count(Quantity):
    """A whole number, at least one."""

    value: int = Field(ge=1)
    unit: Literal["-"]


class Words(Quantity):
    """A list of words."""

    value: list[str]
    unit: Literal["-"]


class Flag(Quantity):
    """Yes or no."""

    value: bool
    unit: Literal["-"]


class Text(Quantity):
    """A word."""

    value: str
    unit: Literal["-"]


class AttentionReference(_Strict):
    """Attention rates of another GPU, times a factor."""

    table: Literal["a100-sxm4-80g", "h100-sxm5-80g", "gb200-186g"]
    scale: Positive


class GpuFile(_Strict):
    """One GPU."""

    id: str = Field(min_length=1)
    short: str = Field(min_length=1)
    name: str = Field(min_length=1)
    aliases: list[str] = []
    vendor: str
    arch: str
    form_factor: str
    reference_nodes: list[str] = []
    sources: list[str] = []
    memory: Positive
    memory_bandwidth: Positive
    flops: dict[Precision, Positive] = Field(min_length=1)
    compute_capability: Text | None = None
    memory_efficiency: Fraction | None = None
    sms: Positive | None = None
    l2: Positive | None = None
    link_bandwidth: Positive | None = None
    pcie_bandwidth: Positive | None = None
    bus_bandwidth: Positive | None = None
    all_reduce_table: Literal["nvlink3-a100", "nvlink4-h200", "nvlink5-b200"] | None = None
    launch_latency: Positive | None = None
    trains_in: Words | None = None
    flash: Words | None = None
    memory_efficient_attention: Flag | None = None
    launchable: Flag | None = None
    gcds: Count | None = None
    gemm_epsilon: Fraction | None = None
    gemm_beta: Number | None = None
    gemm_gamma: Number | None = None
    gemm_k0: Number | None = None
    gemm_epsilon_fp8: Fraction | None = None
    attention: list[AttentionReference] | None = None
    price_per_hour: Positive | None = None


class NodeFile(_Strict):
    """One kind of node."""

    id: str = Field(min_length=1)
    short: str = Field(min_length=1)
    name: str = Field(min_length=1)
    aliases: list[str] = []
    provider: str
    gpu: str
    topology: str
    fabric: str
    cpu: str | None = None
    sources: list[str] = []
    gpus: Count
    network_bandwidth: Positive
    host_memory: Positive
    intra_bandwidth: Positive | None = None
    p2p_bandwidth: Positive | None = None
    network_efficiency: Fraction | None = None
    cpu_cores: Count | None = None
    cpu_memory_bandwidth: Positive | None = None
    cpu_adam_time: Positive | None = None
    pcie_bandwidth: Positive | None = None
    nvme_count: Number | None = None
    nvme_drive_capacity: Positive | None = None
    nvme_drive_read: Positive | None = None
    nvme_drive_write: Positive | None = None
    nvme_read: Positive | None = None
    nvme_write: Positive | None = None
    price_per_hour: Positive | None = None


_DIMENSION: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("memory", "host_memory", "l2", "nvme_drive_capacity"), tuple(BYTES)),
    "launch_latency": ("s", "ms", "us"),
    "cpu_adam_time": ("s/1e9 parameters",),
    "price_per_hour": ("USD/h",),
    "flops": tuple(FLOPS),
}


class HardwareFile(_Strict):
    """A user's file."""

    gpus: list[GpuFile] = []
    nodes: list[NodeFile] = []

    @model_validator(mode="after")
    def _something(self) -> HardwareFile:
        if not self.gpus and not self.nodes:
            raise ValueError("defines neither gpus nor nodes")
        return self


def read_hardware_file(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A user's GPUs and nodes, as plain mappings.

    Raises
    ------
    ValueError
        One line naming the file and the key, if it cannot be read or does not fit the schema.
    """
    try:
        raw = load_unique(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{path} is not YAML: {text}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path} must be a mapping with gpus and nodes")
    try:
        HardwareFile.model_validate(raw)
    except ValidationError as error:
        raise ValueError(f"{path}: {one_line(error, raw)}") from None
    gpus, nodes = raw.get("gpus") or [], raw.get("nodes") or []
    for entry in (*gpus, *nodes):
        _check_dimensions(path, entry)
    return gpus, nodes


def _check_dimensions(path: Path, entry: dict[str, Any]) -> None:
    for key, found in entry.items():
        values = found.items() if key == "flops" else [(key, found)]
        for name, value in values:
            if isinstance(value, dict) and not right_unit(key, value["unit"]):
                raise ValueError(
                    f"{path}: {entry['id']}.{name}: {value['unit']} is not a unit of {key}, "
                    f"expected one of {', '.join(sorted(units_of(key)))}"
                )


def units_of(key: str) -> frozenset[str]:
    """Units a key may have."""
    if key in _DIMENSION:
        return frozenset(_DIMENSION[key])
    if key.endswith(("bandwidth", "_read", "_write")):
        return frozenset(RATES)
    return frozenset({"-"})


def right_unit(key: str, unit: str) -> bool:
    """Whether a key may have that unit."""
    return unit in units_of(key)
