"""Checkpointing that is left unsaid: none where a run fits, else the least that makes it fit."""

from __future__ import annotations

import pytest

from planner.validate.kinds import load_kinds
from planner.validate.predict import predict_memory
from planner.validate.resolve import resolve
from planner.validate.run import Run, Skip
from planner.validate.spare import spared
from planner.validate.table import Row

LLAMA3_70B = {
    "framework": "NeMo Megatron-Bridge", "source": "x", "model": "70b", "layers": "80",
    "hidden": "8192", "heads": "64", "kv_heads": "8", "ffn": "28672", "vocab": "128256",
    "gated_mlp": "true", "tied_embeddings": "false", "gpu": "H100-80GB", "n_gpus": "64",
    "gpus_per_node": "8", "precision": "bf16", "seq_len": "8192", "tp": "4", "pp": "4",
    "virtual_stages": "5", "outcome": "ok", "global_batch_seqs": "128",
}  # fmt: skip


def run(**cells: str) -> Run:
    return resolve(Row("t", 2, {**LLAMA3_70B, **cells}), load_kinds())


def fits(one: Run) -> bool:
    _, device, _ = predict_memory([one])
    return bool(device[0] <= one.cluster.memory_limit)


def test_a_run_that_fits_checkpoints_nothing() -> None:
    found = run(cp="2", micro_batch="1")
    assert found.mix == ()
    assert found.recompute == "none"


@pytest.mark.parametrize("micro_batch", ["1", "2"])
def test_one_that_does_not_checkpoints_the_fewest_layers(micro_batch: str) -> None:
    found = run(micro_batch=micro_batch)
    done = dict(found.mix)["full"]
    assert sum(count for _, count in found.mix) == 80
    assert "checkpointed layers" in found.assumed
    assert fits(found)
    fewer = run(
        micro_batch=micro_batch,
        act_ckpt="mixed",
        notes=f"recompute layers: full {done - 4} none {84 - done}",
    )
    assert not fits(fewer)


def test_what_a_table_says_is_taken_as_it_is() -> None:
    found = run(micro_batch="2", act_ckpt="none")
    assert found.mix == ()
    assert not fits(found)


def test_what_fits_in_no_way_stays() -> None:
    hopeless = run(micro_batch="1", tp="1", pp="1", virtual_stages="1", zero_stage="0")
    assert spared(hopeless) == hopeless
    assert hopeless.mix == ()


def test_named_modules_keep_less_than_core_attention_alone() -> None:
    cells = {"micro_batch": "1", "act_ckpt": "selective:layernorm+mlp"}
    named, plain = run(**cells), run(**{**cells, "act_ckpt": "selective"})
    peaks = [float(predict_memory([one])[1][0]) for one in (named, plain)]
    assert named.recompute == "selective"
    assert peaks[0] < 0.7 * peaks[1]
    with pytest.raises(Skip, match="act_ckpt is 'selective:mlps': expected modules"):
        run(micro_batch="1", act_ckpt="selective:mlps")
