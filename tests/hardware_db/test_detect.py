"""nvidia-smi, with a stand-in for the program."""

import sys

import pytest

from hardware_db import detect


def smi(*lines):
    def run(command):
        assert command[0] == "nvidia-smi"
        return "\n".join(lines) + "\n"

    return run


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("NVIDIA A100-SXM4-80GB, 81920", "a100-sxm4-80g"),
        ("NVIDIA A100 80GB PCIe, 81920", "a100-pcie-80g"),
        ("A100-SXM4-40GB, 40536", "a100-sxm4-40g"),
        ("Tesla V100-SXM2-32GB, 32510", "v100-sxm2-32g"),
        ("Tesla T4, 15360", "t4-16g"),
        ("NVIDIA H100 80GB HBM3, 81559", "h100-sxm5-80g"),
        ("NVIDIA H100 PCIe, 81559", "h100-pcie-80g"),
        ("NVIDIA H200, 143771", "h200-sxm-141g"),
        ("NVIDIA B200, 183359", "b200-180g"),
        ("NVIDIA GH200 480GB, 97871", "gh200-96g"),
        ("NVIDIA GeForce RTX 4090, 24564", "rtx4090-24g"),
        ("NVIDIA L40S, 46068", "l40s-48g"),
        ("NVIDIA A10G, 23028", "a10g-24g"),
    ],
)
def test_names_as_nvidia_smi_prints_them(line, gpu):
    cluster = detect(smi(line), host_memory=64e9)
    assert cluster.gpu.id == gpu
    assert (cluster.nodes, cluster.gpus) == (1, 1)
    assert cluster.node.host_memory == 64e9


def test_eight_of_them():
    cluster = detect(smi(*["NVIDIA H100 80GB HBM3, 81559"] * 8), host_memory=1e12)
    assert cluster.spec == "8xH100-80G"


def test_more_than_any_known_node_holds():
    cluster = detect(smi(*["NVIDIA GeForce RTX 4090, 24564"] * 10), host_memory=1e12)
    assert (cluster.nodes, cluster.gpus, cluster.node.gpus) == (1, 10, 10)


def test_the_host_memory_is_read_here():
    assert detect(smi("Tesla T4, 15360")).node.host_memory > 1e8


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["Tesla T4, 15360", "NVIDIA A10G, 23028"], "needs equal GPUs.*NVIDIA A10G and Tesla T4"),
        (["NVIDIA Quadro 42, 100"], "unknown GPU.*nearest names"),
        ([""], "lists no GPU"),
        (["No devices were found"], "cannot read nvidia-smi's line"),
    ],
)
def test_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        detect(smi(*lines), host_memory=1e9)


def test_without_nvidia_smi(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="needs nvidia-smi, which is not here"):
        detect()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell script in the place of nvidia-smi."""

    def put(body):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
        return path

    return put


def refusal():
    with pytest.raises(ValueError, match="--gpus auto") as error:
        detect()
    said = str(error.value)
    assert "\n" not in said
    assert "('" not in said
    assert said.endswith("name the GPUs, as in 8xA100-80G")
    return said


def test_a_failing_nvidia_smi_says_why(program):
    program("echo 'NVIDIA-SMI has failed because\nit could not reach the driver' >&2; exit 9")
    said = refusal()
    assert "exit status 9 (NVIDIA-SMI has failed because it could not reach the driver)" in said


def test_a_silent_failure(program):
    program("exit 3")
    assert "exit status 3 (it says nothing)" in refusal()


def test_a_program_that_is_no_program(program):
    program("").write_bytes(b"\x7fELF\x00")
    assert "cannot run nvidia-smi" in refusal()


def test_what_is_not_text(program):
    program(r"printf '\377\376'")
    assert "its output is not text" in refusal()


def test_a_hung_nvidia_smi(program, monkeypatch):
    module = sys.modules["hardware_db.detect"]
    assert module._PATIENCE == 10
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    program("exec sleep 20")
    assert "gave no answer in 0.2 s" in refusal()
