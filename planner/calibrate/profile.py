"""The profile ``planner calibrate`` writes and every command reads with ``--profile``."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from costmodels.stack import Stack, load_stack, stack_names
from costmodels.time_profile import FITTED
from planner.validate.kinds import changed
from planner.validate.run import Changes

SCHEMA_VERSION = "1.0"
MEMORY_FITTED = ("allocator_factor", "unexplained")


class Strict(BaseModel):
    """Base of the parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Error(Strict):
    """Mean absolute error before and after, each run predicted without itself."""

    runs: int = Field(ge=1)
    before: float = Field(ge=0)
    after: float = Field(ge=0)
    cross_validated: bool  # False with one run, which nothing can check


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


def apply_profile(stack: Stack, profile: Profile) -> Stack:
    """The stack with the constants of a profile, where it has any for it.

    Parameters
    ----------
    stack : Stack
        Any stack.
    profile : Profile
        As ``load_profile`` returns it.

    Returns
    -------
    Stack
        A copy, or the stack itself where the profile says nothing about it.
    """
    own = profile.stacks.get(stack.name)
    if own is None:
        return stack
    update = {
        "time": stack.time.model_copy(update=dict(own.time)),
        "memory": stack.memory.model_copy(update=dict(own.memory)),
    }
    return stack.model_copy(update=update)


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


def changes_of(profile: Profile) -> dict[str, Changes]:
    """Fields of every stack as the changes of a run."""
    return {
        name: tuple(
            (section, field, json.dumps(value))
            for section, fields in (("memory", own.memory), ("time", own.time))
            for field, value in sorted(fields.items())
        )
        for name, own in profile.stacks.items()
    }
