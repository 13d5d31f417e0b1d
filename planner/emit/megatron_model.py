"""The network in Megatron-LM's arguments."""

from __future__ import annotations

from costmodels.architecture import Architecture, LatentAttention, MixtureOfExperts
from planner.emit.launch import Argument
from planner.emit.norm import norm_argument
from planner.emit.recipe import GRADIENT_CLIPPING, RECIPES, WARMUP_STEPS
from planner.emit.refusal import require
from planner.emit.rope import megatron_rope
from planner.job import Job
from planner.plan import Plan

NAME = "Megatron-LM"
# Clipping and learning-rate schedule, spelled alike in Megatron-LM and Megatron-DeepSpeed.
SCHEDULE_ARGUMENTS: tuple[Argument, ...] = (
    ("--clip-grad", str(GRADIENT_CLIPPING)),
    ("--lr-decay-style", "cosine"),
    ("--lr-warmup-iters", str(WARMUP_STEPS)),
)
NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
POSITIONS = {"rope": "rope", "learned": "learned_absolute"}
GELU = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")  # its fused GELU is the tanh form


def check_model(arch: Architecture) -> None:
    """Refuse a network GPTModel cannot build."""
    require(arch.kind == "decoder", NAME, f"{arch.name} is no decoder")
    require(arch.positional in POSITIONS, NAME, f"it has no {arch.positional} positions")
    require(
        arch.bias in ("none", "qkv", "all"), NAME, f"it has no biases on {arch.bias} linears only"
    )
    require(not arch.parallel_residual, NAME, "attention and feed-forward follow one another")
    require(arch.norms_per_layer == 2, NAME, f"a layer has 2 norms, not {arch.norms_per_layer}")
    require(arch.norm != "layernorm" or arch.norm_bias, NAME, "its LayerNorm has a bias")
    require(arch.final_norm and not arch.head_bias, NAME, "it ends with a norm and a plain head")
    require(not arch.embedding_norm, NAME, "it has no norm on the embeddings")
    require(
        arch.embedding_width in (0, arch.hidden), NAME, "its embeddings are as wide as its layers"
    )
    require(not arch.qk_norm_wide, NAME, "its query and key norms are one head wide")
    activation(arch)
    megatron_rope(arch)
    if arch.moe is not None:
        require(not arch.moe.bias, NAME, "its experts have no biases")


def activation(arch: Architecture) -> list[Argument]:
    """The feed-forward's activation; nothing for GELU."""
    if arch.gated_mlp:
        require(
            arch.activation == "silu",
            NAME,
            f"its gated feed-forward is SwiGLU, not gated {arch.activation}",
        )
        return [("--swiglu",)]
    if arch.activation in ("relu2", "squared_relu"):
        return [("--squared-relu",)]
    require(arch.activation in GELU, NAME, f"it has no {arch.activation} activation")
    return []


def size_arguments(arch: Architecture) -> list[Argument]:
    """Layers and widths, spelled alike in Megatron-LM and Megatron-DeepSpeed."""
    return [
        ("--num-layers", str(arch.layers)),
        ("--hidden-size", str(arch.hidden)),
        ("--ffn-hidden-size", str(arch.ffn)),
        ("--num-attention-heads", str(arch.heads)),
        ("--kv-channels", str(arch.head_dim)),
    ]


def recipe_arguments(optimizer: str) -> list[Argument]:
    """Optimizer and its numbers, spelled alike in both."""
    recipe = RECIPES[optimizer]
    arguments: list[Argument] = [
        ("--optimizer", "adam" if optimizer in ("adam", "adamw") else "sgd"),
        ("--lr", str(recipe.lr)),
        ("--weight-decay", str(recipe.weight_decay)),
    ]
    if recipe.betas:
        return [
            *arguments,
            ("--adam-beta1", str(recipe.betas[0])),
            ("--adam-beta2", str(recipe.betas[1])),
            ("--adam-eps", str(recipe.eps)),
        ]
    return [*arguments, ("--sgd-momentum", str(recipe.momentum or 0.0))]


def model_arguments(job: Job, plan: Plan) -> list[Argument]:
    """Shape, norms, positions, attention variants and experts."""
    arch = job.architecture
    arguments: list[Argument] = [
        *size_arguments(arch),
        ("--seq-length", str(job.seq_len)),
        ("--max-position-embeddings", str(_positions(arch, job.seq_len))),
        ("--position-embedding-type", POSITIONS[arch.positional]),
        *megatron_rope(arch),
        ("--normalization", NORMS[arch.norm]),
        norm_argument(arch, "--norm-epsilon"),
        *activation(arch),
    ]
    if arch.mla is None and arch.kv_heads != arch.heads:
        arguments += [("--group-query-attention",), ("--num-query-groups", str(arch.kv_heads))]
    if arch.bias != "all":
        arguments.append(("--disable-bias-linear",))
    if arch.bias == "qkv":
        arguments.append(("--add-qkv-bias",))
    if arch.qk_norm or arch.mla is not None:  # latent attention norms its low ranks
        arguments.append(("--qk-layernorm",))
    if not arch.tied_embeddings:
        arguments.append(("--untie-embeddings-and-output-weights",))
    if 0 < arch.sliding_window < job.seq_len:
        arguments += _window(arch)
    if arch.attention_sinks:
        arguments.append(("--softmax-type", "learnable"))
    if arch.mla is not None:
        arguments += _latent(arch.mla)
    if arch.moe is not None:
        arguments += _experts(arch, arch.moe)
    if plan.attention == "flash":
        arguments.append(("--no-create-attention-mask-in-dataloader",))
    dropout = str(job.spec.dropout)
    return [*arguments, ("--attention-dropout", dropout), ("--hidden-dropout", dropout)]


def _positions(arch: Architecture, seq_len: int) -> int:
    rows = (arch.position_rows or arch.max_seq_len) if arch.positional == "learned" else 0
    return max(rows, seq_len)


def _window(arch: Architecture) -> list[Argument]:
    window: list[Argument] = [("--window-size", f"{arch.sliding_window - 1},0")]
    if arch.global_layer_every:
        window.append(("--window-attn-skip-freq", str(arch.global_layer_every)))
    return window


def _latent(mla: LatentAttention) -> list[Argument]:
    low_rank: list[Argument] = [("--q-lora-rank", str(mla.q_lora_rank))] if mla.q_lora_rank else []
    return [
        ("--multi-latent-attention",),
        *low_rank,
        ("--kv-lora-rank", str(mla.kv_lora_rank)),
        ("--qk-head-dim", str(mla.qk_nope_head_dim)),
        ("--qk-pos-emb-head-dim", str(mla.qk_rope_head_dim)),
        ("--v-head-dim", str(mla.v_head_dim)),
    ]


def _experts(arch: Architecture, moe: MixtureOfExperts) -> list[Argument]:
    arguments: list[Argument] = [
        ("--num-experts", str(moe.experts)),
        ("--moe-router-topk", str(moe.top_k)),
        ("--moe-ffn-hidden-size", str(moe.ffn)),
        ("--moe-grouped-gemm",),
        ("--moe-token-dispatcher-type", "alltoall"),
    ]
    if moe.shared_ffn:
        arguments.append(("--moe-shared-expert-intermediate-size", str(moe.shared_ffn)))
    if moe.shared_gate:
        arguments.append(("--moe-shared-expert-gate",))
    pattern = layer_pattern(arch, moe)
    if pattern:
        arguments.append(("--moe-layer-freq", pattern))
    return arguments


def layer_pattern(arch: Architecture, moe: MixtureOfExperts) -> str:
    """Which layers are routed, 1 for those that are; empty where all are."""
    first, every = moe.first_dense_layers, moe.layer_frequency
    if not first and every == 1:
        return ""
    groups, rest = divmod(arch.layers - first, every)
    parts = [f"[0]*{first}"] if first else []
    parts.append(f"([0]*{every - 1}+[1])*{groups}" if every > 1 else f"[1]*{groups}")
    parts += [f"[0]*{rest}"] if rest else []
    return f"({'+'.join(parts)})"
