"""Counted bytes: a table is scored row by row, and closed forms everybody can check hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.validate.command import validate
from planner.validate.oracle import count_activations, count_peak
from planner.validate.table import Row, read_table

SHAPE = {
    "family": "llama",
    "layers": "2",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "32",
    "head_dim": "128",
    "ffn": "11008",
    "vocab": "32000",
    "tie": "0",
    "seq": "2048",
    "mbs": "2",
    "attn": "sdpa",
    "sdp_backend": "flash",
    "param_dtype": "bf16",
    "autocast": "0",
    "ckpt": "0",
    "dropout": "0.0",
}
TOKENS, H, F, A, V = 4096, 4096, 11008, 32, 32000


def test_a_llama_layer_keeps_24h_8f_4a() -> None:
    """Llama, bf16, FlashAttention: 24 h + 8 f + 4 a + 8 bytes a token, and 24 a layer."""
    counted = count_activations(Row("t", 2, {**SHAPE, "labels": "1"}))
    layer = sum(v for k, v in counted.predicted.items() if k in ("attn", "mlp", "norm", "other"))
    assert layer == TOKENS * (24 * H + 8 * F + 4 * A + 8) + 24


def test_a_checkpointed_layer_keeps_its_input() -> None:
    counted = count_activations(Row("t", 2, {**SHAPE, "ckpt": "1", "labels": "1"}))
    layer = sum(v for k, v in counted.predicted.items() if k in ("attn", "mlp", "norm", "other"))
    assert layer == 2 * TOKENS * H


def test_the_loss_is_where_few_parameters_and_many_tokens_peak() -> None:
    row = {**SHAPE, "world": "1", "accum": "1", "opt": "fused", "set_to_none": "1", "mp": ""}
    counted = count_peak(Row("t", 2, {**row, "mbs": "8", "peak_phase": "backward of the loss"}))
    assert counted.phase is True
    small = {**row, "seq": "64", "mbs": "1", "opt": "foreach"}
    few = count_peak(Row("t", 2, {**small, "peak_phase": "optimizer step"}))
    assert few.phase is True


def test_a_table_is_scored(tmp_path: Path) -> None:
    row = {**SHAPE, "labels": "1", "size": "x"}
    counted = count_activations(Row("t", 2, row))
    columns = {
        **row,
        "saved_activations": str(counted.predicted["total"]),
        "nonlayer_activations": str(counted.predicted["outside the layers"]),
        "layer_activations": "0",
        **{
            f"layer_{name}": str(value)
            for name, value in counted.predicted.items()
            if name not in ("total", "outside the layers")
        },
    }
    path = tmp_path / "counted.csv"
    path.write_text(",".join(columns) + "\n" + ",".join(columns.values()) + "\n", encoding="utf-8")
    assert read_table(path).kind == "activations"
    report, text = validate([path])
    assert report.oracle_activations is not None
    assert report.oracle_activations.within_half_percent == 1.0
    assert "bytes saved for backward: 1 rows" in text


def test_nonsense_names_its_line(tmp_path: Path) -> None:
    columns = {**SHAPE, "saved_activations": "1", "layer_activations": "1", "world": "1"}
    columns |= {"nonlayer_activations": "1", "hidden": "wide"}
    path = tmp_path / "counted.csv"
    path.write_text(",".join(columns) + "\n" + ",".join(columns.values()) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: hidden is 'wide'"):
        validate([path])
