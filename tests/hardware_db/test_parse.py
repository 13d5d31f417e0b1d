"""The --gpus grammar."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_db import find, gpu_names, load_gpu, load_node, node_names, parse_gpus
from hardware_db.names import normalise


@pytest.mark.parametrize(
    ("text", "gpu", "node", "nodes", "per_node"),
    [
        ("8xA100-80G", "a100-sxm4-80g", "dgx-a100-640", 1, 8),
        ("4x8xH100-80G", "h100-sxm5-80g", "dgx-h100", 4, 8),
        ("32xH100", "h100-sxm5-80g", "dgx-h100", 4, 8),
        ("3xA100-80G", "a100-sxm4-80g", "dgx-a100-640", 1, 3),
        ("A100-80G", "a100-sxm4-80g", "dgx-a100-640", 1, 1),
        ("p4d.24xlarge", "a100-sxm4-40g", "aws-p4d.24xlarge", 1, 8),
        ("4xp5.48xlarge", "h100-sxm5-80g", "aws-p5.48xlarge", 4, 8),
        ("2x4xp5.48xlarge", "h100-sxm5-80g", "aws-p5.48xlarge", 2, 4),
        ("a3-highgpu-8g", "h100-sxm5-80g", "gcp-a3-highgpu-8g", 1, 8),
        ("Standard_ND96amsr_A100_v4", "a100-sxm4-80g", "azure-nd96amsr_a100_v4", 1, 8),
        ("2xBM.GPU.H100.8", "h100-sxm5-80g", "oci-bm.gpu.h100.8", 2, 8),
        ("2xRTX4090", "rtx4090-24g", "ws-4x4090", 1, 2),
        ("6xRTX4090", "rtx4090-24g", "srv-8x4090", 1, 6),
        ("2x2xRTX4090", "rtx4090-24g", "ws-4x4090", 2, 2),
        ("2x8xT4", "t4-16g", "ref-8xt4-16g", 2, 8),
        ("16xMI300X", "mi300x-192g", "azure-nd96isr_mi300x_v5", 2, 8),
        ("ws-4x4090", "rtx4090-24g", "ws-4x4090", 1, 4),
        ("2 x ws-4x4090", "rtx4090-24g", "ws-4x4090", 2, 4),
        (" 2 × 8 x h200 ", "h200-sxm-141g", "dgx-h200", 2, 8),
        ("8xGB200", "gb200-186g", "gb200-nvl72", 1, 8),
    ],
)
def test_accepted(text, gpu, node, nodes, per_node):
    cluster = parse_gpus(text)
    assert cluster.gpu.id == gpu
    assert cluster.node.id == node
    assert (cluster.nodes, cluster.gpus_per_node) == (nodes, per_node)
    assert cluster.gpus == nodes * per_node
    assert cluster.memory_limit == cluster.gpu.memory
    assert parse_gpus(cluster.spec) == cluster


@pytest.mark.parametrize(
    ("text", "needles"),
    [
        ("", ["names no GPU"]),
        ("8x", ["names no GPU", "8xA100-80G"]),
        ("0xH100", ["0 is not a whole number"]),
        ("0x8xH100", ["0 is not a whole number"]),
        ("8x0xH100", ["0 is not a whole number"]),
        ("-8xH100", ["-8 is not a whole number"]),
        ("1.5xH100", ["1.5 is not a whole number"]),
        ("99999999999xH100", ["not a whole number from 1 to"]),
        ("1000000x8xH100", ["8000000 GPUs", "at most"]),
        ("2x2x2xH100", ["more than two counts"]),
        ("8xFoo", ["unknown GPU or node 'Foo'", "nearest names are"]),
        ("8xA1000-80G", ["A100-80G"]),
        ("8xA100-8.0G", ["unknown", "A100-80G"]),
        ("p4d24xlarge", ["unknown", "p4d.24xlarge"]),
        ("8xA100", ["ambiguous", "A100-40G", "A100-80G", "A100-PCIe-80G"]),
        ("8xV100", ["ambiguous", "V100-16G", "V100-32G"]),
        ("g5", ["ambiguous", "g5.12xlarge", "g5.48xlarge"]),
        ("12xA100-80G", ["not whole nodes of 8 GPUs", "2x6xA100-80G"]),
        ("9x9xH100", ["at most 8 GPUs", "not 9"]),
        ("2x9xp5.48xlarge", ["p5.48xlarge has 8 GPUs", "not 9"]),
        ("8 A100 GPUs", ["unknown"]),
        ("8xA100-80G+4x8xH100", ["equal nodes", "one kind at a time"]),
        ("4+4xH100", ["equal nodes"]),
        ("8xA100-80G, 8xH100", ["equal nodes"]),
        ("8xA100-80G and 8xH100", ["equal nodes"]),
        ("8xA100-80G+8xnvidia/H100", ["equal nodes"]),
        ("\x00", ["unknown"]),
    ],
)
def test_refused(text, needles):
    with pytest.raises(ValueError, match=re.escape(needles[0])) as error:
        parse_gpus(text)
    message = str(error.value)
    assert "\n" not in message
    assert all(needle in message for needle in needles), message


def outcome(text):
    """The cluster, or the message that refuses it."""
    try:
        return parse_gpus(text)
    except ValueError as error:
        return str(error)


@given(st.text(max_size=20).filter(lambda text: text.strip().lower() != "auto"))
def test_junk_is_a_cluster_or_one_line(text):
    result = outcome(text)
    assert "\n" not in result if isinstance(result, str) else result.gpus >= 1


@given(st.integers(1, 64), st.integers(1, 8), st.sampled_from(["A100-80G", "H100", "RTX4090"]))
def test_nodes_come_first(nodes, per_node, name):
    cluster = parse_gpus(f"{nodes}x{per_node}x{name}")
    assert (cluster.nodes, cluster.gpus_per_node) == (nodes, per_node)


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_by_id_short_name_and_name(name):
    gpu = load_gpu(name)
    assert find(name) == find(gpu.short) == find(gpu.name) == ("gpu", name)
    assert parse_gpus(f"8x{gpu.short}").gpus == 8 * gpu.gcds


@pytest.mark.parametrize("name", node_names())
def test_every_node_by_id_short_name_and_name(name):
    node = load_node(name)
    assert find(name) == find(node.short) == find(node.name) == ("node", name)
    assert parse_gpus(f"2x{node.short}").gpus == 2 * node.gpus


@pytest.mark.parametrize(
    "spelling",
    ["a100-80g", "A100_80GB", "nvidia/A100 80GB", "NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"],
)
def test_spellings(spelling):
    assert find(spelling) == ("gpu", "a100-sxm4-80g")


@pytest.mark.parametrize(
    ("short", "gpu"),
    [
        ("V100-32G", "v100-sxm2-32g"),
        ("H100", "h100-sxm5-80g"),
        ("H200", "h200-sxm-141g"),
        ("RTX4090", "rtx4090-24g"),
        ("4090", "rtx4090-24g"),
        ("T4", "t4-16g"),
        ("MI300X", "mi300x-192g"),
        ("A10", "a10-24g"),
        ("A10G", "a10g-24g"),
        ("A6000", "rtx-a6000-48g"),
        ("H100-PCIe", "h100-pcie-80g"),
    ],
)
def test_short_names(short, gpu):
    assert find(short) == ("gpu", gpu)


def test_the_decimal_point_matters():
    assert normalise("p4d.24xlarge") != normalise("p4d24xlarge")
    assert normalise("P4D.24-xlarge") == normalise("p4d.24xlarge")


def test_parsing_is_quick():
    parse_gpus("8xA100-80G")
    start = time.perf_counter()
    parse_gpus("4x8xB200")
    assert time.perf_counter() - start < 0.06
