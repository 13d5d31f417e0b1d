"""What ``advise`` returns: one report per file."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from planner.advisor.judgement import Judgement
from planner.advisor.settings import Setting
from planner.lint.finding import Edit, Finding, Severity

SCHEMA_VERSION = "1.0"
FAIL_ON = ("error", "warning", "info", "tight", "none")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEdits(_Frozen):
    """Edits of one file."""

    file: str
    edits: tuple[Edit, ...]


class Advice(_Frozen):
    """One better plan, as a patch of the user's files. Memory is per GPU."""

    title: str
    changes: dict[str, int | str]
    files: tuple[FileEdits, ...]
    flags: tuple[str, ...]  # what no file at hand can hold
    dashed: bool = False  # the script spells its flags with dashes inside
    verdict: str
    peak_memory_bytes: int
    memory_saved_bytes: int
    step_time_s: float | None
    time_saved_s: float | None
    host_memory_bytes: int  # per node, training
    buys: str
    costs: str


class Cause(_Frozen):
    """One likely cause. ``likelihood`` ranks causes of this file only; it is no probability."""

    rank: int
    likelihood: float
    cause: str
    check: str
    remedy: str
    source: str


class FilledAuto(_Frozen):
    """One ``auto`` and what it becomes; ``value`` is None where that needs flags not given."""

    file: str
    key: str
    value: Any = None
    by: str


class FileReport(_Frozen):
    """All there is to say about one file.

    ``level`` is the worst severity found, ``ok`` or ``unreadable``. ``error`` holds the one line
    that says why a file could not be read.
    """

    file: str
    kind: str = ""
    context: str = ""
    context_inferred: bool = False
    deepspeed_version: str = ""
    level: str
    error: str = ""
    findings: tuple[Finding, ...] = ()
    filled: tuple[FilledAuto, ...] = ()
    settings: dict[str, Setting] = {}
    unknown: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    judgement: Judgement | None = None
    advice: tuple[Advice, ...] = ()
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity | None:
        """The worst severity found."""
        return self.level if self.level in ("error", "warning", "info") else None  # type: ignore[return-value]


class Report(_Frozen):
    """The reports of all files of a call."""

    schema_version: str = SCHEMA_VERSION
    files: tuple[FileReport, ...]

    def exit_code(self, fail_on: str = "error") -> int:
        """0 clean, 1 findings at or above ``fail_on`` or does not fit, 2 unreadable.

        Raises
        ------
        ValueError
            If ``fail_on`` is none of :data:`FAIL_ON`.
        """
        if fail_on not in FAIL_ON:
            raise ValueError(f"fail_on {fail_on!r}: expected one of {', '.join(FAIL_ON)}")
        if any(report.error for report in self.files):
            return 2
        if fail_on == "none":
            return 0
        level = "error" if fail_on == "tight" else fail_on
        bad = FAIL_ON[: FAIL_ON.index(level) + 1]
        if any(report.level in bad for report in self.files):
            return 1
        judged = [report.judgement for report in self.files if report.judgement is not None]
        if any(not one.fits for one in judged):
            return 1
        return int(fail_on == "tight" and any(one.verdict == "tight" for one in judged))
