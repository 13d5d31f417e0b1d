"""Patched copies of the files a report has patches for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.advisor.context import context_of
from planner.advisor.core import all_findings, cluster_of, options_of
from planner.advisor.readers import Reading
from planner.advisor.report import Report
from planner.lint import Finding


def write_patched(report: Report, plan: int = 1, **options: Any) -> tuple[Path, ...]:
    """Write the patched copy of every file a report has patches for, beside the original.

    :func:`write_patched_saying` returns the remarks too.

    ``options`` are those of :func:`advise`.

    Raises
    ------
    ValueError
        If a file cannot be patched or written; one line.
    """
    return write_patched_saying(report, plan, **options)[0]


def write_patched_saying(
    report: Report, plan: int = 1, **options: Any
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """:func:`write_patched`, and a line for all that was not written, or written anew."""
    from planner.advisor.apply import patched_path, patched_texts, remarks

    chosen = options_of(**options)
    cluster = cluster_of(chosen.gpus, chosen.fields) if chosen.gpus else None

    def findings_of(reading: Reading) -> tuple[Finding, ...]:
        return all_findings(reading, context_of(reading, chosen, cluster))

    texts: dict[Path, str] = {}
    said: list[str] = []
    for one in report.files:
        own = {} if one.error else patched_texts(one, findings_of, plan)
        texts |= own
        said += remarks(one, plan, own)
    written = []
    for path, text in texts.items():
        if not path.is_file():
            continue  # a section, or a file that the script itself writes
        target = patched_path(path)
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{target}: cannot write: {error.strerror or error}") from None
        written.append(target)
    return tuple(written), tuple(said)
