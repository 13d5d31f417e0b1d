"""``--apply``: the patched file beside the original."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from planner.advisor.edit import apply_edits
from planner.advisor.readers import Reading, read_file, read_text
from planner.advisor.report import FileReport
from planner.advisor.source import Source
from planner.lint import Finding
from planner.lint.document import Document
from planner.lint.finding import Edit

FindingsOf = Callable[[Reading], tuple[Finding, ...]]  # in the context of the report
ROUNDS = 4  # a fix may bring another finding to light


def patched_path(path: Path) -> Path:
    """Where the patched copy of a file goes.

    >>> patched_path(Path("run/ds_config.json")).name
    'ds_config.patched.json'
    """
    return path.with_name(f"{path.stem}.patched{path.suffix}")


def patches(report: FileReport, number: int = 1) -> dict[str, tuple[Edit, ...]]:
    """Edits by file: the fixes of errors and warnings, and advice ``number`` where it must.

    Advice is applied only to a configuration that does not fit.
    """
    out: dict[str, list[Edit]] = {}
    for finding in report.findings:
        if finding.severity != "info":
            out.setdefault(finding.file, []).extend(finding.patch)
    judged = report.judgement
    if judged is not None and (not judged.fits or judged.verdict == "tight"):
        for part in report.advice[number - 1 : number]:
            for edits in part.files:
                out.setdefault(edits.file, []).extend(edits.edits)
    return {name: tuple(edits) for name, edits in out.items() if edits}


def patched_texts(report: FileReport, findings_of: FindingsOf, number: int = 1) -> dict[Path, str]:
    """The text of each file that changes, patched until no fix is left.

    Parameters
    ----------
    report : FileReport
        The report of the file.
    findings_of : callable
        Findings of a reading, in the context the report was made in.
    number : int
        Which advice to apply.

    Raises
    ------
    ValueError
        If a patch has no place in a file.
    """
    reading = read_file(Path(report.file))
    documents = {doc.name: doc for doc in (reading.document, *reading.partners)}
    texts: dict[Path, str] = {}
    wanted = patches(report, number)
    for _ in range(ROUNDS):
        wanted = {name: edits for name, edits in wanted.items() if name in documents}
        if not wanted:
            break
        for name, edits in wanted.items():
            before = documents[name]
            after = apply_edits(before, edits)
            documents[name] = _reread(before, after)
            texts[Path(name)] = after
        reading = _with(reading, documents)
        left: dict[str, list[Edit]] = {}
        for finding in findings_of(reading):
            if finding.severity != "info":
                left.setdefault(finding.file, []).extend(finding.patch)
        wanted = {name: tuple(edits) for name, edits in left.items() if edits}
    return texts


def _reread(before: Document, text: str) -> Document:
    folder = Path(before.name).parent
    document = read_text(Source(before.name, text, folder), follow=False).document
    return replace(document, kind=before.kind)


def _with(reading: Reading, documents: dict[str, Document]) -> Reading:
    document = documents[reading.document.name]
    partners = tuple(documents.get(p.name, p) for p in reading.partners)
    return replace(reading, document=document, partners=partners)
