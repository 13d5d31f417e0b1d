"""The network: the shape of a transformer, as the formulas need it."""

from __future__ import annotations

from dataclasses import dataclass

RopeValue = str | bool | int | float | tuple[float, ...]


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
    shared_gate : bool
        The shared experts' output is scaled by a gate, one weight per hidden unit.
    bias : bool
        Router and experts carry biases.
    correction_bias : bool
        The router has one load-balancing offset an expert, not trained by gradient (DeepSeek-V3).
    """

    experts: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    first_dense_layers: int = 0
    layer_frequency: int = 1
    shared_gate: bool = False
    bias: bool = False
    correction_bias: bool = False


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
    """A transformer, decoder-only unless ``kind`` says ``encoder``.

    ``hidden`` h, ``heads`` a, ``kv_heads`` k, ``head_dim`` d_h, ``ffn`` f (dense inner width),
    ``vocab`` V (unpadded), ``max_seq_len`` the longest sequence the model is made for.

    ``sliding_window`` 0 is full attention; else every ``global_layer_every``-th layer is full
    and the others see that many tokens (``global_layer_every`` 0: no layer is full).

    Rotary positions (``positional`` rope): base ``rope_theta``, the part ``rope_fraction`` of a
    head that turns, and ``rope_scaling`` as sorted key-value pairs in the words of transformers'
    ``rope_parameters`` (empty: none). They cost nothing, but a network trained with others is
    another network. So it is with ``norm_eps``, which every norm adds to the variance. [-]
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
    bias: str = "none"  # which linears of a layer carry a bias: none | qkv | attn | mlp | all
    positional: str = "rope"  # rope | learned | alibi
    qk_norm: bool = False
    parallel_residual: bool = False
    norm_bias: bool = False
    sliding_window: int = 0
    moe: MixtureOfExperts | None = None
    mla: LatentAttention | None = None
    published_parameters: int | None = None
    kind: str = "decoder"  # decoder | encoder
    global_layer_every: int = 0
    qk_norm_wide: bool = False  # the query/key norm has weights for every head, not one head's
    attention_sinks: bool = False  # one learned logit a head (gpt-oss)
    embedding_width: int = 0  # width of the token table where it is not h (OPT-350M), else 0
    position_rows: int = 0  # rows of the learned position table where not max_seq_len, else 0
    token_types: int = 0  # rows of a token-type table (BERT)
    embedding_norm: bool = False  # a norm right after the embeddings (BLOOM, BERT)
    final_norm: bool = True
    head_bias: bool = False
    pooler: bool = False  # a dense layer on the first token (BERT)
    rope_theta: float = 10000.0  # Su et al. 2021, RoFormer, section 3.2.2 [-]
    rope_fraction: float = 1.0  # of a head's width [-]
    rope_local_theta: float = 0.0  # base of the local layers where it differs (Gemma 3), else 0
    rope_scaling: tuple[tuple[str, RopeValue], ...] = ()
    norm_eps: float = 1e-5  # torch.nn.LayerNorm; Llama 2 and 3 [-]
