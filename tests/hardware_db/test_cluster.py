"""Overrides, resizing and what is assumed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_db import parse_gpus


@pytest.fixture(scope="module")
def cluster():
    return parse_gpus("4x8xA100-80G")


def test_overrides(cluster):
    changed = cluster.with_overrides(
        intra_bandwidth=116e9,
        inter_bandwidth=12.5e9,
        host_memory=256e9,
        nvme=2e12,
        memory_limit=40e9,
        nvme_read=5e9,
    )
    node = changed.node
    assert (node.intra_bandwidth, node.inter_bandwidth) == (116e9, 12.5e9)
    assert (node.host_memory, node.nvme_capacity, node.nvme_read) == (256e9, 2e12, 5e9)
    assert node.nvme_write == cluster.node.nvme_write
    assert changed.memory_limit == 40e9
    assert changed.gpu.bus_bandwidth == 116e9
    assert changed.gpus == cluster.gpus


def test_a_given_bandwidth_scales_the_measured_curve(cluster):
    half = cluster.with_overrides(intra_bandwidth=cluster.node.intra_bandwidth / 2)
    before, after = (float(c.gpu.all_reduce_curve.at(1e8)) for c in (cluster, half))
    assert after == pytest.approx(before / 2)


def test_nothing_given_changes_nothing(cluster):
    assert cluster.with_overrides() == cluster


@pytest.mark.parametrize(
    "name",
    ["intra_bandwidth", "inter_bandwidth", "host_memory", "memory_limit", "nvme_read"],
)
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_overrides_must_be_positive(cluster, name, value):
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        cluster.with_overrides(**{name: value})


def test_memory_limit_cannot_exceed_the_memory(cluster):
    with pytest.raises(ValueError, match=r"100\.00 GiB is more than the 79\.15 GiB"):
        cluster.with_overrides(memory_limit=100 * 2**30)


def test_drives_can_be_taken_away_and_added(cluster):
    bare = cluster.with_overrides(nvme=0)
    assert (bare.node.nvme_count, bare.node.nvme_read, bare.node.nvme_write) == (0, 0, 0)
    added = bare.with_overrides(nvme=1e12)
    assert (added.node.nvme_count, added.node.nvme_capacity) == (1, 1e12)
    assert added.node.nvme_read > added.node.nvme_write > 0
    assert {a.what for a in added.assumed} >= {"nvme_drive_read", "nvme_drive_write"}


def test_a_given_value_is_no_longer_assumed():
    t4 = parse_gpus("8xT4")
    fields = {a.what for a in t4.assumed}
    assert {"host_memory", "network_bandwidth", "network_efficiency"} <= fields
    told = t4.with_overrides(host_memory=100e9, inter_bandwidth=1e9)
    left = {a.what for a in told.assumed}
    left |= {a.what for a in (*told.node.assumed, *told.gpu.assumed)}
    assert not left & {"host_memory", "network_bandwidth", "network_efficiency"}


def test_assumptions_say_where_what_and_why():
    for assumption in parse_gpus("2x8xRTX5090").assumed:
        assert assumption.where in {"RTX5090", "ref-8xrtx5090-32g"}
        assert assumption.what
        assert assumption.unit
        assert len(assumption.why) > 3


def test_topics_of_assumptions():
    topics = {a.topic for a in parse_gpus("8xT4").assumed}
    assert topics <= {"network", "nvme", "host", "fp8", "attention", "intra", "compute"}
    assert {"network", "nvme", "host", "compute"} <= topics


@pytest.mark.parametrize(
    ("gpus", "spec"),
    [
        (1, "1xA100-80G"),
        (8, "8xA100-80G"),
        (12, "2x6xA100-80G"),
        (24, "3x8xA100-80G"),
        (30, "5x6xA100-80G"),
        (64, "8x8xA100-80G"),
    ],
)
def test_with_gpus(cluster, gpus, spec):
    if gpus == 30:  # five nodes are more than there are
        with pytest.raises(ValueError, match="cannot be spread evenly"):
            cluster.with_gpus(gpus)
    else:
        assert cluster.with_gpus(gpus).spec == spec


@given(st.integers(1, 200))
def test_with_gpus_gives_that_number_or_refuses(gpus):
    cluster = parse_gpus("4x8xA100-80G")
    splits = [n for n in range(1, 9) if gpus % n == 0 and (gpus // n <= 4 or n == 8)]
    if not splits:
        with pytest.raises(ValueError, match="cannot be spread evenly"):
            cluster.with_gpus(gpus)
        return
    resized = cluster.with_gpus(gpus)
    assert resized.gpus == gpus
    assert resized.gpus_per_node == max(splits)


def test_growing_fills_the_node_first():
    assert parse_gpus("2xA100-80G").with_gpus(8).spec == "8xA100-80G"
    assert parse_gpus("4x2xp5.48xlarge").with_gpus(16).spec == "2xp5.48xlarge"


def test_part_of_an_instance_reads_back():
    part = parse_gpus("p5.48xlarge").with_gpus(4)
    assert part.spec == "1x4xp5.48xlarge"
    assert parse_gpus(part.spec) == part


def test_describe_is_one_line():
    text = parse_gpus("2x8xMI250X").describe()
    assert "32 x die of AMD Instinct MI250X, 16 cards of 2 dies, on 2 nodes" in text
    assert "\n" not in text
    assert "dies" not in parse_gpus("8xMI300X").describe()


def test_a_card_of_two_devices_is_said():
    said = [a for a in parse_gpus("8xMI250X").assumed if a.what == "gcds"]
    assert [(a.where, a.value) for a in said] == [("MI250X", "2 devices a card")]
    assert "8xMI250X is 16 devices" in said[0].why
    assert not [a for a in parse_gpus("8xH100").assumed if a.what == "gcds"]
