"""The profile ``planner calibrate`` writes and every command reads with ``--profile``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from costmodels.memory_profile import MemoryProfile
from costmodels.stack import Stack, load_stack, stack_names
from costmodels.time_profile import FITTED, TimeProfile
from hardware_db import find
from planner.validate.kinds import changed
from planner.validate.run import Changes

SCHEMA_VERSION = "1.0"
MEMORY_FITTED = ("allocator_factor", "unexplained")
MOST_LOW = 0.999  # a measurement is more than nothing

Section = TypeVar("Section", TimeProfile, MemoryProfile)


class Strict(BaseModel):
    """Base of the parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Error(Strict):
    """Mean absolute error before and after, each run predicted without itself.

    ``low`` and ``high``: how far below and above its prediction a measurement lay, as shares of
    the prediction, in nine runs of ten and in all of fewer than twenty.
    """

    runs: int = Field(ge=1)
    before: float = Field(ge=0)
    after: float = Field(ge=0)
    cross_validated: bool  # False with one run, which nothing can check
    low: float | None = Field(default=None, ge=0, le=MOST_LOW)
    high: float | None = Field(default=None, ge=0)

    @property
    def bounds(self) -> tuple[float, float]:
        """Shares below and above a prediction; from the mean error where nothing else is told.

        A prediction that is off by a share e of the measurement has it within ``1 / (1 + e)`` and
        ``1 / (1 - e)`` of itself.
        """
        e = min(self.after, MOST_LOW)
        low = self.after / (1 + self.after) if self.low is None else self.low
        return low, e / (1 - e) if self.high is None else self.high


class StackProfile(Strict):
    """Constants of one stack; those left out stay as shipped."""

    gpus: tuple[str, ...] = ()  # on which it was measured
    time: dict[str, float] = {}
    memory: dict[str, float] = {}
    time_error: Error | None = None
    memory_error: Error | None = None


class Profile(Strict):
    """A whole profile."""

    schema_version: str = SCHEMA_VERSION
    stacks: dict[str, StackProfile]


def covering(stack: str, profile: Profile, gpu: str) -> StackProfile | None:
    """What a profile has for a stack on a GPU, by the GPU's id; None for nothing."""
    own = profile.stacks.get(stack)
    if own is None or (own.gpus and gpu not in {gpu_id(name) for name in own.gpus}):
        return None
    return own


def gpu_id(name: str) -> str:
    """The database's id of a GPU; a name it does not know is its own."""
    try:
        return find(name)[1]
    except ValueError:
        return name


def apply_profile(stack: Stack, profile: Profile, gpu: str) -> Stack:
    """The stack with the constants of a profile, where it has any for it on that GPU.

    Intervals grow to the profile's own errors where those are larger.

    Parameters
    ----------
    stack : Stack
        Any stack.
    profile : Profile
        As ``load_profile`` returns it.
    gpu : str
        Id of the GPU the stack is to run on.

    Returns
    -------
    Stack
        A copy, or the stack itself where the profile was not fitted to it or not on that GPU.
    """
    own = covering(stack.name, profile, gpu)
    if own is None:
        return stack
    return stack.model_copy(
        update={
            "time": _with(stack.time, {**own.time, **_intervals(stack.time, own.time_error)}),
            "memory": _with(
                stack.memory, {**own.memory, **_intervals(stack.memory, own.memory_error)}
            ),
        }
    )


def _with(section: Section, update: dict[str, float]) -> Section:
    return section.model_copy(update=update) if update else section


def _intervals(section: TimeProfile | MemoryProfile, error: Error | None) -> dict[str, float]:
    """Interval bounds that are narrower than the error left after calibration."""
    wide = _bounds(section, error)
    return {name: value for name, value in wide.items() if value != getattr(section, name)}


def _bounds(section: TimeProfile | MemoryProfile, error: Error | None) -> dict[str, float]:
    """The interval bounds of a stack, or those of the error left where they are wider."""
    if error is None:
        return {}
    low, high = error.bounds
    return {
        "interval_low": max(section.interval_low, low),
        "interval_high": max(section.interval_high, high),
    }


def profile_note(stack: str, profile: Profile, gpu: str, name: str) -> str:
    """One line: what a profile of that name means for a stack on a GPU."""
    own = covering(stack, profile, gpu)
    if own is None:
        return f"profile {name} has nothing for {gpu} on {stack}: constants as shipped"
    parts = [
        f"{what} {100 * error.before:.1f} -> {100 * error.after:.1f} %, {error.runs} runs"
        for what, error in (("time", own.time_error), ("memory", own.memory_error))
        if error is not None
    ]
    told = f" ({'; '.join(parts)})" if parts else ""
    fields = ", ".join((*own.time, *own.memory)) or "constants as shipped"
    return f"profile {name} for {gpu} on {stack}: {fields}{told}"


def load_profile(path: Path) -> Profile:
    """Read a profile.

    Raises
    ------
    ValueError
        In one line: unreadable file, no profile, unknown stack or constant, value out of range.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"{path}: not YAML; expected a profile of planner calibrate") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: not a profile of planner calibrate")
    try:
        profile = Profile.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{path}: not a profile: {place}: {problem['msg']}") from None
    _check(path, profile)
    return profile


def _check(path: Path, profile: Profile) -> None:
    if profile.schema_version != SCHEMA_VERSION:
        raise ValueError(f"{path}: schema_version must be {SCHEMA_VERSION!r}")
    for name, own in profile.stacks.items():
        if name not in stack_names():
            raise ValueError(f"{path}: unknown stack {name!r}")
        for section, known, fields in (
            ("time", FITTED, own.time),
            ("memory", MEMORY_FITTED, own.memory),
        ):
            for field in fields:
                if field not in known:
                    raise ValueError(
                        f"{path}: {name}.{section}: no constant {field!r}: "
                        f"expected some of {', '.join(known)}"
                    )
        try:
            changed(load_stack(name), own.time, own.memory)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(map(str, problem["loc"]))
            raise ValueError(f"{path}: {name}.{place}: {problem['msg']}") from None


def profile_text(profile: Profile) -> str:
    """The file's text; the same profile gives the same bytes."""
    data = profile.model_dump(mode="json", exclude_none=True)
    return "# Written by planner calibrate; used with --profile.\n" + yaml.safe_dump(
        data, sort_keys=True, allow_unicode=True
    )


def changes_of(own: StackProfile, stack: Stack) -> Changes:
    """What a profile changes in a stack, as the changes of a run."""
    sections = (
        ("memory", {**own.memory, **_bounds(stack.memory, own.memory_error)}),
        ("time", {**own.time, **_bounds(stack.time, own.time_error)}),
    )
    return tuple(
        (section, field, json.dumps(value))
        for section, fields in sections
        for field, value in sorted(fields.items())
    )
