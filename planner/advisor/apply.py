"""``--apply``: the patched file beside the original."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from planner.advisor.edit import apply_edits, keeps_layout
from planner.advisor.launch_options import MARK
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
    here = (doc for doc in (reading.document, *reading.partners) if not doc.name.endswith(MARK))
    documents = {doc.name: doc for doc in here}
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
    _refer(texts, documents)
    return texts


def _refer(texts: dict[Path, str], documents: Mapping[str, Document]) -> None:
    """Let the files name the patched copies of the files beside them, not the originals."""
    for partner in tuple(texts):
        word = re.compile(rf"(?<![\w.-]){re.escape(partner.name)}(?![\w.-])")
        for name, doc in documents.items():
            if Path(name) == partner or doc.format == "json":
                continue
            before = texts.get(Path(name), doc.text)
            after = word.sub(patched_path(partner).name, before)
            if after != before:
                texts[Path(name)] = after


def remarks(report: FileReport, number: int, texts: Mapping[Path, str]) -> list[str]:
    """What ``--apply`` should say beside the names of the files it wrote.

    Parameters
    ----------
    report : FileReport
        The report of the file.
    number : int
        Which advice was asked for.
    texts : mapping
        The patched texts, as :func:`patched_texts` gives them.
    """
    if report.error:
        return [f"{report.file}: nothing written: it could not be read"]
    out = []
    judged = report.judgement
    unfit = judged is not None and (not judged.fits or judged.verdict == "tight")
    if number > max(1, len(report.advice)):
        out.append(f"{report.file}: there is no plan {number}, only {len(report.advice)}")
    if not texts:
        why = "no error or warning has a patch"
        if judged is None:
            why += ", and without a verdict no plan is applied"
        elif not unfit:
            why += ", and it fits: plans that only make it faster are left to you"
        elif not report.advice:
            why += ", and no plan was found"
        else:
            why += ", and what the plan changes is in no file at hand"
        out.append(f"{report.file}: nothing written: {why}")
    elif unfit:
        for part in report.advice[number - 1 : number]:
            out += [f"{report.file}: the plan needs this too: {flag}" for flag in part.flags]
    if any(name.endswith(MARK) for name in patches(report, number)):
        out.append(f"{report.file}: options of accelerate launch are left for you to change")
    for path in texts:
        if not path.is_file():
            out.append(f"{path}: is written by the script itself; change it there")
        elif path.suffix == ".json" and not keeps_layout(read_file(path, follow=False).document):
            out.append(f"{path}: laid out anew, its comments and repeated keys are gone")
    return out


def _reread(before: Document, text: str) -> Document:
    folder = Path(before.name).parent
    document = read_text(Source(before.name, text, folder), follow=False).document
    return replace(document, kind=before.kind)


def _with(reading: Reading, documents: dict[str, Document]) -> Reading:
    document = documents[reading.document.name]
    partners = tuple(documents.get(p.name, p) for p in reading.partners)
    return replace(reading, document=document, partners=partners)
