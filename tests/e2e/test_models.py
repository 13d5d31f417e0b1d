"""The emitted model files build the network the formulas count, whole and cut into stages."""

import dataclasses
import importlib
import json
import sys

import bundles
import pytest

from planner.catalogue import load_entry, load_model, model_names
from planner.emit.model_config import WRITERS, model_config
from planner.job import resolve
from planner.spec import make_spec

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# One model or two of every family train.py can build.
MODELS = (
    *("llama3.2-1b", "llama2-7b", "mistral-7b-v0.1", "mixtral-8x7b", "qwen2-7b", "qwen3-8b"),
    *("qwen1.5-moe-a2.7b", "qwen3-30b-a3b", "gemma-7b", "gemma2-9b", "gemma3-4b", "phi-2"),
    *("phi-3-mini", "glm-4-9b", "glm-4-32b-0414", "gpt2-xl", "pythia-1b", "opt-1.3b"),
    *("opt-350m", "bloom-7b1", "falcon-7b", "falcon-40b", "mpt-7b"),
)
EAGER = ("bloom", "gemma2", "mpt")
GRANULARITIES = ("selective", "full", "every_2", "every_4")
ROWS, SEQ_LEN = 1, 32
torch.set_num_threads(1)  # the models are too small for more


def build(fields, **options):
    fields = dict(fields)
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    return transformers.AutoModelForCausalLM.from_config(config, **options)


def emitted(folder, model, pp=2):
    """A bundle of the model in two stages; its family's whole model, scaled down."""
    family = load_model(model).family
    attention = "eager" if family in EAGER else "efficient"
    layers = load_model(model).layers
    counts = [{"none": 1, "every_4": layers // 2 - 1}, {"every_4": layers - layers // 2}]
    job = resolve(make_spec({**bundles.LLAMA, "model": model, "seq_len": 256}))
    plan = bundles.make_plan(
        job,
        recompute=counts if pp == 2 else [{"every_4": layers}],
        pp=pp,
        dp=1 if pp == 2 else 2,
        grad_accum=4 if pp == 2 else 2,
        attention=attention,
    )
    bundles.write(folder, job, plan)
    torch.manual_seed(0)
    fields = json.loads((folder / "model_config_tiny.json").read_text())
    return build(fields, attn_implementation="eager" if family in EAGER else "sdpa")


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Import a module of the bundle in ``tmp_path``, afresh."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("train_")]:
        monkeypatch.delitem(sys.modules, name)
    yield importlib.import_module
    for name in [name for name in sys.modules if name.startswith("train_")]:
        del sys.modules[name]


def test_every_family_is_covered():
    assert {load_model(name).family for name in MODELS} == set(WRITERS)


@pytest.mark.parametrize("family", sorted(WRITERS))
def test_transformers_builds_exactly_the_counted_parameters(family):
    for name in model_names():
        arch = load_model(name)
        if arch.family != family or name == "gpt3-13b":  # its heads do not divide its width
            continue
        with torch.device("meta"):
            model = build(model_config(arch))
            model.tie_weights()
        counted = sum(p.numel() for p in model.parameters())
        assert counted == load_entry(name).parameters, name


@pytest.mark.parametrize("model", MODELS)
def test_the_norms_add_what_the_catalogue_says(model):
    arch = dataclasses.replace(load_model(model), layers=1)
    epsilon = arch.norm_eps if arch.family == "opt" else 3e-4  # opt knows one only
    with torch.device("meta"):
        built = build(model_config(dataclasses.replace(arch, norm_eps=epsilon)))
    norms = [part for part in built.modules() if "Norm" in type(part).__name__]
    found = {getattr(part, "eps", getattr(part, "variance_epsilon", None)) for part in norms}
    assert found == {epsilon}


@pytest.mark.parametrize("model", MODELS)
def test_stages_compute_what_the_whole_model_does(model, tmp_path, load):
    whole = emitted(tmp_path, model).eval()
    stages = load("train_stages")
    kernel = whole.config._attn_implementation
    source = stages.Source(whole.config, {"attn_implementation": kernel})
    weights = whole.base_model.state_dict()
    tied = whole.config.tie_word_embeddings
    table = stages.Table(source)
    table.table.load_state_dict(whole.get_input_embeddings().state_dict())
    head = table.logits if tied else stages.Head(source)
    if not tied:
        head.head.load_state_dict(whole.get_output_embeddings().state_dict())

    tokens = torch.randint(0, whole.config.vocab_size, (ROWS, SEQ_LEN))
    with torch.no_grad():
        hidden = table(tokens)
        if stages.ENTRY:
            hidden = filled(stages, source, weights, entry=True)(hidden)
        for layer in range(whole.config.num_hidden_layers):
            hidden = filled(stages, source, weights, layer=layer)(hidden)
        logits = head(filled(stages, source, weights, final=True)(hidden))
        expected = whole(input_ids=tokens).logits
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def filled(stages, source, weights, **which):
    """A piece with the whole model's weights."""
    piece = stages.Piece(source, **which).eval()
    layer = which.get("layer")
    own = piece.base.state_dict()
    for name in own:
        whole = (
            name
            if layer is None
            else name.replace(f"{stages.LAYERS}.0.", f"{stages.LAYERS}.{layer}.")
        )
        own[name] = weights[whole]
    piece.base.load_state_dict(own)
    return piece


@pytest.mark.parametrize("model", MODELS)
def test_checkpointed_layers_have_the_same_gradients(model, tmp_path, load):
    whole = emitted(tmp_path, model, pp=1).train()
    recompute = load("train_recompute")
    layers = whole.base_model.get_submodule(bundles.layers_of(load_model(model).family))
    tokens = torch.randint(0, whole.config.vocab_size, (ROWS, SEQ_LEN))
    expected = gradients(whole, tokens)
    for granularity in GRANULARITIES if model == "llama2-7b" else ("selective", "every_4"):
        for layer in layers:
            layer.gradient_checkpointing = False
        recompute.checkpoint_layers(layers, {granularity: len(layers) - 1, "none": 1})
        for ours, theirs in zip(gradients(whole, tokens), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def gradients(model, tokens):
    model.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    ("granularity", "inputs"), [("none", None), ("full", 4), ("every_2", 2), ("every_4", 1)]
)
def test_granularity_keeps_one_input_a_segment(granularity, inputs, tmp_path, load):
    """Bytes kept for backward by four layers: everything, or so many hidden states."""
    whole = emitted(tmp_path, "llama2-7b", pp=1).train()
    recompute = load("train_recompute")
    recompute.checkpoint_layers(whole.model.layers, {granularity: 4})
    hidden = torch.randn(ROWS, SEQ_LEN, whole.config.hidden_size, requires_grad=True)
    kept = {}

    def keep(tensor):
        if tensor.dim() == 3 and not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = whole.model(inputs_embeds=hidden).last_hidden_state
    one = hidden.numel() * hidden.element_size()
    assert output.requires_grad
    if inputs is None:
        assert sum(kept.values()) > 4 * 10 * one
    else:
        norm = 3  # the final norm's own
        assert sum(kept.values()) <= (inputs + norm) * one


def test_the_loss_in_chunks_is_the_loss(tmp_path, load):
    job = resolve(make_spec({**bundles.LLAMA, "cross_entropy": "chunked"}))
    bundles.write(tmp_path, job, bundles.make_plan(job))
    fields = json.loads((tmp_path / "model_config_tiny.json").read_text())
    torch.manual_seed(0)
    model = build(fields, attn_implementation="sdpa")
    tokens = torch.randint(0, model.config.vocab_size, (ROWS, SEQ_LEN))
    expected, loss = gradients(model, tokens), model(input_ids=tokens, labels=tokens).loss
    load("train_loss").use_chunked_loss(model)
    torch.testing.assert_close(model(input_ids=tokens, labels=tokens).loss, loss)
    for ours, theirs in zip(gradients(model, tokens), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_dropout_reaches_the_model():
    for name in MODELS:
        if name == "mpt-7b":
            with pytest.raises(ValueError, match="takes no attention dropout"):
                model_config(load_model(name), dropout=0.125)
        else:
            assert 0.125 in model_config(load_model(name), dropout=0.125).values(), name


def test_small_models_keep_the_kind():
    """Scaling down changes sizes, never which parts a model has."""
    for name in MODELS:
        arch = load_model(name)
        job = resolve(make_spec({**bundles.LLAMA, "model": name, "seq_len": 256}))
        small = bundles.tiny(arch, bundles.make_plan(job))
        same = ("family", "gated_mlp", "norm", "bias", "positional", "tied_embeddings", "qk_norm")
        assert [getattr(small, f) for f in same] == [getattr(arch, f) for f in same]
        assert (small.moe is None, small.mla is None) == (arch.moe is None, arch.mla is None)
        assert dataclasses.replace(small, name=arch.name).kind == arch.kind
