"""The catalogues as text or JSON: models, GPUs and nodes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from hardware_db import find, gpu_names, load_gpu, load_node, node_names
from hardware_db.files import read
from planner.catalogue import bare_sizes, load_entry, load_model, model_names, resolve_model
from planner.report_rows import GIB, table


def model_table(name: str | None, as_json: bool) -> str:
    """The model catalogue, or one model.

    Raises
    ------
    ValueError
        If the name is unknown; one line with near matches.
    """
    if name is not None:
        return _one_model(name, as_json)
    sizes = {model: size for size, model in bare_sizes().items()}
    rows = []
    for model in model_names():
        arch, entry = load_model(model), load_entry(model)
        rows.append(
            {
                "name": model,
                "family": arch.family,
                "parameters": int(entry.parameters),
                "layers": arch.layers,
                "hidden": arch.hidden,
                "heads": arch.heads,
                "kv_heads": arch.kv_heads,
                "vocab": arch.vocab,
                "max_seq_len": arch.max_seq_len,
                "bare_size": sizes.get(model, ""),
            }
        )
    if as_json:
        return json.dumps(rows, indent=2)
    header = ("model", "parameters", "layers", "hidden", "heads/kv", "vocab", "context", "size")
    return table(
        header,
        [
            (
                str(r["name"]),
                f"{int(str(r['parameters'])) / 1e9:.3f} B",
                str(r["layers"]),
                str(r["hidden"]),
                f"{r['heads']}/{r['kv_heads']}",
                str(r["vocab"]),
                str(r["max_seq_len"]),
                str(r["bare_size"]),
            )
            for r in rows
        ],
    )


def _one_model(name: str, as_json: bool) -> str:
    from costmodels.params import active_parameters, total_parameters

    found = resolve_model(name)
    arch = found.architecture
    facts: dict[str, Any] = {k: v for k, v in asdict(arch).items() if v is not None}
    facts["parameters"] = total_parameters(arch)
    facts["active_parameters"] = active_parameters(arch)
    if found.how == "catalogue":
        entry = load_entry(arch.name)
        facts |= {"source": entry.source, "published_source": entry.published_source}
        facts |= {"difference": entry.difference} if entry.difference else {}
    if found.note:
        facts["note"] = found.note
    return _facts(facts, as_json)


def hardware_table(name: str | None, as_json: bool) -> str:
    """GPUs and nodes, or one of them with what is assumed.

    Raises
    ------
    ValueError
        If the name is unknown; one line with near matches.
    """
    if name is not None:
        return _one_device(*find(name), as_json=as_json)
    gpu_rows = [_gpu_row(load_gpu(g)) for g in gpu_names()]
    node_rows = [_node_row(load_node(n)) for n in node_names()]
    if as_json:
        return json.dumps({"gpus": gpu_rows, "nodes": node_rows}, indent=2)
    gpu_header = ("gpu", "short", "memory GiB", "TB/s", "16-bit TFLOP/s", "flash")
    node_header = ("node", "gpus", "gpu", "GB/s inside", "GB/s out", "RAM GiB", "NVMe")
    return "\n\n".join(
        (
            table(gpu_header, [tuple(map(str, r.values())) for r in gpu_rows]),
            table(node_header, [tuple(map(str, r.values())) for r in node_rows]),
        )
    )


def _one_device(kind: str, identifier: str, as_json: bool) -> str:
    """A GPU or node as its file states it: values with unit, kind and source."""
    facts = dict(read(f"{kind}s", f"{identifier}.yaml"))
    facts.pop("sources", None)
    if as_json:
        return json.dumps(_plain(facts), indent=2)
    rows = []
    for name, value in facts.items():
        entries = value.items() if name == "flops" else [("", value)]
        for part, entry in entries:
            label = f"{name} {part}".strip()
            if isinstance(entry, dict) and "value" in entry:
                text = f"{_short(entry['value'])} {entry.get('unit', '')}".removesuffix(" -")
                rows.append((label, text, str(entry["kind"]), str(entry["source"])))
            else:
                rows.append((label, _short(entry), "", ""))
    return table(("field", "value", "kind", "source"), rows)


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _gpu_row(gpu: Any) -> dict[str, object]:
    peak = gpu.flops.get("bf16") or gpu.flops.get("fp16") or gpu.flops["fp32"]
    return {
        "id": gpu.id,
        "short": gpu.short,
        "memory_gib": round(gpu.memory / GIB, 2),
        "memory_tb_per_s": round(gpu.memory_bandwidth / 1e12, 3),
        "tflops_16bit": round(peak / 1e12, 1),
        "flash": " ".join(gpu.flash) or "-",
    }


def _node_row(node: Any) -> dict[str, object]:
    return {
        "id": node.id,
        "gpus": node.gpus,
        "gpu": node.gpu.id,
        "intra_gb_per_s": round(node.intra_bandwidth / 1e9, 1),
        "inter_gb_per_s": round(node.inter_bandwidth / 1e9, 2),
        "host_memory_gib": round(node.host_memory / GIB),
        "nvme_drives": node.nvme_count,
    }


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _facts(facts: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps(_plain(facts), indent=2)
    rows = [
        (k, json.dumps(_plain(v)) if isinstance(v, dict | list | tuple) else str(v))
        for k, v in facts.items()
    ]
    return table(("field", "value"), rows)
