"""The conventions are about kinds of sources, name what exists, and complete what is missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.architecture import Architecture
from costmodels.intervals import shipped_intervals
from costmodels.memory_profile import MemoryProfile
from costmodels.stack import load_stack, stack_names
from costmodels.time_profile import TimeProfile
from hardware_db import find
from planner.validate import measured, partition
from planner.validate.headlines import load_lines
from planner.validate.kinds import kind_of, load_kinds, spelled
from planner.validate.resolve import resolve
from planner.validate.run import Run
from planner.validate.shape import usual_heads
from planner.validate.table import Row

KINDS = load_kinds()
GPT3 = Architecture(
    *("gpt3", "gpt2", 96, 12288, 96, 96, 128, 49152, 51200, 2048, False),
    *("gelu", "layernorm", 2, True),
)


def test_a_kind_is_never_one_model_or_cluster() -> None:
    for kind in KINDS.kinds:
        layout = {"tp", "pp", "zero_stage"} if kind.guessed else set()
        assert set(kind.match) <= {"framework", "source", "precision", *layout}, kind.name
    for when in KINDS.everywhere:
        assert not set(when.match) & {"model", "n_gpus", "ref"}


@pytest.mark.parametrize("kind", KINDS.kinds, ids=lambda kind: kind.name)
def test_a_kind_names_what_exists(kind) -> None:
    assert kind.stack == "" or kind.stack in stack_names()
    assert set(kind.try_memory) <= set(MemoryProfile.model_fields)
    for entry in (kind, *kind.when):
        assert set(entry.time) <= set(TimeProfile.model_fields)
        assert set(entry.memory) <= set(MemoryProfile.model_fields)
    assert kind.cite


def test_every_row_has_a_kind_and_the_last_takes_all() -> None:
    assert kind_of(Row("t", 2, {}), KINDS).name == "other"
    assert all(kind.match for kind in KINDS.kinds[:-1])


def test_spellings_name_cards_of_the_database() -> None:
    for spelling in KINDS.gpus:
        assert find(spelling.means)[0] == "gpu"
    assert spelled(KINDS.gpus, "NVIDIA A100-SXM4-40GB") == "A100-40G"
    assert spelled(KINDS.gpus, "B200 (power limited)") == "B200"
    assert spelled(KINDS.attention, "eager (fused masked softmax)") == "eager"
    assert spelled(KINDS.optimizers, "bitsandbytes 8-bit Adam") == "adam8bit"
    assert spelled(KINDS.optimizers, "galore_adamw8bit_per_layer") == ""


def test_lines_of_the_accuracy_table_are_named_once() -> None:
    names = [line.name for line in load_lines()]
    assert len(names) == len(set(names))


@given(st.integers(1, 128), st.integers(1, 16), st.integers(0, 2), st.integers(0, 3))
def test_every_layer_is_on_one_stage(layers: int, pp: int, before: int, after: int) -> None:
    for parts in (
        partition.even(layers, pp),
        partition.blocks(layers, pp, before, after),
    ):
        assert sum(parts) == layers
        assert len(parts) == pp
        assert min(parts) >= 0


def test_blocks_count_what_is_around_the_layers() -> None:
    assert partition.blocks(40, 2, 1, 2) == (21, 19)
    assert partition.blocks(60, 8, 1, 2) == (7, 8, 8, 8, 8, 8, 8, 5)


def test_megatron_counts_embedding_and_loss_only_where_layers_do_not_divide() -> None:
    assert partition.accounted(80, 4, 5) == (20, 20, 20, 20)
    assert partition.accounted(126, 16, 4) == (7, *(8,) * 14, 7)
    assert partition.accounted(61, 4, 4) == partition.even(61, 4)


@given(st.integers(1, 60), st.integers(1, 12), st.sampled_from((1000, 131072)))
def test_weighed_stages_keep_every_layer(layers: int, pp: int, vocab: int) -> None:
    shape = Architecture(
        *("x", "llama", layers, 2048, 32, 32, 64, 8192, vocab, 4096, True),
        *("silu", "rmsnorm", 2, True),
    )
    parts = partition.weighed(shape, pp)
    assert sum(parts) == layers
    assert len(parts) == pp


def test_a_heavy_head_takes_layers_from_the_last_stage() -> None:
    shape = Architecture(
        *("1b", "llama", 16, 2048, 32, 32, 64, 8192, 131072, 4096, True),
        *("silu", "rmsnorm", 2, True),
    )
    parts = partition.weighed(shape, 4)
    assert parts[-1] < parts[0]


@given(st.integers(1, 300).map(lambda n: 64 * n))
def test_usual_heads_divide_the_width(hidden: int) -> None:
    assert hidden % usual_heads(hidden) == 0


def test_published_flop_conventions() -> None:
    B, s, L, h, V = 8, 2048, 96, 12288, 51200
    hardware = 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    assert measured.step_flops("megatron_hardware", GPT3, s, B, "full") == pytest.approx(hardware)
    model = 72 * B * s * L * h**2 * (1 + s / (6 * h) + V / (12 * L * h))
    for name in ("megatron_model", "model_full_attention"):
        assert measured.step_flops(name, GPT3, s, B, "full") == pytest.approx(model)
    causal = measured.step_flops("model_causal_attention", GPT3, s, B, "none")
    assert causal == pytest.approx(model - 72 * B * s * L * h**2 * s / (12 * h), rel=1e-5)
    parameters = measured.step_flops("parameters_hardware", GPT3, s, B, "full")
    assert parameters == pytest.approx(8 * 174.6e9 * B * s, rel=1e-3)


def test_shipped_stacks_carry_a_source_for_every_interval() -> None:
    for name in stack_names():
        stack = load_stack(name)
        assert {"interval_low", "interval_high"} <= set(stack.memory.sources)
        assert np.isfinite(stack.time.interval_low + stack.time.interval_high)


def test_shipped_intervals_are_of_kinds_that_exist() -> None:
    names = {kind.name for kind in KINDS.kinds}
    apart = {f"{kind.name}, {when.apart}" for kind in KINDS.kinds for when in kind.when}
    assert set(shipped_intervals().kinds) <= names | apart


def test_kinds_speak_for_stacks_that_exist() -> None:
    for kind in KINDS.kinds:
        for quantity in ("time", "memory"):
            assert set(kind.speaks(quantity)) <= {*stack_names(), ""}


SHAPE = {
    "model": "8B", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8",
    "ffn": "14336", "vocab": "128256", "gated_mlp": "true", "tied_embeddings": "false",
    "precision": "bf16", "seq_len": "4096", "micro_batch": "1", "grad_accum": "8",
}  # fmt: skip


def run_of(**cells: str) -> Run:
    return resolve(Row("t", 2, {**SHAPE, **cells}), KINDS)


def test_stages_that_only_run_slow_at_times_have_an_interval_of_their_own() -> None:
    """Half of nanotron's runs with stages and replicas, but without ZeRO, take seconds more."""
    one = {"framework": "nanotron", "gpu": "H100-80GB", "tp": "1"}
    eight = {**one, "pp": "2", "dp": "16", "n_gpus": "32"}
    slow, sharded, small = (
        run_of(**eight, zero_stage="0"),
        run_of(**eight, zero_stage="1"),
        run_of(**one, pp="2", dp="4", n_gpus="8", zero_stage="0"),
    )
    assert slow.spread("time") == "nanotron, stages without ZeRO"
    assert {r.spread("time") for r in (sharded, small)} == {"nanotron"}
    assert slow.spread("memory") == "nanotron"


def test_boards_of_four_have_no_switch() -> None:
    """Six of eighteen links lead to each other GPU of an HGX board with four."""
    run = run_of(framework="KempnerForge", gpu="H200", n_gpus="8", dp="2", tp="4")
    node = run.cluster.node
    assert (run.cluster.gpus_per_node, run.sequence_parallel) == (4, 1)
    assert node.p2p_bandwidth == pytest.approx(node.gpu.link_bandwidth / 3 * 0.88, rel=0.01)
    staged = run_of(framework="KempnerForge", gpu="H200", n_gpus="8", dp="1", tp="4", pp="2")
    assert staged.sequence_parallel == 0


@pytest.mark.parametrize(
    ("notes", "report"),
    [("", "first"), ("max over 64 logged ranks of torch max_memory_allocated", "worst")],
)
def test_a_row_says_whose_memory_it_prints(notes: str, report: str) -> None:
    """nvidia-smi is read on one node, a log has every rank."""
    cells = {
        **{"source": "bigscience_a_v100", "framework": "Megatron-LM", "model": "GPT"},
        **{"layers": "8", "hidden": "1024", "heads": "16", "ffn": "4096", "gated_mlp": "false"},
        **{"gpu": "V100-32GB", "n_gpus": "8", "gpus_per_node": "4", "precision": "fp16"},
        **{"seq_len": "1024", "micro_batch": "1", "grad_accum": "8", "dp": "1", "tp": "4"},
        **{"pp": "2", "notes": notes, "tied_embeddings": "true", "outcome": "ok"},
    }
    assert resolve(Row("t", 2, cells), KINDS).report == report


def test_what_a_kind_calls_fitted_is_what_it_sets():
    for kind in load_kinds().kinds:
        for entry in (kind, *kind.when):
            networks = {"network"} if entry.network else set()
            assert set(entry.fitted) <= {*entry.time, *entry.memory, *networks}, kind.name
