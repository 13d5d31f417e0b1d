"""Every row of the counted bytes, where the tables are at hand."""

import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("PLANNER_SHARED", ROOT.parent / "shared"))
ACTIVATIONS = sorted(SHARED.glob("data/oracle/oracle_activations*.csv"))
PEAKS = sorted(SHARED.glob("data/oracle/oracle_peaks*.csv"))


@pytest.mark.skipif(not ACTIVATIONS, reason="tables of counted activations not found")
@pytest.mark.parametrize("path", ACTIVATIONS, ids=lambda p: p.stem)
def test_saved_activations(path):
    """97 % of rows within 0.5 %, every row that is modelled within 2 %."""
    validate = pytest.importorskip("planner.validate.oracle")
    table = pytest.importorskip("planner.validate.table")
    rows = [validate.count_activations(row) for row in table.read_table(path).rows]
    error = np.array([abs(r.predicted["total"] / r.measured["total"] - 1) for r in rows])
    modelled = np.array([r.modelled for r in rows])
    assert np.mean(error <= 0.005) >= 0.97
    assert np.max(error[modelled]) <= 0.02


@pytest.mark.skipif(not PEAKS, reason="tables of counted peaks not found")
@pytest.mark.parametrize("path", PEAKS, ids=lambda p: p.stem)
def test_step_peaks(path):
    """Mean error at most 2 %, the right phase in 95 % of rows."""
    validate = pytest.importorskip("planner.validate.oracle")
    table = pytest.importorskip("planner.validate.table")
    rows = [validate.count_peak(row) for row in table.read_table(path).rows]
    error = np.array([abs(r.predicted["total"] / r.measured["total"] - 1) for r in rows])
    assert np.mean(error) <= 0.02
    assert np.mean([r.phase for r in rows]) >= 0.95
