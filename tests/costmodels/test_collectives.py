"""Collectives: limits, who shares which link, measured points."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    call_latency,
    gradient_latency,
    group_bandwidth,
    inside_bandwidth,
    leaves_node,
    members_in_node,
)
from costmodels.rates import links_of
from hardware_db import parse_gpus

DGX_A100 = links_of(parse_gpus("4xdgx-a100-640"))
DGX_1V = links_of(parse_gpus("2xdgx-1v"))
COLLECTIVES = (all_reduce_time, all_gather_time, all_to_all_time)
RANKS = st.sampled_from([1, 2, 4, 8, 16, 32])


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_has_nobody_to_talk_to(collective):
    assert collective(DGX_A100, 1e9, 1) == 0
    assert call_latency(DGX_A100, 2, 1, 1) == 0 == gradient_latency(DGX_A100, 1, 1)


@given(st.floats(1e3, 1e10), st.floats(1, 10), RANKS, st.sampled_from(COLLECTIVES))
def test_more_bytes_never_take_less(size, factor, ranks, collective):
    more = collective(DGX_A100, size * factor, ranks)
    assert more >= collective(DGX_A100, size, ranks) * (1 - 0.12)  # the measured curve has a dent


@given(st.floats(1e3, 1e10), RANKS, st.sampled_from([1, 2, 4, 8]), st.sampled_from(COLLECTIVES))
def test_a_faster_network_never_hurts(size, ranks, stride, collective):
    faster = replace(DGX_A100, node=2 * DGX_A100.node)
    assert collective(faster, size, ranks, stride) <= collective(DGX_A100, size, ranks, stride)


@pytest.mark.parametrize(
    ("size", "seconds"), [(1 << 20, 101.9e-6), (1 << 28, 2420.6e-6), (1 << 30, 8203.9e-6)]
)
def test_all_reduce_in_a_dgx_a100_as_measured(size, seconds):
    """nccl-tests on 8 A100 (ml-engineering, network benchmarks)."""
    assert all_reduce_time(DGX_A100, size, 8) == pytest.approx(seconds, rel=0.02)


def test_a_group_gets_its_share_of_the_node_network():
    """tp = 16 owns both nodes' cards; each of 8 data-parallel groups has one of 8."""
    assert group_bandwidth(DGX_A100, 16, 1) == pytest.approx(DGX_A100.node)
    assert group_bandwidth(DGX_A100, 4, 8) == pytest.approx(DGX_A100.node / 8)
    assert group_bandwidth(DGX_A100, 8, 1) == pytest.approx(DGX_A100.intra)


def test_placement_counts_as_enumerated():
    for tp in (1, 2, 4, 8, 16):
        for dp in (1, 2, 4):
            ranks = np.arange(tp * dp).reshape(dp, tp)
            for group, stride in ((ranks[0], 1), (ranks[:, 0], tp)):
                nodes, counts = np.unique(group // 8, return_counts=True)
                assert leaves_node(group.size, stride, 8) == (nodes.size > 1)
                assert members_in_node(group.size, stride, 8) == counts[0]


def test_without_a_switch_two_gpus_share_one_link():
    """V100 cube mesh: a pair reaches 20 of 122 GB/s (DLPerf, Megatron-LM 2-way tensor parallel)."""
    assert inside_bandwidth(DGX_1V, 2) == pytest.approx(DGX_1V.pair)
    assert inside_bandwidth(DGX_1V, 8) == pytest.approx(DGX_1V.intra)
    assert inside_bandwidth(DGX_A100, 2) == pytest.approx(DGX_A100.intra)


def test_arrays_give_what_scalars_give():
    ranks, sizes = np.array([[1], [2], [8], [16]]), np.array([1e4, 1e8])
    for collective in COLLECTIVES:
        table = collective(DGX_A100, sizes, ranks)
        for i, j in np.ndindex(4, 2):
            assert table[i, j] == collective(DGX_A100, sizes[j], ranks[i, 0])
