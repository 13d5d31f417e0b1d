"""A model's shape as YAML states it: one entry of the catalogue, or a user's own file."""

from __future__ import annotations

import reprlib
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from costmodels.architecture import Architecture, LatentAttention, MixtureOfExperts

# No transformer comes near these; larger is a typing error, and arithmetic stays exact.
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
MaybeNone = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=100)]
Flag = Annotated[bool, Field(strict=True)]
Base = Annotated[float, Field(ge=1, le=1e12, allow_inf_nan=False)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
RopeSetting = StrictBool | StrictInt | Number | StrictStr | tuple[Number, ...]
ANY_LENGTH = 1 << 20  # max_seq_len of a shape that states none [token]
# What transformers 5.24 needs of each kind, modeling_rope_utils.py (_validate_*_rope_parameters).
ROPE_NEEDS: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
FFN_MULTIPLE = 256  # Llama rounds its inner width up to this (Touvron et al. 2023, model code)


class ExpertsShape(BaseModel):
    """``moe:`` of a shape; see :class:`costmodels.architecture.MixtureOfExperts`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experts: Count
    top_k: Count
    ffn: Count
    shared_ffn: MaybeNone = 0
    first_dense_layers: MaybeNone = 0
    layer_frequency: Count = 1
    shared_gate: Flag = False
    bias: Flag = False
    correction_bias: Flag = False

    @model_validator(mode="after")
    def _consistent(self) -> ExpertsShape:
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} is more than experts {self.experts}")
        return self


class LatentShape(BaseModel):
    """``mla:`` of a shape; see :class:`costmodels.architecture.LatentAttention`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    q_lora_rank: MaybeNone
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


class Shape(BaseModel):
    """A model's shape. What is left out is as in Llama: gated, RMSNorm, rotary, no biases.

    ``kv_heads`` defaults to ``heads``, ``head_dim`` to hidden / heads, ``ffn`` to 8/3 hidden
    rounded up to a multiple of 256 (gated) or 4 hidden, ``activation`` to silu (gated) or gelu,
    ``norm_bias`` to true for layernorm, ``max_seq_len`` to no limit, ``rope_theta`` to 10000,
    ``norm_eps`` to 1e-5.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: Count
    hidden: Count
    heads: Count
    vocab: Count
    name: Name = "model"
    family: str = "llama"
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: Count | None = None
    max_seq_len: Count | None = None
    gated_mlp: Flag = True
    activation: str | None = None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norms_per_layer: MaybeNone = 2
    norm_bias: Flag | None = None
    norm_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    tied_embeddings: Flag = False
    bias: Literal["none", "qkv", "attn", "mlp", "all"] = "none"
    positional: Literal["rope", "learned", "alibi"] = "rope"
    qk_norm: Flag = False
    qk_norm_wide: Flag = False
    parallel_residual: Flag = False
    sliding_window: MaybeNone = 0
    global_layer_every: MaybeNone = 0
    attention_sinks: Flag = False
    embedding_width: MaybeNone = 0
    position_rows: MaybeNone = 0
    token_types: MaybeNone = 0
    embedding_norm: Flag = False
    final_norm: Flag = True
    head_bias: Flag = False
    pooler: Flag = False
    rope_theta: Base = 10000.0
    rope_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    rope_local_theta: Base | Literal[0] = 0
    rope_scaling: dict[str, RopeSetting] = {}
    kind: Literal["decoder", "encoder"] = "decoder"
    moe: ExpertsShape | None = None
    mla: LatentShape | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Shape:
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(
                f"hidden {self.hidden} is not a multiple of heads {self.heads}: give head_dim"
            )
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.positional == "learned" and self.max_seq_len is None:
            raise ValueError("learned positions need max_seq_len")
        if self.moe is not None and self.moe.first_dense_layers > self.layers:
            raise ValueError(
                f"moe.first_dense_layers {self.moe.first_dense_layers} is more than "
                f"layers {self.layers}"
            )
        if self.rope_scaling:
            rope_kind = self.rope_scaling.get("rope_type")
            if not isinstance(rope_kind, str):
                raise ValueError("rope_scaling needs rope_type: " + ", ".join(ROPE_NEEDS))
            for key in ROPE_NEEDS.get(rope_kind, ()):
                if key not in self.rope_scaling:
                    raise ValueError(f"rope_scaling of rope_type {rope_kind} needs {key}")
        return self

    def architecture(self, published: int | None = None) -> Architecture:
        """The network these numbers describe."""
        own = self.model_dump(exclude={"moe", "mla"}, include=set(Architecture.__slots__))
        own["kv_heads"] = self.kv_heads or self.heads
        own["head_dim"] = self.head_dim or self.hidden // self.heads
        own["ffn"] = self.ffn or self._usual_ffn()
        own["max_seq_len"] = self.max_seq_len or ANY_LENGTH
        own["activation"] = self.activation or ("silu" if self.gated_mlp else "gelu")
        bias = self.norm == "layernorm" if self.norm_bias is None else self.norm_bias
        own["norm_bias"] = bias
        own["rope_local_theta"] = float(self.rope_local_theta)
        own["rope_scaling"] = tuple(sorted(self.rope_scaling.items()))
        return Architecture(
            **own,
            moe=MixtureOfExperts(**self.moe.model_dump()) if self.moe else None,
            mla=LatentAttention(**self.mla.model_dump()) if self.mla else None,
            published_parameters=published,
        )

    def _usual_ffn(self) -> int:
        if not self.gated_mlp:
            return 4 * self.hidden
        return -(-(8 * self.hidden // 3) // FFN_MULTIPLE) * FFN_MULTIPLE


def first_problem(error: ValidationError) -> str:
    """The first thing wrong with a shape, in one line."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {where!r}"
    if problem["type"] == "missing":
        return f"key {where!r} is missing"
    text = problem["msg"].removeprefix("Value error, ")
    text = f"{where}: {text[:1].lower()}{text[1:]}" if where else text
    given = problem["input"]
    return text if isinstance(given, dict) else f"{text}, got {reprlib.repr(given)}"
