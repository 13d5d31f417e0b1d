"""Likely causes of a symptom for one configuration, and the check that would confirm each."""

from __future__ import annotations

from collections.abc import Mapping

from planner.advisor.memory_symptoms import HOST_OOM, OOM
from planner.advisor.report import Cause
from planner.advisor.run_symptoms import HANG, NAN, SLOW
from planner.advisor.symptom_case import Case, Known

SYMPTOMS = ("oom", "nan", "slow", "host-oom", "hang")


MOST = 6


def causes(symptom: str, case: Case) -> tuple[Cause, ...]:
    """The most likely causes of a symptom, first the likeliest.

    Raises
    ------
    ValueError
        If the symptom is none of :data:`SYMPTOMS`.
    """
    if symptom not in TABLE:
        raise ValueError(f"symptom {symptom!r}: expected one of {', '.join(SYMPTOMS)}")
    scored = [(known.likely(case), known) for known in TABLE[symptom] if known.suits(case)]
    kept = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])[:MOST]
    return tuple(
        Cause(
            rank=rank,
            likelihood=round(min(score, 1.0), 2),
            cause=known.cause,
            check=known.checks.get(case.engine, known.check),
            remedy=known.remedies.get(case.engine, known.remedy),
            source=known.source,
        )
        for rank, (score, known) in enumerate(kept, 1)
    )


TABLE: Mapping[str, tuple[Known, ...]] = {
    "oom": OOM,
    "nan": NAN,
    "slow": SLOW,
    "host-oom": HOST_OOM,
    "hang": HANG,
}
