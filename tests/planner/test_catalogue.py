"""The catalogue: counts against the published ones, names, and paths to YAML shapes."""

import itertools
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costmodels.params import active_parameters, total_parameters
from planner import catalogue
from planner.catalogue import (
    bare_sizes,
    find_model,
    load_entry,
    load_model,
    model_aliases,
    model_names,
    normal_form,
    resolve_model,
)


@pytest.mark.parametrize("name", model_names())
def test_counts(name):
    """Ours is the entry's count; the published one within 0.1 %, or the entry says why not."""
    entry = load_entry(name)
    arch = load_model(name)
    assert total_parameters(arch) == entry.parameters
    apart = abs(entry.published / entry.parameters - 1)
    assert (apart > 1e-3) == bool(entry.difference)
    assert apart < 0.03
    assert entry.source
    assert entry.published_source
    if entry.active_parameters is not None:
        assert active_parameters(arch) == entry.active_parameters
    else:
        assert arch.moe is None


def test_exceptions_are_rounded_or_multimodal():
    apart = {name: load_entry(name).difference for name in model_names()}
    assert {reason for reason in apart.values() if reason} == {
        "published figure is rounded",
        "published figure is rounded (model card)",
        "published total includes the vision encoder, about 0.9 B",
    }
    assert sum(bool(reason) for reason in apart.values()) == 18


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2-small", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("opt-350m", 331_196_416),
        ("bloom-176b", 176_247_271_424),
        ("llama2-7b", 6_738_415_616),
        ("llama3-8b", 8_030_261_248),
        ("llama3.1-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        ("deepseek-v3", 671_026_419_200),
        ("qwen2.5-72b", 72_706_203_648),
        ("gemma2-27b", 27_227_128_320),
        ("phi-2", 2_779_683_840),
        ("falcon-7b", 6_921_720_704),
        ("gpt-neox-20b", 20_554_567_680),
        ("gpt-oss-120b", 116_829_156_672),
        ("bert-large", 335_141_888),
    ],
)
def test_well_known_counts(name, count):
    assert total_parameters(load_model(name)) == count


def test_every_model_is_there():
    assert len(model_names()) == len(set(model_names())) == 131


def test_index_and_files_agree():
    for file, models in catalogue._read("index.yaml")["files"].items():
        assert list(models) == list(catalogue._read(file)["models"])


def test_no_spelling_means_two_models():
    spellings = [
        {normal_form(text) for text in (name, *model_aliases(name))} for name in model_names()
    ]
    for one, other in itertools.combinations(spellings, 2):
        assert not one & other
    assert not set(bare_sizes()) & set().union(*spellings)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("llama2-13b", "llama2-13b"),
        ("llama-2-13b", "llama2-13b"),
        ("Llama2-13B", "llama2-13b"),
        ("LLAMA_2 13b", "llama2-13b"),
        ("meta-llama/Llama-2-13b-hf", "llama2-13b"),
        ("NousResearch/Llama-2-13b-chat-hf", "llama2-13b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"),
        ("meta-llama/Llama-3.1-8B", "llama3.1-8b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1-70b"),
        ("huggyllama/llama-7b", "llama-7b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("EleutherAI/gpt-neox-20b", "gpt-neox-20b"),
        ("EleutherAI/pythia-6.9b-deduped", "pythia-6.9b"),
        ("facebook/opt-1.3b", "opt-1.3b"),
        ("bigscience/bloom", "bloom-176b"),
        ("bigscience/bloom-7b1", "bloom-7b1"),
        ("tiiuae/falcon-7b-instruct", "falcon-7b"),
        ("mosaicml/mpt-7b", "mpt-7b"),
        ("google/gemma-2b", "gemma-2b"),
        ("google/gemma-2-9b", "gemma2-9b"),
        ("google/gemma-3-27b-it", "gemma3-27b"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("gpt2", "gpt2-small"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("GPT-3 175B", "gpt3-175b"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("google-bert/bert-base-uncased", "bert-base"),
    ],
)
def test_names(text, name):
    resolved = resolve_model(text)
    assert resolved.architecture.name == name
    assert resolved.how == "catalogue"


def test_notes_say_what_was_taken_for_what():
    assert resolve_model("llama-2-13b").note == ""
    assert resolve_model("gpt2").note == "gpt2 is gpt2-small in the catalogue"
    note = resolve_model("Llama-2-7b-chat-hf").note
    assert note == "Llama-2-7b-chat-hf has the shape of llama2-7b"


@pytest.mark.parametrize("size", bare_sizes())
def test_bare_sizes(size):
    """Each means one model, the note says which, and that has about that many parameters."""
    resolved = resolve_model(size.upper())
    assert resolved.note == f"{size} means {resolved.architecture.name}"
    number, unit = float(size[:-1]), {"m": 1e6, "b": 1e9, "t": 1e12}[size[-1]]
    total = total_parameters(resolved.architecture)
    assert total / (number * unit) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ("7b", "llama2-7b"),
        ("13b", "llama2-13b"),
        ("70b", "llama2-70b"),
        ("1.3b", "gpt3-1.3b"),
        ("8b", "llama3.1-8b"),
        ("175b", "gpt3-175b"),
        ("405b", "llama3.1-405b"),
    ],
)
def test_common_bare_sizes(size, name):
    assert bare_sizes()[size] == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llama-70b", "ambiguous: llama2-70b, llama3-70b, llama3.1-70b"),
        ("mistral-7b", "ambiguous: mistral-7b-v0.1, mistral-7b-v0.3"),
        ("qwen-7b", "ambiguous: qwen1.5-7b, qwen2-7b, qwen2.5-7b"),
        ("llama3-405b", "unknown model 'llama3-405b' (near: llama3.1-405b"),
        ("lama2-13b", "unknown model 'lama2-13b' (near: llama2-13b"),
        ("llama31-8b", "unknown model 'llama31-8b' (near: llama3.1-8b"),
        ("no such thing", "unknown model 'no such thing' (`planner models` lists them)"),
        ("7.5b", "no model stands for the bare size '7.5b'"),
        ("", "the model is empty"),
        ("-_-", "unknown model"),
        ("///", "///: expected a config.json"),
        ("missing.yaml", "missing.yaml: no such file"),
        ("missing/config.json", "missing/config.json: no such file"),
        ("./missing", "./missing: expected a config.json"),
    ],
)
def test_errors_are_one_line(text, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        resolve_model(text)
    assert "\n" not in str(caught.value)


def means(text):
    """The model, or the error's text."""
    try:
        return resolve_model(text).architecture.name
    except ValueError as error:
        return str(error)


@given(st.text(max_size=60))
@example("~nobody-of-that-name/x.yaml")
@example("a\0b.json")
@example("gpt2\n")
@example("~\r")
@example("a\rb.json")
def test_any_text_resolves_or_says_why_in_one_line(text):
    assert len(means(text).splitlines()) == 1


@given(st.sampled_from(model_names()), st.randoms(use_true_random=False))
def test_spelling_does_not_matter(name, random):
    """Any case, any separator in place of another, an organisation, an -hf suffix."""
    letters = [random.choice((c.lower(), c.upper())) for c in name]
    text = "".join(random.choice("-_ ") if c == "-" else c for c in letters)
    text = random.choice(("", "org/")) + text + random.choice(("", "-hf", "_HF"))
    assert find_model(text) == (name, "")


@pytest.mark.parametrize("name", [name for name in model_names() if "." in name])
def test_the_decimal_point_matters(name):
    """opt-13b is not opt-1.3b."""
    assert means(name.replace(".", "")) != name


def test_loading_one_model_is_quick():
    for cached in (catalogue._read, catalogue._files, catalogue._by_normal_form):
        cached.cache_clear()
    load_model.cache_clear()
    load_entry.cache_clear()
    start = time.process_time()
    resolve_model("meta-llama/Llama-2-13b-hf")
    assert time.process_time() - start < 0.03


def test_unknown_exact_name():
    with pytest.raises(ValueError, match="unknown model 'Llama2'"):
        load_model("Llama2")


SHAPE = "layers: 4\nhidden: 256\nheads: 8\nvocab: 1000\n"


def write(tmp_path, text, name="tiny.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_yaml_shape_defaults_to_llama(tmp_path):
    resolved = resolve_model(write(tmp_path, SHAPE))
    arch = resolved.architecture
    assert (resolved.how, arch.name, arch.family) == ("yaml", "tiny", "llama")
    assert (arch.kv_heads, arch.head_dim, arch.ffn) == (8, 32, 768)
    assert arch.gated_mlp
    assert not arch.tied_embeddings
    assert total_parameters(arch) == 4 * (4 * 256**2 + 3 * 256 * 768 + 512) + 256 + 2 * 256000


def test_llama_shapes_need_no_ffn(tmp_path):
    """8/3 h rounded up to 256 is what Llama 1 and 2 have."""
    for name in ("llama2-7b", "llama2-13b", "llama-30b", "llama-65b"):
        known = load_model(name)
        text = f"layers: 1\nhidden: {known.hidden}\nheads: {known.heads}\nvocab: 32000\n"
        assert resolve_model(write(tmp_path, text)).architecture.ffn == known.ffn


def test_yaml_shape_of_gpt2(tmp_path):
    text = (
        "name: mine\nlayers: 12\nhidden: 768\nheads: 12\nvocab: 50257\nmax_seq_len: 1024\n"
        "gated_mlp: false\nnorm: layernorm\nbias: all\npositional: learned\n"
        "tied_embeddings: true\n"
    )
    arch = resolve_model(write(tmp_path, text)).architecture
    assert arch.name == "mine"
    assert total_parameters(arch) == 124_439_808


def test_yaml_shape_with_experts(tmp_path):
    text = SHAPE + "moe: {experts: 8, top_k: 2, ffn: 512}\n"
    arch = resolve_model(write(tmp_path, text)).architecture
    assert total_parameters(arch) - active_parameters(arch) == 4 * 6 * 3 * 256 * 512


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers: 4\nhidden: 256\nheads: 8\n", "key 'vocab' is missing"),
        (SHAPE + "depth: 3\n", "unknown key 'depth'"),
        (SHAPE + "moe: {experts: 8, top_k: 2, ffn: 512, gate: 1}\n", "unknown key 'moe.gate'"),
        (SHAPE.replace("4", "'4'", 1), "layers: input should be a valid integer, got '4'"),
        (SHAPE.replace("4", "0", 1), "layers: input should be greater than or equal to 1, got 0"),
        (SHAPE.replace("4", "-2", 1), "got -2"),
        (SHAPE.replace("4", "1.5", 1), "got 1.5"),
        (SHAPE.replace("4", "true", 1), "got True"),
        (SHAPE.replace("4", "9" * 30, 1), "layers: input should be less than"),
        (SHAPE.replace("8", "7", 1), "hidden 256 is not a multiple of heads 7: give head_dim"),
        (SHAPE + "kv_heads: 3\n", "heads 8 is not a multiple of kv_heads 3"),
        (SHAPE + "bias: some\n", "bias: input should be 'none', 'qkv', 'attn', 'mlp' or 'all'"),
        (SHAPE + "positional: learned\n", "learned positions need max_seq_len"),
        (SHAPE + "moe: {experts: 2, top_k: 4, ffn: 8}\n", "top_k 4 is more than experts 2"),
        (SHAPE + "name: a/b\n", "name: string should match pattern"),
        (SHAPE + "layers: 8\n", "key 'layers' is given twice, again at line"),
        (SHAPE + "moe: {experts: 8, experts: 4}\n", "key 'experts' is given twice"),
        ("- a\n- b\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("a: [1, 2\n", "not YAML at line"),
        ("a: 2024-99-99\n", "not YAML"),
        ("!!python/object/apply:os.system ['true']\n", "not YAML"),
        ("a: " + "[" * 5000, "not YAML"),
    ],
)
def test_bad_shapes_are_one_line(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        resolve_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_file_problems_are_one_line(tmp_path):
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"layers: \xff\xfe\n")
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"#" * (5 << 20))
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    for path, message in ((binary, "not UTF-8"), (huge, "larger than"), (folder, "not a file")):
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: {message}"):
            resolve_model(str(path))
