"""The ladder, the advice and ``estimate`` say the same of the same configuration."""

from __future__ import annotations

import re
from typing import Any

import pytest

from planner import estimate, solve
from planner.plan import Result, Rung
from planner.report import summary

RUNG_FIX = {"attention": "flash", "tp": 1, "pp": 1, "zero_stage": 0, "micro_batch": 1}


def rung(result: Result, name: str) -> Rung:
    return next(r for r in result.ladder if r.rung == name)


def test_a_tight_rung_is_tight_as_in_estimate() -> None:
    job: dict[str, Any] = {"model": "7b", "gpus": "1xH200", "top": 0}
    result = solve(job)
    found = rung(result, "FlashAttention")
    del job["top"]
    alone = estimate({**job, "fix": RUNG_FIX}).predicted
    assert alone is not None
    assert alone.verdict == found.verdict == "tight"
    assert found.peak_memory_bytes == alone.peak_memory_bytes
    high = alone.peak_memory_interval_bytes.high / 2**30
    assert found.bought == f"may not fit: up to {high:.1f} GiB"
    assert result.article is not None
    assert "it may not fit (tight" in result.article
    assert f"up to {high:.1f} GiB" in result.article
    assert "does not fit" not in result.article


@pytest.mark.parametrize("gpus", ["1xH200", "8xA100-80G"])
def test_the_shortfall_counts_from_the_point_estimate(gpus: str) -> None:
    result = solve({"model": "7b", "gpus": gpus, "top": 0})
    assert result.predicted is not None
    limit = result.predicted.memory_limit_bytes
    for found in result.ladder:
        match = re.fullmatch(r"GPU short by ([\d.]+) GiB", found.bought)
        assert (match is not None) == (found.verdict == "does not fit")
        if match is not None:
            assert found.peak_memory_bytes is not None
            short = (found.peak_memory_bytes - limit) / 2**30
            assert float(match[1]) == pytest.approx(short, abs=0.06)


def test_without_a_plan_the_nearest_lacks_or_may_lack() -> None:
    short = solve(model="70b", gpus="8xH100", forbid="offload_optimizer").infeasible
    assert short is not None
    assert short.short_by_bytes
    assert not short.may_lack_bytes
    result = solve({"model": "7b", "gpus": "1xH200", "fix": RUNG_FIX})
    tight = result.infeasible
    assert tight is not None
    assert tight.short_by_bytes == 0
    assert tight.may_lack_bytes
    text = summary(result)
    assert "exceeds, or may exceed," in text
    assert "may lack" in text
    assert any("--accept-tight" in r.change for r in tight.relaxations)


def test_offload_of_the_advice_that_is_not_needed_is_left_out() -> None:
    job: dict[str, Any] = {"model": "405b", "gpus": "128x8xH100", "global_batch": 1024, "top": 0}
    article = solve(job).article
    assert article is not None
    assert "NVMe offload and mixed precision, of which offload is not needed here" in article


def test_what_free_stages_buy_names_the_stacks_searched() -> None:
    result = solve(model="13b", gpus="16xA100-80G", stack="megatron", top=0, fix={"pp": 4})
    assert result.unrestricted is not None
    assert "megatron, free in every stage: " in summary(result)
    assert "whatever the stack" not in summary(result)
