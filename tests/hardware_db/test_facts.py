"""Published figures come out of the database in SI units."""

import pickle

import numpy as np
import pytest

from hardware_db import load_gpu, load_node, parse_gpus


def test_a100_datasheet():
    a100 = load_gpu("a100-sxm4-80g")
    assert a100.flops["bf16"] == 312e12
    assert a100.flops["tf32"] == 156e12
    assert a100.memory_bandwidth == 2039e9
    assert a100.sms == 108
    assert a100.link_bandwidth == 300e9
    assert a100.compute_capability == (8, 0)
    assert a100.memory == pytest.approx(79.15 * 2**30)


@pytest.mark.parametrize("name", ["v100-sxm2-16g", "v100-sxm2-32g", "t4-16g", "p100-sxm2-16g"])
def test_no_bf16_before_ampere(name):
    gpu = load_gpu(name)
    assert gpu.supports == {"fp32", "fp16"}
    assert gpu.flash == ()
    assert gpu.memory_efficient_attention


def test_fp8_needs_ada_or_hopper():
    assert "fp8" not in load_gpu("a100-sxm4-80g").supports
    assert "fp8" in load_gpu("h100-sxm5-80g").supports
    assert "fp8" in load_gpu("rtx4090-24g").supports


def test_geforce_trains_at_the_fp32_accumulation_rate():
    assert load_gpu("rtx4090-24g").flops["fp16"] == 165.2e12


def test_one_mi250x_is_two_devices():
    die = load_gpu("mi250x-128g")
    assert die.gcds == 2
    assert die.memory == pytest.approx(63.98 * 2**30)
    assert die.flops["bf16"] == 191.5e12
    assert parse_gpus("4xMI250X").gpus == 8


@pytest.mark.parametrize("name", ["gaudi2-96g", "gaudi3-128g"])
def test_gaudi_cannot_be_launched(name):
    assert not load_gpu(name).launchable


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [("dgx-1v", 122e9), ("dgx-a100-640", 232e9), ("dgx-h100", 370e9), ("dgx-b200", 680e9)],
)
def test_bus_bandwidth_of_nvlink_nodes(name, bandwidth):
    assert load_node(name).intra_bandwidth == bandwidth


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("dgx-a100-640", 192e9),  # NVIDIA: 8 x 200 Gb/s
        ("dgx-h100", 380e9),  # NVIDIA: 8 x 400 Gb/s
        ("gcp-a3-highgpu-8g", 71e9),  # cluster-toolkit, GPUDirect-TCPX
        ("gcp-a3-megagpu-8g", 188e9),  # cluster-toolkit, GPUDirect-TCPXO
        ("jeanzay-8xa100-80", 45e9),  # BLOOM, 4 x Omni-Path 100
    ],
)
def test_network_bandwidth(name, bandwidth):
    assert load_node(name).inter_bandwidth == pytest.approx(bandwidth)


def test_measured_all_reduce_only_behind_a_switch():
    assert parse_gpus("8xA100-80G").gpu.all_reduce_curve is not None
    assert parse_gpus("slurm-4xa100-40").gpu.all_reduce_curve is None
    assert parse_gpus("8xRTX4090").gpu.all_reduce_curve is None


def test_all_reduce_curve_of_the_a100():
    curve = load_node("dgx-a100-640").gpu.all_reduce_curve
    assert float(curve.at(2**20)) == pytest.approx(18.0e9)
    assert float(curve.at(2**28)) == pytest.approx(194.07e9)
    assert float(curve.at(2**50)) == pytest.approx(234.89e9)  # constant beyond the last point
    size, rate = curve.arrays()
    assert size.shape == rate.shape == (20,)
    assert np.all(np.diff(size) > 0)


def test_host_link_is_limited_by_the_older_side():
    assert load_node("aws-p4d.24xlarge").pcie_bandwidth == 12.35e9  # A100 behind PCIe 3
    assert load_node("dgx-a100-320").pcie_bandwidth == 24.4e9


def test_memory_of_an_azure_node():
    """The health check of that instance type reads 1857830712 kB."""
    memory = load_node("azure-nd96amsr_a100_v4").host_memory
    assert memory == pytest.approx(1857830712 * 1024, rel=0.002)


def test_clusters_are_values():
    cluster = parse_gpus("4x8xH100-80G")
    assert cluster == parse_gpus("32xH100")
    assert hash(cluster) == hash(parse_gpus("32xH100"))
    assert pickle.loads(pickle.dumps(cluster)) == cluster


def test_cpu_adam_takes_the_longer_the_slower_the_memory():
    """Between what its 28 bytes a parameter need and ten times that; measured where stated."""
    for name in ("dgx-2", "dgx-a100-640", "dgx-h200", "tinybox-green"):
        node = parse_gpus(name).node
        least = 28 / node.cpu_memory_bandwidth
        assert least < node.cpu_adam_time < 10 * least, name
        assert "cpu_adam_time" in {a.what for a in node.assumed}
    assert parse_gpus("lambda-gh200").node.cpu_adam_time == pytest.approx(0.098e-9)
    # one x86 step: 10 s of 18.2e9 parameters a node (DeepSpeed issue 6834), the slowest of three
    assert parse_gpus("dgx-a100-640").node.cpu_adam_time == pytest.approx(0.55e-9, rel=0.2)
