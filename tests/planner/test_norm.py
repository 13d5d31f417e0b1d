"""The norms' epsilon: read from a config.json, kept in every form, said by every stack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.advisor.judge import megatron_shape
from planner.advisor.readers import read_arguments
from planner.catalogue import load_model, model_names, resolve_model
from planner.emit.model_config import WRITERS, model_config
from planner.emit.norm import hf_norm, norm_argument
from planner.hf_config import READERS, read_config
from planner.hf_norm import DEFAULTS, KEYS

DATA = Path(__file__).parent / "data"
TINY = json.loads((DATA / "tiny_configs.json").read_text())["models"]
PUBLISHED = json.loads((DATA / "published_configs.json").read_text())


def read(tmp_path: Path, config: dict[str, Any]) -> Any:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return read_config(path)[0]


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        ("llama-7b", 1e-6),
        ("llama2-7b", 1e-5),
        ("llama3.1-8b", 1e-5),
        ("mixtral-8x22b", 1e-5),
        ("qwen2-7b", 1e-6),
        ("qwen2-72b", 1e-5),
        ("qwen2.5-7b", 1e-6),
        ("qwen2.5-32b", 1e-5),
        ("qwen3-8b", 1e-6),
        ("gemma2-9b", 1e-6),
        ("deepseek-v3", 1e-6),
        ("glm-4-9b", 1.5625e-7),
        ("bert-base", 1e-12),
        ("gpt3-175b", 1e-5),
        ("bloom-176b", 1e-5),
    ],
)
def test_released_epsilons(name: str, epsilon: float) -> None:
    assert load_model(name).norm_eps == epsilon


def test_every_table_names_families_that_are_read() -> None:
    assert set(KEYS) | set(DEFAULTS) <= set(READERS)


@pytest.mark.parametrize("family", sorted(READERS))
def test_the_default_of_transformers(tmp_path: Path, family: str) -> None:
    """What transformers 5.24 gives a configuration that leaves the key out."""
    tiny = next((c["config"] for c in TINY if c["config"]["model_type"] == family), None)
    if tiny is None:
        tiny = next(c for c in PUBLISHED.values() if c["model_type"] == family)
    plain = {key: value for key, value in tiny.items() if key != KEYS.get(family, "rms_norm_eps")}
    millionth = {
        *("llama", "mistral", "gemma", "gemma2", "gemma3_text", "deepseek_v2", "deepseek_v3"),
        *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
    }
    usual = 1e-6 if family in millionth else 1e-5
    expected = {"bert": 1e-12, "glm": 1.5625e-7, "glm4": 1.5625e-7}.get(family, usual)
    assert read(tmp_path, plain).norm_eps == expected


# 40 heads of 128 make no 5140, so transformers cannot build that one.
WRITTEN = [
    name for name in model_names() if load_model(name).family in WRITERS and name != "gpt3-13b"
]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_config_written_and_read_norms_the_same(tmp_path: Path, name: str) -> None:
    arch = load_model(name)
    assert read(tmp_path, model_config(arch)).norm_eps == arch.norm_eps
    if arch.family != "opt":
        other = replace(arch, norm_eps=3e-4)
        assert read(tmp_path, model_config(other)).norm_eps == 3e-4


def test_opt_has_one_epsilon() -> None:
    arch = load_model("opt-1.3b")
    assert hf_norm(arch) == {}
    with pytest.raises(ValueError, match="1e-05 to the variance, not 1e-06"):
        hf_norm(replace(arch, norm_eps=1e-6))


@pytest.mark.parametrize("value", [0, -1e-5, "small"])
def test_bad_epsilons_are_one_line(tmp_path: Path, value: object) -> None:
    with pytest.raises(ValueError, match="key 'rms_norm_eps' must be a number above 0"):
        read(tmp_path, {**PUBLISHED["llama3-8b"], "rms_norm_eps": value})
    with pytest.raises(ValueError, match="norm_eps"):
        read(tmp_path, {**PUBLISHED["llama3-8b"], "rms_norm_eps": 2})


def test_a_shape_says_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    shape = "{layers: 2, hidden: 64, heads: 4, vocab: 100"
    path.write_text(shape + ", norm_eps: 1e-6}")
    assert resolve_model(str(path)).architecture.norm_eps == 1e-6
    path.write_text(shape + "}")
    assert resolve_model(str(path)).architecture.norm_eps == 1e-5


@pytest.mark.parametrize("flag", ["--norm-epsilon", "--layernorm-epsilon"])
def test_megatron_lines_are_read_back(flag: str) -> None:
    arch = load_model("qwen3-8b")
    line = "--num-layers 2 --hidden-size 64 --num-attention-heads 4"
    shape = megatron_shape(read_arguments(" ".join((line, *norm_argument(arch, flag)))))
    assert shape is not None
    assert shape.norm_eps == 1e-6
    usual = megatron_shape(read_arguments(line))
    assert usual is not None
    assert usual.norm_eps == 1e-5
