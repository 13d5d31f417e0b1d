"""What was taken for empty cells: the values, and in how many rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from planner.validate.run import Run

LAYERS = "checkpointed layers"  # as few as fit
STACK = "stack"
FLAGS = ("sequence_parallel",)
NETWORK = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "gated_mlp", "tied_embeddings")
EXPERTS = {"experts": "experts", "topk": "top_k"}
MANY = 3  # values, from which on they are counted, not listed


def assumed_value(run: Run, name: str) -> str:
    """What a run has where the cell of a column was empty."""
    if name in NETWORK:
        return _text(getattr(run.architecture, name))
    if name in EXPERTS:
        return _text(getattr(run.architecture.moe, EXPERTS[name]) if run.architecture.moe else 0)
    if name == LAYERS:
        return str(sum(count for how, count in run.mix if how != "none"))
    if name == "act_ckpt":
        return "mixed" if len(run.mix) > 1 else run.recompute
    value = getattr(run, name)
    return _text(bool(value) if name in FLAGS else value)


def assumed_values(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """Of every column that some rows leave empty: the values taken, with their rows."""
    found: dict[str, Counter[str]] = {}
    for run in runs:
        for name in run.assumed:
            found.setdefault(name, Counter())[assumed_value(run, name)] += 1
    return {
        name: dict(sorted(values.items(), key=lambda item: (-item[1], item[0])))
        for name, values in sorted(found.items())
    }


def assumed_text(values: Mapping[str, Mapping[str, int]]) -> str:
    """The same for people.

    >>> assumed_text({"dp": {"8": 2, "4": 1}, "heads": {"8": 1, "16": 1, "32": 1, "64": 9}})
    'dp=8 (2 rows), dp=4 (1 row), heads (12 rows, 4 values)'
    """
    parts = []
    for name, rows in values.items():
        if len(rows) > MANY:
            parts.append(f"{name} ({sum(rows.values())} rows, {len(rows)} values)")
            continue
        parts += [f"{name}={value} ({_rows(count)})" for value, count in rows.items()]
    return ", ".join(parts)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
