"""Where transformers 5 keeps the parts of each family's model: what a pipeline is cut from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Attribute paths below the base model.

    ``table`` the token embedding, ``layers`` the list of layers, ``entry`` what lies between
    them, ``exit`` what follows the last layer. ``returns_tuple``: a layer returns its hidden
    states first in a tuple. ``eager_only``: its attention runs in no fused kernel.
    """

    table: str = "embed_tokens"
    layers: str = "layers"
    entry: tuple[str, ...] = ()
    exit: tuple[str, ...] = ("norm",)
    returns_tuple: bool = False
    eager_only: bool = False


_LLAMA = ModelParts()
_OPT = "decoder."

# transformers 5.24, src/transformers/models/<family>/modeling_<family>.py
PARTS: Mapping[str, ModelParts] = {
    **dict.fromkeys(
        (
            *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
            *("gemma", "gemma2", "gemma3_text", "phi3", "glm", "glm4"),
        ),
        _LLAMA,
    ),
    "phi": ModelParts(entry=("embed_dropout",), exit=("final_layernorm",)),
    "gpt2": ModelParts("wte", "h", ("wpe", "drop"), ("ln_f",)),
    "gpt_neox": ModelParts("embed_in", "layers", ("emb_dropout",), ("final_layer_norm",)),
    "opt": ModelParts(
        _OPT + "embed_tokens",
        _OPT + "layers",
        (_OPT + "embed_positions", _OPT + "project_in"),
        (_OPT + "final_layer_norm", _OPT + "project_out"),
    ),
    "bloom": ModelParts(
        "word_embeddings", "h", ("word_embeddings_layernorm",), ("ln_f",), True, eager_only=True
    ),
    "falcon": ModelParts("word_embeddings", "h", (), ("ln_f",), True),
    "mpt": ModelParts("wte", "blocks", (), ("norm_f",), True, eager_only=True),
}
