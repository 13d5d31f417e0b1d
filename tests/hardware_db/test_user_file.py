"""--hardware: a user's own GPUs and nodes."""

import copy
import re
from pathlib import Path

import pytest
import yaml

from hardware_db import load_gpu, parse_gpus


def given_value(value, unit="-", kind="measured"):
    return {"value": value, "unit": unit, "kind": kind, "source": "our own measurement"}


CARD = {
    "id": "z9",
    "short": "Z9",
    "name": "Zeta 9",
    "vendor": "Zeta",
    "arch": "Nine",
    "form_factor": "PCIe",
    "memory": given_value(96, "GiB"),
    "memory_bandwidth": given_value(2, "TB/s"),
    "flops": {"fp32": given_value(50, "TFLOP/s"), "bf16": given_value(400, "TFLOP/s")},
}
BOX = {
    "id": "box",
    "short": "box",
    "name": "Our box",
    "provider": "us",
    "gpu": "Z9",
    "topology": "PCIe 5",
    "fabric": "Ethernet",
    "gpus": given_value(6),
    "intra_bandwidth": given_value(40, "GB/s"),
    "network_bandwidth": given_value(100, "Gb/s"),
    "host_memory": given_value(1, "TiB"),
}


@pytest.fixture
def write(tmp_path):
    def write(content) -> Path:
        path = tmp_path / "my.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return write


def test_own_gpu_and_node(write):
    path = write({"gpus": [CARD], "nodes": [BOX]})
    cluster = parse_gpus("2x6xzeta-9", extra=path)
    assert cluster.gpus == 12
    assert cluster.gpu.memory == 96 * 2**30
    assert cluster.gpu.supports == {"fp32", "bf16"}
    assert cluster.node.intra_bandwidth == cluster.gpu.bus_bandwidth == 40e9
    assert cluster.node.inter_bandwidth == pytest.approx(12.5e9 * 0.8)
    assert cluster.node.nvme_count == 0
    assert {a.what for a in cluster.assumed} >= {"network_efficiency", "gemm_epsilon", "sms"}
    assert "memory" not in {a.what for a in cluster.assumed}
    assert parse_gpus("2xbox", extra=path).gpus == 12


@pytest.mark.parametrize("generation", ["FA1", "FA2", "FA3", "FA4"])
def test_attention_rates_not_stated_are_assumed_by_matmul_rate(write, generation):
    card = {**CARD, "flash": given_value([generation])}
    cluster = parse_gpus("2xbox", extra=write({"gpus": [card], "nodes": [BOX]}))
    for direction in ("fwd", "bwd"):
        curve = cluster.gpu.attention.curve(generation, direction, 128, True)
        assert 0 < max(curve.y) < cluster.gpu.flops["bf16"]
    assert any(a.what.startswith("attention rates") for a in cluster.assumed)


def test_the_assumed_scale_is_one_for_the_gpu_the_table_is_of(write):
    copy_of_it = {
        **CARD,
        "flops": {"fp32": given_value(19.5, "TFLOP/s"), "bf16": given_value(312, "TFLOP/s")},
        "gemm_epsilon": given_value(0.81),
    }
    mine = parse_gpus("2xbox", extra=write({"gpus": [copy_of_it], "nodes": [BOX]})).gpu
    known = load_gpu("a100-sxm4-80g").attention.curve("FA2", "fwd", 128, True)
    assert mine.attention.curve("FA2", "fwd", 128, True).y == pytest.approx(known.y)


def test_own_node_of_a_known_gpu(write):
    path = write({"nodes": [{**BOX, "gpu": "H100", "gpus": given_value(2)}]})
    cluster = parse_gpus("3xbox", extra=path)
    assert (cluster.gpus, cluster.gpu.id) == (6, "h100-sxm5-80g")
    assert cluster.gpu.all_reduce_curve is None  # no switch
    assert parse_gpus("8xH100", extra=path).node.id == "dgx-h100"


def test_what_is_ours_stays(write):
    path = write({"gpus": [CARD], "nodes": [BOX]})
    assert parse_gpus("8xA100-80G", extra=path) == parse_gpus("8xA100-80G")


def test_a_gpu_without_a_node_is_refused(write):
    with pytest.raises(ValueError, match="Z9 has no node"):
        parse_gpus("2xZ9", extra=write({"gpus": [CARD]}))


def changed(path, value):
    content = copy.deepcopy({"gpus": [CARD], "nodes": [BOX]})
    target = content
    for key in path[:-1]:
        target = target[key]
    if value is None:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("content", "needle"),
    [
        (changed(("gpus", 0, "memory"), None), "gpus[0] z9: missing memory"),
        (changed(("gpus", 0, "memory", "unit"), None), "gpus[0] z9: missing memory.unit"),
        (changed(("gpus", 0, "memory", "unit"), "GBB"), "unknown unit 'GBB'"),
        (changed(("gpus", 0, "memory", "unit"), "GB/s"), "z9.memory: GB/s is not a unit of memory"),
        (changed(("gpus", 0, "memory", "value"), -1), "gpus[0] z9.memory.value"),
        (changed(("gpus", 0, "memory", "kind"), "guess"), "gpus[0] z9.memory.kind"),
        (changed(("gpus", 0, "colour"), "red"), "gpus[0] z9.colour: unknown field"),
        (changed(("gpus", 0, "flops"), {"fp7": given_value(1, "TFLOP/s")}), "gpus[0] z9.flops.fp7"),
        (changed(("gpus", 0, "reference_nodes"), ["nowhere"]), "no reference node 'nowhere'"),
        (changed(("nodes", 0, "gpu"), "Z8000"), "nodes box: gpu: unknown GPU"),
        (changed(("nodes", 0, "gpu"), "dgx-h100"), "nodes box: gpu: 'dgx-h100' is a node"),
        (changed(("nodes", 0, "gpus", "value"), 0), "nodes[0] box.gpus.value"),
        (changed(("nodes", 0, "gpus", "value"), 1.5), "nodes[0] box.gpus.value"),
        (changed(("gpus", 0, "memory"), 64), "z9.memory: write it as {value: 64, unit"),
        (changed(("gpus", 0, "gcds"), given_value(4)), "box: gpus: 6 is not whole cards"),
        ({"gpus": ["Z9"]}, "gpus[0]: "),
        (changed(("gpus", 0, "flash"), given_value(["FA9"])), "no table stated has rates of FA9"),
        (changed(("gpus", 0, "attention"), []), "no table stated has rates of FA2"),
        ({"gpus": CARD}, "gpus: "),
        ("gpus: []\ngpus: []", "line 2 repeats the key 'gpus'"),
        ("gpus: [", "is not YAML"),
        ("- 1", "must be a mapping"),
        ("{}", "defines neither gpus nor nodes"),
        ("", "must be a mapping"),
    ],
)
def test_malformed(write, content, needle):
    path = write(content)
    with pytest.raises(ValueError, match=re.escape(needle)) as error:
        parse_gpus("2xbox", extra=path)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message


def test_every_missing_field_is_named(write):
    with pytest.raises(ValueError, match="missing") as error:
        parse_gpus("8xQ", extra=write({"gpus": [{"id": "q"}], "nodes": [{"id": "n"}]}))
    said = str(error.value)
    card, box = said.split("nodes[0] n: ")
    for field in ("short", "name", "vendor", "arch", "form_factor", "memory", "flops"):
        assert re.search(rf"\b{field}\b", card)
    for field in ("short", "name", "provider", "gpu", "topology", "fabric", "gpus", "host_memory"):
        assert re.search(rf"\b{field}\b", box)
    assert "\n" not in said


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*none\.yaml"):
        parse_gpus("8xH100", extra=tmp_path / "none.yaml")
