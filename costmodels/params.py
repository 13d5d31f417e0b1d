"""How many parameters a transformer has, and how many of them one rank holds.

Every count is a :class:`Parameters`: the same number, split by how tensor and expert parallelism
divide it. Column- and row-parallel matrices split over ``tp``, keys and values at most over the
key/value heads, routed experts over ``ep`` and ``tp``; norms, routers and row-parallel biases are
copied to every rank (Megatron-LM, megatron/core/tensor_parallel/layers.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.architecture import Architecture, LatentAttention, MixtureOfExperts
from costmodels.numeric import Numeric, ceil_div

BIASED = {  # Architecture.bias -> which linears carry one
    "none": frozenset[str](),
    "qkv": frozenset({"qkv"}),
    "attn": frozenset({"qkv", "out"}),
    "mlp": frozenset({"mlp"}),
    "all": frozenset({"qkv", "out", "mlp"}),
}


@dataclass(frozen=True, slots=True)
class Parameters:
    """A parameter count by how it is divided. [-]

    ``sharded`` over tp, ``kv`` over min(tp, key/value heads), ``experts`` over ep * tp,
    ``expert_replicated`` over ep only, ``replicated`` over nothing.
    """

    sharded: Numeric = 0
    kv: Numeric = 0
    experts: Numeric = 0
    expert_replicated: Numeric = 0
    replicated: Numeric = 0

    @property
    def total(self) -> Numeric:
        """All of them."""
        return self.dense + self.routed

    @property
    def dense(self) -> Numeric:
        """Those outside the routed experts."""
        return self.sharded + self.kv + self.replicated

    @property
    def routed(self) -> Numeric:
        """Those of the routed experts."""
        return self.experts + self.expert_replicated

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(
            self.sharded + other.sharded,
            self.kv + other.kv,
            self.experts + other.experts,
            self.expert_replicated + other.expert_replicated,
            self.replicated + other.replicated,
        )

    def __mul__(self, n: Numeric) -> Parameters:
        return Parameters(
            self.sharded * n,
            self.kv * n,
            self.experts * n,
            self.expert_replicated * n,
            self.replicated * n,
        )


def attention_parameters(arch: Architecture) -> Parameters:
    """One layer's attention: projections, their biases, query/key norms, sinks. [-]

    Notes
    -----
    ``h (a + 2k) d_h`` into the heads and ``a d_h h`` out of them. With multi-head latent
    attention, the projections of DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """
    if arch.mla is not None:
        return _latent_attention_parameters(arch, arch.mla)
    biased = BIASED[arch.bias]
    q_width, kv_width = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    rows = arch.hidden + ("qkv" in biased)
    sharded = rows * q_width + q_width * arch.hidden + arch.heads * arch.attention_sinks
    kv, replicated = rows * 2 * kv_width, arch.hidden * ("out" in biased)
    if arch.qk_norm and arch.qk_norm_wide:
        sharded, kv = sharded + q_width, kv + kv_width
    elif arch.qk_norm:
        replicated += 2 * arch.head_dim
    return Parameters(sharded=sharded, kv=kv, replicated=replicated)


def _latent_attention_parameters(arch: Architecture, mla: LatentAttention) -> Parameters:
    """Down-projections and their norms are copied, up-projections split over heads.

    Megatron-LM, megatron/core/transformer/multi_latent_attention.py (parallel_mode "duplicated").
    """
    qk_width = arch.heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    kv_up_width = arch.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    bias = "out" in BIASED[arch.bias]
    down = (arch.hidden + bias) * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank
    q_rows = arch.hidden
    if mla.q_lora_rank:
        down += (arch.hidden + bias) * mla.q_lora_rank + mla.q_lora_rank
        q_rows = mla.q_lora_rank
    out = arch.heads * mla.v_head_dim * arch.hidden
    sharded = q_rows * qk_width + mla.kv_lora_rank * kv_up_width + out
    return Parameters(sharded=sharded, replicated=down + arch.hidden * bias)


def mlp_parameters(arch: Architecture, routed: bool = False) -> Parameters:
    """One layer's feed-forward: dense, or router, experts and shared experts. [-]"""
    if routed:
        if arch.moe is None:
            raise ValueError(f"model {arch.name}: it has no routed layers")
        return _moe_parameters(arch, arch.moe)
    inputs = 2 if arch.gated_mlp else 1
    bias = "mlp" in BIASED[arch.bias]
    sharded = (inputs + 1) * arch.hidden * arch.ffn + inputs * arch.ffn * bias
    return Parameters(sharded=sharded, replicated=arch.hidden * bias)


def _moe_parameters(arch: Architecture, moe: MixtureOfExperts) -> Parameters:
    inputs = 2 if arch.gated_mlp else 1
    expert = (inputs + 1) * arch.hidden * moe.ffn + inputs * moe.ffn * moe.bias
    router = moe.experts * (arch.hidden + moe.bias + moe.correction_bias)
    return Parameters(
        sharded=(inputs + 1) * arch.hidden * moe.shared_ffn,
        experts=moe.experts * expert,
        expert_replicated=moe.experts * arch.hidden * moe.bias,
        replicated=router + arch.hidden * moe.shared_gate,
    )


def one_norm(arch: Architecture) -> int:
    """Weights, and biases if any, of one norm over the hidden width. [-]"""
    return arch.hidden * (1 + arch.norm_bias)


def norm_parameters(arch: Architecture) -> Parameters:
    """One layer's norms over the hidden width, copied to every rank. [-]"""
    return Parameters(replicated=arch.norms_per_layer * one_norm(arch))


def is_routed(arch: Architecture, index: int) -> bool:
    """Whether the layer of that index, from 0, has routed experts."""
    if arch.moe is None or index < arch.moe.first_dense_layers:
        return False
    return (index - arch.moe.first_dense_layers + 1) % arch.moe.layer_frequency == 0


def routed_layers(arch: Architecture) -> int:
    """How many layers have routed experts. [-]"""
    if arch.moe is None:
        return 0
    return (arch.layers - arch.moe.first_dense_layers) // arch.moe.layer_frequency


def layer_parameters(arch: Architecture, routed: bool = False) -> Parameters:
    """One transformer layer, dense or with routed experts. [-]

    Notes
    -----
    GPT: 12 h^2 + 13 h. Llama: 2 h a d_h + 2 h k d_h + 3 h f + 2 h.
    """
    return attention_parameters(arch) + mlp_parameters(arch, routed) + norm_parameters(arch)


def mean_layer_parameters(arch: Architecture) -> Parameters:
    """The average layer of a model in which dense and routed layers may mix. [-]"""
    n = routed_layers(arch)
    if n == 0:
        return layer_parameters(arch)
    dense = layer_parameters(arch) * ((arch.layers - n) / arch.layers)
    return dense + layer_parameters(arch, routed=True) * (n / arch.layers)


def token_table(arch: Architecture, vocab: Numeric | None = None) -> Numeric:
    """The token embedding, ``vocab`` rows (padded, say) or the model's own. [-]"""
    rows = arch.vocab if vocab is None else vocab
    return rows * (arch.embedding_width or arch.hidden)


def position_rows(arch: Architecture) -> int:
    """Rows of the learned position table, 0 where there is none. [-]"""
    return (arch.position_rows or arch.max_seq_len) if arch.positional == "learned" else 0


def embedding_parameters(arch: Architecture, vocab: Numeric | None = None) -> Parameters:
    """Token, position and token-type tables, and what follows them before layer 0. [-]"""
    tables = (position_rows(arch) + arch.token_types) * arch.hidden
    norm = one_norm(arch) if arch.embedding_norm else 0
    return Parameters(
        sharded=token_table(arch, vocab),
        replicated=tables + norm + arch.embedding_width * arch.hidden,
    )


def head_parameters(arch: Architecture, vocab: Numeric | None = None) -> Parameters:
    """What turns the last hidden state into logits; no table of its own where tied. [-]"""
    rows = arch.vocab if vocab is None else vocab
    table = 0 if arch.tied_embeddings else token_table(arch, vocab)
    pooler = arch.hidden * (arch.hidden + 1) * arch.pooler
    return Parameters(
        sharded=table + rows * arch.head_bias,
        replicated=arch.embedding_width * arch.hidden + pooler,
    )


def final_norm_parameters(arch: Architecture) -> Parameters:
    """The norm after the last layer, copied to every rank. [-]"""
    return Parameters(replicated=one_norm(arch) if arch.final_norm else 0)


def total_parameters(arch: Architecture) -> int:
    """All parameters, embedding and head included, a tied head once. [-]

    Examples
    --------
    >>> llama = Architecture("llama2-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096, True,
    ...                      "silu", "rmsnorm", 2, False)
    >>> total_parameters(llama)
    6738415616
    """
    n = routed_layers(arch)
    ends = embedding_parameters(arch) + head_parameters(arch) + final_norm_parameters(arch)
    total = ends + layer_parameters(arch) * (arch.layers - n)
    if n:
        total += layer_parameters(arch, routed=True) * n
    return int(total.total)


def active_parameters(arch: Architecture) -> int:
    """Parameters a token meets: ``top_k`` of the experts, both embeddings included. [-]"""
    if arch.moe is None:
        return total_parameters(arch)
    routed = layer_parameters(arch, routed=True).routed * routed_layers(arch)
    idle = arch.moe.experts - arch.moe.top_k
    return total_parameters(arch) - int(routed) * idle // arch.moe.experts


def padded_vocab(arch: Architecture, tp: Numeric, multiple: int = 128) -> Numeric:
    """Vocabulary rounded up to ``multiple * tp``, as Megatron-LM pads it. [-]

    Examples
    --------
    >>> gpt = Architecture("g", "gpt2", 1, 64, 4, 4, 16, 256, 50257, 32, False, "gelu",
    ...                    "layernorm", 2, True)
    >>> int(padded_vocab(gpt, 8))
    51200
    """
    return ceil_div(arch.vocab, multiple * tp) * multiple * tp


def dense_on_rank(arch: Architecture, parameters: Parameters, tp: Numeric) -> Numeric:
    """Parameters outside the routed experts on one tensor-parallel rank. [-]"""
    ways = np.minimum(tp, arch.kv_heads)
    return parameters.sharded / tp + parameters.kv / ways + parameters.replicated


def experts_on_rank(parameters: Parameters, tp: Numeric, ep: Numeric) -> Numeric:
    """Parameters of the routed experts on one rank, each expert split over ``tp``. [-]"""
    return parameters.experts / (ep * tp) + parameters.expert_replicated / ep


def on_rank(arch: Architecture, parameters: Parameters, tp: Numeric, ep: Numeric = 1) -> Numeric:
    """All of ``parameters`` that one rank holds. [-]"""
    return dense_on_rank(arch, parameters, tp) + experts_on_rank(parameters, tp, ep)


def stage_parameters(
    arch: Architecture,
    layers: Numeric,
    first: Numeric = 0,
    last: Numeric = 0,
    vocab: Numeric | None = None,
) -> Parameters:
    """A pipeline stage of ``layers`` average layers. [-]

    ``first`` and ``last``, 0 or 1, say which ends it holds. A tied table is copied to the last
    stage unless that is also the first one (Megatron-LM, DeepSpeed ``TiedLayerSpec``).
    """
    copy = token_table(arch, vocab) if arch.tied_embeddings else 0
    tail = head_parameters(arch, vocab) + final_norm_parameters(arch)
    return (
        mean_layer_parameters(arch) * layers
        + embedding_parameters(arch, vocab) * first
        + tail * last
        + Parameters(sharded=copy * (last * (1 - np.asarray(first))))
    )
