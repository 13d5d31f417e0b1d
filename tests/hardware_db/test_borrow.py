"""A user's GPU stays the user's: on a known node, beside known names, and under auto."""

import copy
from pathlib import Path

import pytest
import yaml

import hardware_db
from hardware_db import detect, find, gpu_names, load_gpu, load_node, node_names, parse_gpus

ROOT = Path(hardware_db.__file__).parent


def quantity(value, unit):
    return {"value": value, "unit": unit, "kind": "measured", "source": "our own measurement"}


def copied(gpu, **changes):
    """A built-in GPU's file with another id, short name and memory."""
    raw = yaml.safe_load((ROOT / "gpus" / f"{gpu}.yaml").read_text(encoding="utf-8"))
    mine = {"id": "mygpu", "short": "MyGPU", "memory": quantity(64, "GiB")}
    return {**raw, **mine, **changes}


def without(entry, *keys):
    return {k: v for k, v in entry.items() if k not in keys}


@pytest.fixture
def write(tmp_path):
    def write(gpus=(), nodes=()):
        path = tmp_path / "hw.yaml"
        content = copy.deepcopy({"gpus": list(gpus), "nodes": list(nodes)})
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return write


def box(**changes):
    raw = yaml.safe_load((ROOT / "nodes" / "dgx-h100.yaml").read_text(encoding="utf-8"))
    return {**raw, "id": "ours", "short": "ours", "name": "Our box", "aliases": [], **changes}


@pytest.mark.parametrize("gpu", gpu_names())
@pytest.mark.parametrize("text", ["MyGPU", "8xMyGPU", "2x1xmygpu"])
def test_a_copy_of_any_gpu_keeps_its_own_facts(write, gpu, text):
    path = write([copied(gpu, memory=quantity(7, "GiB"))])
    cluster = parse_gpus(text, extra=path)
    theirs = load_gpu(gpu)
    assert (cluster.gpu.id, cluster.gpu.short) == ("mygpu", "MyGPU")
    assert cluster.gpu.memory == cluster.memory_limit == 7 * 2**30
    assert cluster.spec.endswith("xMyGPU")
    assert parse_gpus(cluster.spec, extra=path) == cluster
    node = load_node(cluster.node.id)
    assert node.gpu.id == theirs.id
    for fact in ("gpus", "inter_bandwidth", "host_memory", "cpu_cores", "nvme_capacity", "fabric"):
        assert getattr(cluster.node, fact) == getattr(node, fact)


def test_the_exchange_is_assumed_and_described(write):
    cluster = parse_gpus("8xMyGPU", extra=write([copied("a100-sxm4-80g")]))
    note = next(a for a in cluster.assumed if a.what == "gpu")
    assert (note.where, note.value) == ("dgx-a100-640", "MyGPU")
    assert "A100-80G" in note.why
    assert note in cluster.node.assumed
    assert "with MyGPU" in cluster.describe()
    assert "64.0 GiB per GPU" in cluster.describe()
    assert cluster.node.price_per_hour is None


def test_links_the_gpu_states_are_its_own(write):
    slow = copied("a100-sxm4-80g", bus_bandwidth=quantity(50, "GB/s"))
    cluster = parse_gpus("8xMyGPU", extra=write([slow]))
    assert cluster.node.intra_bandwidth == cluster.node.p2p_bandwidth == 50e9
    assert "intra_bandwidth" not in {a.what for a in cluster.assumed}


def test_links_the_gpu_leaves_open_are_the_nodes_and_assumed(write):
    bare = without(copied("a100-sxm4-80g"), "bus_bandwidth", "pcie_bandwidth", "all_reduce_table")
    cluster = parse_gpus("8xMyGPU", extra=write([bare]))
    node = load_node("dgx-a100-640")
    assert cluster.node.intra_bandwidth == node.intra_bandwidth
    assert cluster.node.p2p_bandwidth == node.p2p_bandwidth
    assumed = {a.what for a in cluster.assumed}
    assert assumed >= {"intra_bandwidth", "p2p_bandwidth", "pcie_bandwidth"}
    assert "bus_bandwidth" not in assumed


def test_cards_take_the_place_of_cards(write):
    twin = copied("a100-sxm4-80g", gcds={**quantity(2, "-")})
    cluster = parse_gpus("8xMyGPU", extra=write([twin]))
    assert (cluster.gpus, cluster.nodes, cluster.spec) == (16, 1, "8xMyGPU")
    single = without(copied("mi250x-128g"), "gcds")
    assert parse_gpus("16xMyGPU", extra=write([single])).nodes == 2


def test_a_reference_node_by_any_name_and_of_the_user(write):
    by_name = copied("a100-sxm4-80g", reference_nodes=["NVIDIA DGX H100"])
    assert parse_gpus("8xMyGPU", extra=write([by_name])).node.id == "dgx-h100"
    by_own = copied("a100-sxm4-80g", reference_nodes=["ours"])
    cluster = parse_gpus("8xMyGPU", extra=write([by_own], [box()]))
    assert (cluster.node.id, cluster.gpu.id) == ("ours", "mygpu")
    assert parse_gpus("ours", extra=write([by_own], [box()])).gpu.id == "h100-sxm5-80g"


def test_a_users_node_holds_the_users_gpu(write):
    path = write([copied("a100-sxm4-80g")], [box(gpu="MyGPU")])
    for text in ("ours", "8xMyGPU"):
        cluster = parse_gpus(text, extra=path)
        assert (cluster.node.id, cluster.gpu.id) == ("ours", "mygpu")
        assert "gpu" not in {a.what for a in cluster.assumed}


def test_a_users_node_comes_before_a_reference_node_of_its_size(write):
    path = write(nodes=[box(host_memory=quantity(100, "GiB"))])
    for text in ("8xH100", "2xH100"):
        assert parse_gpus(text, extra=path).node.host_memory == 100 * 2**30


@pytest.mark.parametrize("key", ["id", "short"])
@pytest.mark.parametrize(
    "name", ["a100-sxm4-80g", "A100-80GB", "h100", "dgx-h100", "ref-8xt4-16g", "nvidia/T4"]
)
@pytest.mark.parametrize("kind", ["gpus", "nodes"])
def test_a_known_name_is_taken(write, key, name, kind):
    entry = copied("a100-sxm4-80g") if kind == "gpus" else box()
    with pytest.raises(ValueError, match=r"hw\.yaml: .* is taken by the built-in") as error:
        parse_gpus("8xH100", extra=write(**{kind: [{**entry, key: name}]}))
    assert "\n" not in str(error.value)


def test_every_known_id_is_taken(write):
    for name in (*gpu_names(), *node_names()):
        with pytest.raises(ValueError, match="taken by the built-in"):
            parse_gpus("8xH100", extra=write([copied("t4-16g", id=name)]))


def test_two_entries_cannot_share_a_name(write):
    first = copied("a100-sxm4-80g")
    for path in (
        write([first, {**first, "short": "Other"}]),
        write([first, {**first, "id": "other", "short": "my-gpu"}]),
        write([first], [box(short="mygpu")]),
    ):
        with pytest.raises(ValueError, match="taken by another entry of this file"):
            parse_gpus("8xMyGPU", extra=path)


@pytest.mark.parametrize("short", ["4xMine", "x4", "XPU", "A+B", "auto", "--", "a, b"])
def test_a_name_that_cannot_be_typed_is_refused(write, short):
    with pytest.raises(ValueError, match="cannot be typed in --gpus"):
        parse_gpus("8xmygpu", extra=write([copied("a100-sxm4-80g", short=short)]))


def test_shared_aliases_are_ambiguous_but_short_names_are_not(write):
    # the alias "A100 80GB" of the copy spells the short name of the built-in
    path = write([copied("a100-sxm4-80g")])
    assert parse_gpus("8xA100-80G", extra=path).gpu.id == "a100-sxm4-80g"
    assert find("A100-80G") == ("gpu", "a100-sxm4-80g")
    with pytest.raises(ValueError, match="ambiguous: it may be H100-80G, MyGPU"):
        parse_gpus("8xH100-SXM", extra=write([copied("h100-sxm5-80g")]))


def test_an_unknown_reference_node_lists_the_nearest(write):
    path = write([copied("a100-sxm4-80g", reference_nodes=["dgx-h10"])])
    with pytest.raises(ValueError, match=r"no reference node 'dgx-h10'.*dgx-h100"):
        parse_gpus("8xMyGPU", extra=path)


def test_auto_takes_the_users_gpu_of_that_name(write):
    path = write([copied("a100-sxm4-80g")])
    cluster = detect(lambda _: "NVIDIA A100-SXM4-80GB, 81920\n", host_memory=1e12, extra=path)
    assert (cluster.gpu.id, cluster.gpu.memory) == ("mygpu", 64 * 2**30)
