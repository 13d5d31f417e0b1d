"""Networks and configurations that the memory tests share."""

from dataclasses import replace
from typing import Any

from costmodels.architecture import Architecture, LatentAttention, MixtureOfExperts
from costmodels.configuration import Configuration
from costmodels.stack import Stack, load_stack
from hardware_db import parse_gpus

LLAMA2_7B = Architecture(
    name="llama2-7b", family="llama", layers=32, hidden=4096, heads=32, kv_heads=32, head_dim=128,
    ffn=11008, vocab=32000, max_seq_len=4096, gated_mlp=True, activation="silu", norm="rmsnorm",
    norms_per_layer=2, tied_embeddings=False,
)  # fmt: skip
LLAMA3_8B = replace(LLAMA2_7B, name="llama3-8b", kv_heads=8, ffn=14336, vocab=128256)
LLAMA2_70B = replace(
    LLAMA2_7B, name="llama2-70b", layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672
)
LLAMA3_3B = replace(
    LLAMA2_7B, name="llama3.2-3b", layers=28, hidden=3072, heads=24, kv_heads=8, ffn=8192,
    vocab=128256, tied_embeddings=True,
)  # fmt: skip
LLAMA3_70B_CUT = replace(LLAMA2_70B, name="llama3-70b, 12 layers", layers=12, vocab=128256)
DEEPSEEK_V2_CUT = replace(
    LLAMA2_7B, name="deepseek-v2, 4 layers", family="deepseek_v2", layers=4, hidden=5120,
    heads=128, kv_heads=128, ffn=12288, vocab=102400,
    moe=MixtureOfExperts(160, 6, 1536, shared_ffn=3072, first_dense_layers=1),
    mla=LatentAttention(1536, 512, 128, 64, 128),
)  # fmt: skip
MIXTRAL = replace(
    LLAMA2_7B, name="mixtral", family="mixtral", kv_heads=8, ffn=14336,
    moe=MixtureOfExperts(8, 2, 14336),
)  # fmt: skip


def gpt(layers: int, hidden: int, heads: int, vocab: int = 50257, seq: int = 1024) -> Architecture:
    """A GPT-2 with a fused GELU."""
    return Architecture(
        name="gpt", family="gpt2", layers=layers, hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, ffn=4 * hidden, vocab=vocab, max_seq_len=seq, gated_mlp=False,
        activation="gelu", norm="layernorm", norms_per_layer=2, tied_embeddings=True, bias="all",
        positional="learned", norm_bias=True,
    )  # fmt: skip


def with_memory(name: str, **fields: Any) -> Stack:
    """A stack with some fields of its memory profile replaced."""
    stack = load_stack(name)
    return stack.model_copy(update={"memory": stack.memory.model_copy(update=fields)})


def configuration(arch: Architecture, stack: str | Stack, **fields: Any) -> Configuration:
    """bf16, FlashAttention, AdamW on eight A100, unless said otherwise."""
    defaults = {
        "precision": "bf16", "attention": "flash", "optimizer": "adamw", "pp": 1,
        "seq_len": arch.max_seq_len,
    }  # fmt: skip
    return Configuration(
        architecture=arch,
        cluster=parse_gpus("8xA100-80G"),
        stack=load_stack(stack) if isinstance(stack, str) else stack,
        **{**defaults, **fields},
    )
