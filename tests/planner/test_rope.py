"""Rotary positions: read from a config.json, kept in every form, said or refused by a stack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costmodels.architecture import Architecture
from planner.advisor.judge import megatron_shape
from planner.advisor.readers import read_arguments
from planner.catalogue import load_model, model_names, resolve_model
from planner.emit.megatron_deepspeed import rotary
from planner.emit.model_config import model_config
from planner.emit.rope import (
    base_arguments,
    megatron_note,
    megatron_rope,
    titan_scaling,
    unscaled_note,
)
from planner.emit.torchtitan import check_model, rope_note
from planner.hf_config import read_config

DATA = Path(__file__).parent / "data"
PUBLISHED = json.loads((DATA / "published_configs.json").read_text())
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(tmp_path: Path, config: dict[str, Any]) -> Architecture:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return read_config(path)[0]


def changed(name: str, **keys: Any) -> dict[str, Any]:
    return {**PUBLISHED[name], **keys}


@pytest.mark.parametrize(
    ("name", "theta", "fraction"),
    [
        ("llama2-7b", 1e4, 1.0),
        ("llama3-8b", 5e5, 1.0),
        ("mistral-7b-v0.1", 1e4, 1.0),
        ("mistral-7b-v0.3", 1e6, 1.0),
        ("mixtral-8x7b", 1e6, 1.0),
        ("qwen2.5-7b", 1e6, 1.0),
        ("qwen3-8b", 1e6, 1.0),
        ("yi-34b", 5e6, 1.0),
        ("phi-2", 1e4, 0.4),
        ("gpt-neox-20b", 1e4, 0.25),
        ("glm-4-32b-0414", 1e4, 0.5),
    ],
)
def test_released_bases(name: str, theta: float, fraction: float) -> None:
    arch = load_model(name)
    assert (arch.rope_theta, arch.rope_fraction) == (theta, fraction)


def test_llama_3_1_stretches_by_8_and_3_2_by_32() -> None:
    assert dict(load_model("llama3.1-8b").rope_scaling) == LLAMA3
    assert dict(load_model("llama3.2-3b").rope_scaling) == {**LLAMA3, "factor": 32.0}
    assert load_model("llama3-8b").rope_scaling == ()


def test_longrope_has_a_factor_for_every_pair_of_turned_dimensions() -> None:
    arch = load_model("phi-4-mini")
    pairs = int(arch.head_dim * arch.rope_fraction) // 2
    scaling = dict(arch.rope_scaling)
    for key in ("short_factor", "long_factor"):
        factors = scaling[key]
        assert isinstance(factors, tuple)
        assert len(factors) == pairs == 48


@pytest.mark.parametrize("keys", ["old", "older", "new"])
def test_old_and_new_spellings_are_one_network(tmp_path: Path, keys: str) -> None:
    older = {**{k: v for k, v in LLAMA3.items() if k != "rope_type"}, "type": "llama3"}
    rope = {
        "old": {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
        "older": {"rope_theta": 500000.0, "rope_scaling": older},
        "new": {"rope_scaling": None, "rope_parameters": {**LLAMA3, "rope_theta": 500000.0}},
    }[keys]
    config = {k: v for k, v in PUBLISHED["llama3-8b"].items() if not k.startswith("rope")}
    arch = read(tmp_path, {**config, **rope})
    assert arch.rope_theta == 5e5
    assert dict(arch.rope_scaling) == LLAMA3


def test_gemma_3_has_two_bases(tmp_path: Path) -> None:
    old = read(tmp_path, changed("gemma3-1b", rope_theta=2e6, rope_local_base_freq=3e4))
    parameters = {
        "full_attention": {"rope_type": "default", "rope_theta": 2e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 3e4},
    }
    new = read(tmp_path, changed("gemma3-1b", rope_parameters=parameters))
    for arch in (old, new):
        assert (arch.rope_theta, arch.rope_local_theta) == (2e6, 3e4)


def test_gpt_neox_has_its_own_words(tmp_path: Path) -> None:
    arch = read(tmp_path, changed("pythia-1.4b", rotary_emb_base=500, rotary_pct=0.5))
    assert (arch.rope_theta, arch.rope_fraction) == (500, 0.5)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("llama3-8b", {"rope_theta": 123456.0}),
        ("llama3-8b", {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}}),
        ("llama3-8b", {"rope_theta": 5e5, "rope_scaling": LLAMA3}),
        ("qwen3-8b", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
        ("pythia-1.4b", {"rotary_emb_base": 20000, "rotary_pct": 0.5}),
        ("phi-2", {"partial_rotary_factor": 0.75}),
        ("gemma3-1b", {"rope_theta": 2e6, "rope_local_base_freq": 3e4}),
        ("glm-4-9b", {"partial_rotary_factor": 0.25}),
        ("falcon-7b", {"rope_theta": 3e4}),
    ],
)
def test_a_config_read_and_written_turns_the_same(
    tmp_path: Path, name: str, keys: dict[str, Any]
) -> None:
    arch = read(tmp_path, changed(name, **keys))
    again = read(tmp_path, model_config(arch))
    for field in ("rope_theta", "rope_fraction", "rope_local_theta", "rope_scaling"):
        assert getattr(again, field) == getattr(arch, field), field
    assert arch != load_model(name)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rope_theta": "big"}, "key 'rope_theta' must be a number above 0"),
        ({"rope_theta": 0}, "key 'rope_theta' must be a number above 0"),
        ({"rope_scaling": [1]}, "key 'rope_scaling' must be an object"),
        ({"rope_scaling": {"type": "linear"}}, "rope_type linear needs factor"),
        ({"partial_rotary_factor": 1.5}, "rope_fraction"),
    ],
)
def test_bad_positions_are_one_line(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, changed("llama3-8b", **keys))
    assert "\n" not in str(caught.value)


def test_a_yaml_shape_says_them_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "{layers: 2, hidden: 256, heads: 4, vocab: 512, rope_theta: 500000, rope_fraction: 0.5,"
        " rope_scaling: {rope_type: linear, factor: 2.0}}"
    )
    arch = resolve_model(str(path)).architecture
    assert (arch.rope_theta, arch.rope_fraction) == (5e5, 0.5)
    assert dict(arch.rope_scaling) == {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize("name", model_names())
def test_megatron_says_the_base_or_refuses(name: str) -> None:
    arch = load_model(name)
    if arch.positional != "rope":
        assert megatron_rope(arch) == rotary(arch) == []
        return
    if arch.rope_local_theta not in (0, arch.rope_theta):
        with pytest.raises(ValueError, match="one rotary base"):
            megatron_rope(arch)
        return
    base = str(int(arch.rope_theta))
    assert ("--rotary-base", base) in megatron_rope(arch)
    assert ("--rotary-position-embeddings-theta", base) in rotary(arch)
    part = ("--rotary-percent", str(arch.rope_fraction))
    assert (part in megatron_rope(arch)) == (part in rotary(arch)) == (arch.rope_fraction < 1)


def test_megatron_scales_as_llama_3_1() -> None:
    arguments = megatron_rope(load_model("llama3.1-8b"))
    assert ("--use-rope-scaling",) in arguments
    assert ("--rope-scaling-factor", "8.0") in arguments
    assert megatron_note(load_model("llama3.1-8b")) == ""
    assert "whatever --rope-scaling-factor says" in megatron_note(load_model("llama3.2-1b"))
    other = replace(
        load_model("llama3-8b"), rope_scaling=(("factor", 2.0), ("rope_type", "linear"))
    )
    assert "no linear scaling" in megatron_note(other)


def test_latent_attention_scales_by_yarn() -> None:
    arch = load_model("deepseek-v2-lite")
    arguments = dict(a for a in megatron_rope(arch) if len(a) == 2)
    assert arguments["--rope-type"] == "yarn"
    assert arguments["--rotary-scaling-factor"] == "40"
    assert arguments["--mscale"] == arguments["--mscale-all-dim"] == "0.707"
    assert megatron_note(arch) == ""
    plain = dict(a for a in megatron_rope(replace(arch, rope_scaling=())) if len(a) == 2)
    assert plain["--rope-type"] == "rope"


def test_what_a_target_cannot_turn_is_refused_or_noted() -> None:
    llama = load_model("llama3-8b")
    with pytest.raises(ValueError, match="whole number"):
        base_arguments(replace(llama, rope_theta=10000.5), "--rotary-base", "Megatron-LM")
    with pytest.raises(ValueError, match="whole heads"):
        check_model(replace(llama, rope_fraction=0.5), 2048)
    with pytest.raises(ValueError, match="whole heads"):
        model_config(replace(llama, rope_fraction=0.5))
    scaled = load_model("llama3.1-8b")
    assert "no llama3 scaling" in unscaled_note(scaled, "Megatron-DeepSpeed")
    assert rope_note(scaled) == unscaled_note(llama, "any") == ""
    qwen = replace(load_model("qwen3-8b"), rope_scaling=scaled.rope_scaling)
    assert "no llama3 scaling" in rope_note(qwen)


def test_torchtitan_stretches_llama_3_1() -> None:
    assert titan_scaling(load_model("llama3.1-8b")) == {
        "scaling": "llama",
        "scaling_factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert titan_scaling(load_model("llama3-8b")) == {}


@pytest.mark.parametrize("name", ["llama3-8b", "llama3.1-8b", "llama2-7b"])
def test_megatron_flags_read_back_turn_the_same(name: str) -> None:
    arch = load_model(name)
    text = "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32"
    flags = [" ".join(argument) for argument in megatron_rope(arch)]
    text = " ".join([text, "--position-embedding-type rope", *flags])
    read_back = megatron_shape(read_arguments(text))
    assert read_back is not None
    assert read_back.rope_theta == arch.rope_theta
    assert dict(read_back.rope_scaling) == dict(arch.rope_scaling)
