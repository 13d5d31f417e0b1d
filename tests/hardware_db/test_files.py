"""Every YAML file of the database loads, fits the schema, and can be traced."""

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import hardware_db
from hardware_db import gpu_names, load_gpu, load_node, node_names
from hardware_db.schema import GpuFile, NodeFile, right_unit
from hardware_db.units import to_si

ROOT = Path(hardware_db.__file__).parent
GPU_FILES = sorted((ROOT / "gpus").glob("*.yaml"))
NODE_FILES = sorted((ROOT / "nodes").glob("*.yaml"))
REFERENCES = sorted((ROOT / "reference_nodes").glob("*.yaml"))
MEASURED = sorted((ROOT / "measured").rglob("*.yaml"))
LABELS = {
    *("id", "short", "name", "aliases", "vendor", "arch", "form_factor", "provider", "gpu"),
    *("topology", "fabric", "cpu", "sources", "reference_nodes", "all_reduce_table", "table"),
}


def parsed(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def leaves(entry: object, key: str = "") -> Iterator[tuple[str, dict]]:
    """Every value of a GPU or node file with the key it stands under."""
    if isinstance(entry, dict) and "value" in entry:
        yield key, entry
    elif isinstance(entry, dict):
        for name, child in entry.items():
            if name not in LABELS:
                yield from leaves(child, key if key == "flops" else name)
    elif isinstance(entry, list):
        for child in entry:
            yield from leaves(child, key)
    else:
        pytest.fail(f"{key}: {entry!r} has no unit, kind and source")


def test_counts():
    assert len(GPU_FILES) == len(gpu_names()) == 42
    assert len(NODE_FILES) == len(node_names()) == 57


@pytest.mark.parametrize("path", GPU_FILES, ids=lambda p: p.stem)
def test_gpu_file(path):
    raw = parsed(path)
    GpuFile.model_validate(raw)
    assert raw["id"] == path.stem
    gpu = load_gpu(path.stem)
    assert gpu.memory > 0
    assert gpu.flops["fp32"] > 0
    assert gpu.supports <= set(gpu.flops)
    assert 0 < gpu.bus_bandwidth <= (gpu.link_bandwidth or 64e9)


@pytest.mark.parametrize("path", NODE_FILES + REFERENCES, ids=lambda p: p.stem)
def test_node_file(path):
    raw = parsed(path)
    NodeFile.model_validate(raw)
    assert raw["id"] == path.stem
    node = load_node(path.stem)
    assert node.gpu.id == raw["gpu"]
    assert node.p2p_bandwidth > 0
    assert node.inter_bandwidth <= to_si(raw["network_bandwidth"]["value"], "Gb/s")
    assert (node.nvme_count == 0) == (node.nvme_read == 0) == (node.nvme_capacity == 0)


@pytest.mark.parametrize("path", GPU_FILES + NODE_FILES + REFERENCES, ids=lambda p: p.stem)
def test_every_value_has_unit_kind_and_source(path):
    for key, entry in leaves(parsed(path)):
        assert set(entry) == {"value", "unit", "kind", "source"}, key
        assert entry["kind"] in {"datasheet", "measured", "derived", "assumed"}, key
        assert len(entry["source"]) > 3, key
        assert right_unit(key, entry["unit"]), key


@pytest.mark.parametrize("path", MEASURED, ids=lambda p: p.stem)
def test_measured_files(path):
    raw = parsed(path)
    if "points" in raw or "curves" in raw:
        rows = raw.get("curves", [raw])
        assert all(row["unit"] and row["kind"] and row["source"] for row in rows)
        assert all(y > 0 for row in rows for y in row["points"].values())
    else:
        assert all(set(e) == {"value", "unit", "kind", "source"} for _, e in leaves(raw))


def test_reference_nodes_are_assumed():
    for path in REFERENCES:
        raw = parsed(path)
        assert raw["gpus"]["kind"] == raw["host_memory"]["kind"] == "assumed"


def test_reference_nodes_hold_their_gpu():
    for identifier in gpu_names():
        gpu = load_gpu(identifier)
        assert gpu.reference_nodes
        assert all(load_node(n).gpu.id == identifier for n in gpu.reference_nodes)


def test_index_repeats_the_files():
    index = parsed(ROOT / "index.yaml")
    for kind, files in (("gpus", GPU_FILES), ("nodes", NODE_FILES)):
        names = {}
        for path in files:
            raw = parsed(path)
            listed = [raw["short"], raw["id"], raw["name"], *raw["aliases"]]
            names[raw["id"]] = list(dict.fromkeys(listed))
        assert index[kind] == names


def test_cards_with_modules_have_eight_in_a_node():
    for identifier in gpu_names():
        gpu = load_gpu(identifier)
        if re.match("SXM|OAM", gpu.form_factor):
            assert load_node(gpu.reference_nodes[-1]).gpus == 8 * gpu.gcds


def shared(name: str) -> list[dict[str, str]]:
    root = Path(os.environ.get("PLANNER_SHARED", ROOT.parent.parent / "shared"))
    path = root / "data" / "hardware" / name
    if not path.is_file():
        pytest.skip(f"needs {name} of the collected hardware tables (PLANNER_SHARED)")
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_gpus_agree_with_the_collected_table():
    for row in shared("gpus.csv"):
        gpu = load_gpu(row["id"])
        assert gpu.memory == pytest.approx(float(row["memory_gib_torch"]) * 2**30)
        assert gpu.gcds * gpu.memory_bandwidth == pytest.approx(float(row["mem_bw_gbps"]) * 1e9)
        if row["bf16_dense_tflops"]:
            peak = float(row["bf16_dense_tflops"]) * 1e12
            assert gpu.gcds * gpu.flops["bf16"] == pytest.approx(peak)
        assert ("bf16" in gpu.supports) == (row["bf16_hw"] == "yes")


def test_nodes_agree_with_the_collected_table():
    for row in shared("nodes.csv"):
        node = load_node(row["id"])
        assert (node.gpus, node.gpu.id) == (int(row["gpus"]), row["gpu_id"])
        assert node.inter_bandwidth <= float(row["node_net_gbytes_per_dir"]) * 1e9
        assert node.nvme_count == int(row["nvme_count"] or node.nvme_count)
        price = row["price_usd_per_hour_on_demand"]
        assert node.price_per_hour == (float(price) if price else None)
