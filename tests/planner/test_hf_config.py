"""Hugging Face configurations: every family's counts and shapes, and errors in bad ones."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from costmodels.params import active_parameters, total_parameters
from planner.catalogue import load_entry, load_model, resolve_model
from planner.hf_config import SAME_AS, read_config, supported_families

DATA = Path(__file__).parent / "data"
# transformers builds these; the counts are of the parameters it creates.
TINY = json.loads((DATA / "tiny_configs.json").read_text())["models"]
PUBLISHED = json.loads((DATA / "published_configs.json").read_text())
LLAMA = PUBLISHED["llama2-13b"]
# What the released configuration and the catalogue say differently, and why.
DIFFERENT = {
    "gpt-neox-20b": {"activation"},  # gelu_fast, an approximation of gelu
    "deepseek-v2-lite": {"max_seq_len"},  # trained to 32k, configured for 160k
}


def write(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return path


@pytest.mark.parametrize("case", TINY, ids=lambda case: case["config"]["model_type"])
def test_counts_of_transformers(tmp_path, case):
    arch, _ = read_config(write(tmp_path, case["config"]))
    assert total_parameters(arch) == case["parameters"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_are_the_catalogue(tmp_path, name):
    arch, _ = read_config(write(tmp_path, PUBLISHED[name]))
    entry, known = load_entry(name), load_model(name)
    assert total_parameters(arch) == entry.parameters
    if entry.active_parameters:
        assert active_parameters(arch) == entry.active_parameters
    ignored = {"name", "published_parameters"} | DIFFERENT.get(name, set())
    for field in dataclasses.fields(arch):
        if field.name not in ignored:
            assert getattr(arch, field.name) == getattr(known, field.name), field.name


def test_stablelm_3b(tmp_path):
    """2,795,443,200, model card of stabilityai/stablelm-3b-4e1t."""
    config = {
        "model_type": "stablelm",
        "hidden_size": 2560,
        "intermediate_size": 6912,
        "max_position_embeddings": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "tie_word_embeddings": False,
        "vocab_size": 50304,
    }
    assert total_parameters(read_config(write(tmp_path, config))[0]) == 2_795_443_200


def test_every_family_is_counted():
    seen = {case["config"]["model_type"] for case in TINY}
    seen |= {config["model_type"] for config in PUBLISHED.values()}
    assert set(supported_families()) - set(SAME_AS) <= seen


def test_folder_or_file(tmp_path):
    folder = tmp_path / "Llama 2 (mine)"
    folder.mkdir()
    path = write(folder, LLAMA)
    for text in (str(path), str(folder), f"{folder}/"):
        resolved = resolve_model(text)
        assert resolved.how == "config.json"
        assert resolved.architecture.name == "Llama-2-mine"
        assert resolved.note == f"shape read from {path}"
    other = folder / "shape.json"
    path.rename(other)
    assert resolve_model(str(other)).architecture.name == "shape"


def test_other_towers_are_left_out_and_said_so(tmp_path):
    arch, note = read_config(write(tmp_path, PUBLISHED["gemma3-4b"]))
    assert arch.family == "gemma3_text"
    assert note == "language model only, without the other towers"


def test_quantisation_is_left_out_and_said_so(tmp_path):
    quantised = {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    arch, note = read_config(write(tmp_path, quantised))
    assert arch == read_config(write(tmp_path, LLAMA))[0]
    assert "quantization_config left out" in note


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def test_defaults_of_the_class(tmp_path):
    less = without(LLAMA, "num_key_value_heads", "tie_word_embeddings", "max_position_embeddings")
    arch, _ = read_config(write(tmp_path, less))
    assert (arch.kv_heads, arch.tied_embeddings, arch.max_seq_len) == (40, False, 2048)
    less = without(PUBLISHED["mistral-7b-v0.1"], "num_key_value_heads", "sliding_window")
    arch, _ = read_config(write(tmp_path, less))
    assert (arch.kv_heads, arch.sliding_window) == (8, 4096)
    arch, _ = read_config(write(tmp_path, {**LLAMA, "num_key_value_heads": None, "head_dim": None}))
    assert (arch.kv_heads, arch.head_dim) == (40, 128)


def test_layer_types(tmp_path):
    base = without(PUBLISHED["gpt-oss-20b"], "layer_types")
    arch, note = read_config(write(tmp_path, {**base, "layer_types": ["full_attention"] * 24}))
    assert (arch.sliding_window, note) == (0, "")
    arch, note = read_config(write(tmp_path, {**base, "layer_types": ["sliding_attention"] * 24}))
    assert (arch.sliding_window, arch.global_layer_every) == (128, 0)
    odd = ["full_attention", *["sliding_attention"] * 23]
    arch, note = read_config(write(tmp_path, {**base, "layer_types": odd}))
    assert arch.sliding_window == 0
    assert "irregular layer_types" in note


def test_qwen_windows(tmp_path):
    base = {**PUBLISHED["qwen2-7b"], "use_sliding_window": True, "sliding_window": 4096}
    arch, _ = read_config(write(tmp_path, {**base, "max_window_layers": 0}))
    assert arch.sliding_window == 4096
    arch, note = read_config(write(tmp_path, {**base, "max_window_layers": 14}))
    assert arch.sliding_window == 0
    assert "first 14 layers" in note


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (without(LLAMA, "model_type"), "key 'model_type' is missing"),
        ({**LLAMA, "model_type": "t5"}, "model_type 't5' is not supported; supported: RefinedWeb"),
        ({**LLAMA, "model_type": ["llama"]}, "model_type ['llama'] is not supported"),
        (without(LLAMA, "hidden_size"), "key 'hidden_size' is missing"),
        (without(LLAMA, "num_hidden_layers"), "key 'num_hidden_layers' is missing"),
        (without(LLAMA, "vocab_size"), "key 'vocab_size' is missing"),
        ({**LLAMA, "hidden_size": None}, "key 'hidden_size' is missing"),
        ({**LLAMA, "hidden_size": "5120"}, "key 'hidden_size' must be a whole number"),
        ({**LLAMA, "hidden_size": 5120.0}, "key 'hidden_size' must be a whole number"),
        ({**LLAMA, "hidden_size": True}, "key 'hidden_size' must be a whole number"),
        ({**LLAMA, "num_hidden_layers": 0}, "from 1 to 1000000000, got 0"),
        ({**LLAMA, "num_hidden_layers": -4}, "from 1 to 1000000000, got -4"),
        ({**LLAMA, "vocab_size": 10**40}, "key 'vocab_size' must be a whole number"),
        ({**LLAMA, "hidden_size": [5120] * 999}, "key 'hidden_size' must be"),
        ({**LLAMA, "tie_word_embeddings": "no"}, "'tie_word_embeddings' must be true or false"),
        ({**LLAMA, "hidden_act": 3}, "key 'hidden_act' must be a string"),
        ({**LLAMA, "num_attention_heads": 37}, "hidden 5120 is not a multiple of heads 37"),
        ({**LLAMA, "num_key_value_heads": 7}, "heads 40 is not a multiple of kv_heads 7"),
        ({**PUBLISHED["phi-2"], "qk_layernorm": True}, "key 'qk_layernorm' must be false"),
        ({**PUBLISHED["mpt-7b"], "attn_config": 3}, "key 'attn_config' must be an object"),
        (
            {**PUBLISHED["mpt-7b"], "attn_config": {"alibi": False}},
            "key 'attn_config.alibi' must be true",
        ),
        (
            {**PUBLISHED["qwen3-30b-a3b"], "mlp_only_layers": [3]},
            "key 'mlp_only_layers' must be the leading layers",
        ),
        ({**PUBLISHED["gpt-oss-20b"], "layer_types": "all"}, "'layer_types' must be a list of str"),
        (without(PUBLISHED["gpt2-xl"], "n_embd"), "key 'n_embd' is missing"),
        ('{"model_type": "gpt2", "n_embd": 8, "n_embd": 9}', "key 'n_embd' is given twice"),
        ('{"a": {"b": 1, "b": 2}}', "key 'b' is given twice"),
        ([1, 2], "expected a JSON object, got a list"),
        ("", "not JSON: Expecting value at line 1"),
        ('{"model_type": "llama", "hidden_size"', "not JSON"),
        ("[" * 200_000, "not a model configuration"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not a model configuration"),
        ('{"model_type": "gpt2", "n_embd": NaN}', "key 'n_embd' must be a whole number"),
    ],
)
def test_bad_configurations_are_one_line(tmp_path, config, message):
    path = write(tmp_path, config)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        resolve_model(str(path))
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < len(str(path)) + 500


def test_files_that_are_no_configuration(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b'{"model_type": "\xff\xfe"}')
    with pytest.raises(ValueError, match="not UTF-8 text"):
        resolve_model(str(path))
    path.write_bytes(b" " * (5 << 20))
    with pytest.raises(ValueError, match="larger than 4 MiB"):
        resolve_model(str(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="not a file"):
        resolve_model(str(path))
