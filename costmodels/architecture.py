"""The network: the shape of a decoder-only transformer, as the formulas need it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """Routed feed-forward layers.

    Parameters
    ----------
    experts, top_k : int
        Routed experts in a layer, and how many of them a token visits. [-]
    ffn : int
        Inner width of one routed expert. [-]
    shared_ffn : int
        Total inner width of the shared experts, 0 where there are none. [-]
    first_dense_layers : int
        Leading layers that keep a dense feed-forward. [-]
    layer_frequency : int
        Of the remaining layers every ``layer_frequency``-th is routed. [-]
    """

    experts: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    first_dense_layers: int = 0
    layer_frequency: int = 1


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2/V3); widths in elements.

    ``q_lora_rank`` is 0 where the query is projected directly.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only transformer.

    ``hidden`` h, ``heads`` a, ``kv_heads`` k, ``head_dim`` d_h, ``ffn`` f (dense inner width),
    ``vocab`` V (unpadded), ``max_seq_len`` the longest sequence the model is made for.
    """

    name: str
    family: str  # llama, qwen2, gpt2, gpt_neox, opt, bloom, ... : Hugging Face model types
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_seq_len: int
    gated_mlp: bool
    activation: str  # silu, gelu, gelu_new, relu, ...
    norm: str  # rmsnorm | layernorm
    norms_per_layer: int
    tied_embeddings: bool
    bias: str = "none"  # which linears carry a bias: none | all | qkv | ...
    positional: str = "rope"  # rope | learned | alibi
    qk_norm: bool = False
    parallel_residual: bool = False
    norm_bias: bool = False
    sliding_window: int = 0
    moe: MixtureOfExperts | None = None
    mla: LatentAttention | None = None
    published_parameters: int | None = None
