"""Names of figures for people, and how they are written."""

from __future__ import annotations

LABELS = {
    "time_mape": "step time, mean error",
    "time_worst": "step time, worst error",
    "within_25": "step times within 25 %",
    "rho": "rank correlation",
    "regret": "regret, mean",
    "worst_regret": "regret, worst group",
    "blind_regret": "regret, blind",
    "memory_mape": "peak memory, mean error",
    "memory_median": "peak memory, median error",
    "memory_worst": "peak memory, worst error",
    "fit_accuracy": "fits or not, right",
    "false_fit": "called fitting, was not",
    "ok_called_oom": "ran, called not fitting",
    "failed_called_oom": "failed, called not fitting",
    "within_half_percent": "rows within 0.5 %",
    "within_two_percent": "rows within 2 %",
    "mape": "mean error",
    "right_phase": "peak in the right phase",
}


def figure(metric: str, value: float | None) -> str:
    """A figure as people write it: rank correlations plain, the rest in per cent.

    >>> figure("rho", 0.948), figure("regret", 0.0014), figure("rho", None)
    ('0.95', '0.1 %', '-')
    """
    if value is None:
        return "-"
    return f"{value:.2f}" if metric == "rho" else f"{100 * value:.1f} %"
