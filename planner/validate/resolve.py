"""From a row to a run: conventions applied, layout completed, or the reason why it cannot be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from costmodels.architecture import Architecture
from costmodels.configuration import OFFLOAD_TIERS
from costmodels.stack import load_stack
from hardware_db import Cluster
from planner.validate import layers, measured
from planner.validate.cells import Cells
from planner.validate.kinds import Kind, Kinds, Spelling, When, kind_of, spelled
from planner.validate.layout import BATCH, batch_of, gpus_of, layout_of
from planner.validate.machine import machine_of
from planner.validate.run import Changes, Run, Skip
from planner.validate.shape import architecture_of
from planner.validate.sharding import FULL
from planner.validate.spare import spared
from planner.validate.table import Row

Calibrated = Callable[[str, str], Changes]  # of a stack on a GPU

FLASH_BY_AGE = ("FA4", "FA3", "FA2", "FA1")


def resolve(
    row: Row,
    kinds: Kinds,
    stack: str | None = None,
    calibrated: Calibrated | None = None,
) -> Run:
    """What a row trained and measured.

    Parameters
    ----------
    row : Row
        Of a table of runs.
    kinds : Kinds
        Conventions.
    stack : str, optional
        Stack to predict with instead of the one that ran.
    calibrated : Callable, optional
        Changes of a user's profile for a stack on a GPU; what the row says goes before them.

    Raises
    ------
    Skip
        If the row must not be scored or does not determine its configuration.
    ValueError
        If a cell makes no sense.
    """
    kind = kind_of(row, kinds)
    name = stack_name(row, kind, stack)
    cells = Cells(_sharded(row, stack), kind, kinds)
    if reason := cells.reason("skip"):
        raise Skip(reason)
    seq_len, gpus = cells.whole("seq_len"), gpus_of(cells)
    if not seq_len or not gpus:
        raise Skip("missing: seq_len" if not seq_len else "missing: n_gpus")
    architecture = architecture_of(cells, seq_len)
    if kind.guessed and stack is None:
        cells.assumed.append("stack")
    layout = layout_of(cells, gpus, name)
    micro_batch, grad_accum = batch_of(cells, layout["dp"], layout["pp"])
    machine, cluster = machine_of(cells, kinds, gpus)
    mix = layers.mixed(cells)
    recompute = mix[0][0] if mix else _spelled(cells, kinds, "act_ckpt", "recompute")
    if layout["pp"] > architecture.layers:
        raise Skip("inconsistent as printed")
    precision = _precision(cells, kinds, cluster)
    sequences = layout["dp"] * micro_batch * grad_accum
    rest: dict[str, Any] = {**_settings(cells, kinds), **_scored(cells, architecture), **layout}
    time = measured.step_time(
        cells.row, kind.flops, architecture, cluster, precision, seq_len, sequences, recompute
    )
    run = Run(
        row=row,
        kind=kind,
        source=row.text("source") or kind.name,
        group=_group(row, gpus, seq_len, sequences),
        architecture=architecture,
        machine=machine,
        cluster=cluster,
        stack=name,
        changes=_over(
            calibrated(name, cluster.gpu.id) if calibrated else (), _changes(cells, kinds)
        ),
        precision=precision,
        seq_len=seq_len,
        etp=_expert_tensor(kind, layout),
        micro_batch=micro_batch,
        grad_accum=grad_accum,
        sequence_parallel=_sequence_parallel(cells, layout["tp"], recompute),
        recompute=recompute,
        mix=mix,
        layers=layers.stages(cells, architecture, layout["pp"], layout["virtual_stages"]),
        n_gpus=gpus,
        time=time,
        memory=measured.memory(row, kind.memory_unit),
        memory_kind=row.text("mem_kind") or kind.memory_kind,
        outcome=row.text("outcome"),
        stage=layers.stage(cells, gpus, layout["pp"]),
        assumed=tuple(sorted(set(cells.assumed))),
        **rest,
    )
    return spared(run) if kind.spare and "act_ckpt" in cells.assumed else run


def stack_name(row: Row, kind: Kind, stack: str | None = None) -> str:
    """The stack to predict a row with: as asked, of its kind, or as the row names it."""
    return stack or kind.stack or row.text("framework").lower()


def _sharded(row: Row, stack: str | None) -> Row:
    """A row read as FSDP's shards everything where it does not say."""
    if stack is None or load_stack(stack).memory.engine != "fsdp":
        return row
    return row.fill("zero_stage", FULL)


def _settings(cells: Cells, kinds: Kinds) -> dict[str, Any]:
    """What the software was told, apart from layout, batch and precision."""
    return {
        "attention": _spelled(cells, kinds, "attention", "attention", "flash"),
        "optimizer": _optimizer(cells, kinds),
        "zero_stage": cells.whole("zero_stage", 0) or 0,
        "offload_optimizer": _tier(cells, kinds),
        "offload_parameters": _parameter_tier(cells),
        "cross_entropy": cells.text("cross_entropy") or "auto",
        "dropout": float(cells.text("dropout") or 0.0),
    }


def _scored(cells: Cells, architecture: Architecture) -> dict[str, Any]:
    """What of a row is scored, with which others, and whose memory it prints."""
    kind, applied = cells.kind, cells.applied
    return {
        "time_skip": _time_skip(cells, architecture),
        "memory_skip": cells.reason("memory_skip"),
        "comparable": kind.comparable and all(when.comparable for when in applied),
        "report": next((when.report for when in applied if when.report), kind.report),
        "apart": next((when.apart for when in applied if when.apart), ""),
    }


def _time_skip(cells: Cells, architecture: Architecture) -> str:
    """Why a row's time is not scored; the seconds of a step of unknown size say nothing."""
    told = any(cells.row.text(name) for name in BATCH)
    if reason := cells.reason("time_skip"):
        return reason
    if architecture.moe:
        return "moe-time"
    return "" if told or not cells.row.text("step_time_s") else "batch not printed"


def _group(row: Row, gpus: int, seq_len: int, sequences: int) -> tuple[str, ...]:
    batch = row.text("global_batch_seqs") or str(sequences)
    name = row.text("source"), row.text("model"), row.text("gpu")
    return (*name, str(gpus), str(seq_len), batch)


def _expert_tensor(kind: Kind, layout: dict[str, int]) -> int:
    """Ranks that share an expert; 1 where expert parallelism takes more than the replicas.

    Experts are spread over all ranks of a stage, so that ``etp * ep`` divides ``dp * cp * tp``
    (megatron/core/parallel_state.py).
    """
    spread = layout["ep"] > layout["dp"] * layout["cp"]
    return 1 if spread or kind.expert_tensor == 1 else layout["tp"]


def _precision(cells: Cells, kinds: Kinds, cluster: Cluster) -> str:
    """As printed or by the kind; else bf16, or fp16 on a card without it."""
    text = cells.text("precision")
    if not text:
        cells.assumed.append("precision")
        return "bf16" if "bf16" in cluster.gpu.flops else "fp16"
    meaning = spelled(kinds.precisions, text)
    if meaning is None:
        raise unknown("precision", text, kinds.precisions)
    if not meaning:
        raise Skip("precision")
    return meaning


def unknown(column: str, text: str, known: tuple[Spelling, ...]) -> Skip:
    """The reason that names a word nobody defined, and those that are."""
    words = dict.fromkeys(s.means for s in known if s.means)
    return Skip(f"{column} is {text!r}: expected one of {', '.join(words)}")


def _spelled(cells: Cells, kinds: Kinds, column: str, table: str, default: str = "none") -> str:
    text = cells.text(column)
    if not text:
        return default
    meaning = spelled(getattr(kinds, table), text)
    if meaning is None:
        raise unknown(column, text, getattr(kinds, table))
    return meaning


def _optimizer(cells: Cells, kinds: Kinds) -> str:
    text = cells.text("optimizer") or "adamw"
    meaning = spelled(kinds.optimizers, text)
    if meaning is None:
        raise unknown("optimizer", text, kinds.optimizers)
    if not meaning:
        raise Skip(f"optimizer: {text}")
    return meaning


def _sequence_parallel(cells: Cells, tp: int, recompute: str) -> int:
    """As printed, or by the kind: ``tp`` where tp > 1, ``selective`` with that recompute."""
    text = cells.text("sequence_parallel")
    if text in ("tp", "selective"):
        return int(tp > 1 and (text == "tp" or recompute == "selective"))
    return int(text == "true")


def _tier(cells: Cells, kinds: Kinds) -> int:
    return OFFLOAD_TIERS.index(_spelled(cells, kinds, "offload", "offload"))


def _parameter_tier(cells: Cells) -> int:
    told = re.search(r"parameters on (cpu|nvme)", cells.row.text("notes"))
    return OFFLOAD_TIERS.index(told[1]) if told else 0


def _over(first: Changes, then: Changes) -> Changes:
    """Two sets of changes, the second before the first."""
    merged = {(section, field): value for section, field, value in (*first, *then)}
    return tuple((s, f, value) for (s, f), value in sorted(merged.items()))


def _changes(cells: Cells, kinds: Kinds) -> Changes:
    """Fields of the stack's profiles this row's kind or cells decide."""
    fields: dict[tuple[str, str], Any] = {}
    for entry in (cells.kind, *cells.applied):
        assert isinstance(entry, Kind | When)
        fields.update({("time", name): value for name, value in entry.time.items()})
        fields.update({("memory", name): value for name, value in entry.memory.items()})
    if modules := layers.named_modules(cells.row.text("act_ckpt")):
        fields["memory", "selective"] = "modules"
        fields["memory", "recompute_modules"] = modules
    version = spelled(kinds.flash, cells.row.text("attention"))
    if version:
        fields["time", "flash"] = (version, *(f for f in FLASH_BY_AGE if f < version))
    return tuple((s, f, json.dumps(v)) for (s, f), v in sorted(fields.items()))
