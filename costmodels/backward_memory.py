"""What one layer's backward needs beside the tensors the layer kept.

A layer runs backward through a few points, each with its own gradients between operations, with
part of the kept tensors gone and part of the weight gradients made:

``feed-forward``  at the activation product: incoming gradient h, gradients of product, act(gate)
                  and up, less the freed product: T (2h + 4f) in 16 bits, T (2h + 2f) if not gated;
``product``       one operation earlier, a weight gradient of the second linear still apart;
``norm``          the norm before the feed-forward, whose eager code makes fp32 temporaries of 14h;
``attention``     the scores' gradients, or a fused kernel's fp32 query gradient, dq, dk and dv;
``end``           all gradients of the layer exist, its kept tensors are gone.

Counted with PyTorch 2.13's memory tracker on transformers 5.24.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.activations import layer_tensors
from costmodels.architecture import Architecture
from costmodels.configuration import Configuration
from costmodels.held import held, layer_held
from costmodels.kernels import LAYERNORM, Saved
from costmodels.numeric import Numeric
from costmodels.params import attention_parameters, mlp_parameters
from costmodels.sharing import batch_of, kernels_of, on_rank, ways

EAGER_NORM = 14  # bytes of fp32 and 16-bit temporaries for an element of the normalised width


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of a layer's backward.

    ``size``: bytes beyond the tensors the layer kept, negative where most of them are gone.
    ``gradients``: parameters of the layer, on this rank, whose gradients exist.
    ``apart``: parameters whose gradient is not yet added to an accumulated one.
    """

    size: Numeric
    gradients: Numeric
    apart: Numeric = 0.0


def routed(arch: Architecture) -> bool:
    """Whether layers of the model have routed experts."""
    return arch.moe is not None


def full_layer(c: Configuration) -> tuple[Saved, ...]:
    """All that one layer keeps when nothing is recomputed; of mixed models the routed layer."""
    return layer_tensors(c.architecture, kernels_of(c), batch_of(c), routed(c.architecture))


def inner_width(arch: Architecture) -> int:
    """Inner elements of the feed-forward a token passes through."""
    if arch.moe is None:
        return arch.ffn
    return arch.moe.top_k * arch.moe.ffn + arch.moe.shared_ffn


def points(c: Configuration) -> tuple[Point, ...]:
    """The points of one layer's backward, on one rank."""
    arch, kernels, batch = c.architecture, kernels_of(c), batch_of(c)
    tensors = full_layer(c)
    incoming = batch.tokens * arch.hidden * kernels.residual
    inner = batch.tokens * kernels.element * inner_width(arch) / ways(c, "tensor")
    mlp = held(c, mlp_parameters(arch, routed(arch))).total
    second = mlp / (3 if arch.gated_mlp else 2)
    attention = held(c, attention_parameters(arch)).total
    done = on_rank(c, (t for t in tensors if t.group == "mlp"))
    norms = on_rank(c, (t for t in tensors if t.group == "norm"))
    after = incoming / ways(c, "sequence") + incoming - done
    fp32 = _norm_temporaries(c)
    return (
        Point(incoming + (2 if arch.gated_mlp else 1) * inner, second),
        Point(incoming + inner, second, second),
        Point(after + fp32, mlp),
        Point(after + _attention_gradients(c) - norms / 2, mlp + attention / 4),
        Point(2 * incoming + fp32 - on_rank(c, tensors) + norms / 2, layer_held(c).total),
    )


def _norm_temporaries(c: Configuration) -> Numeric:
    arch, kernels = c.architecture, kernels_of(c)
    eager = arch.norm != LAYERNORM and kernels.norm == "eager" and not kernels.norm_element
    width = arch.hidden * (EAGER_NORM if eager else kernels.residual)
    return batch_of(c).tokens * width / ways(c, "sequence")


def _attention_gradients(c: Configuration) -> Numeric:
    """Inside attention: of scores, or of a fused kernel's inputs over all heads."""
    arch, kernels, batch = c.architecture, kernels_of(c), batch_of(c)
    if kernels.attention in ("flash", "efficient"):
        size = batch.tokens * arch.heads * arch.head_dim * (4 + 3 * kernels.element)
    else:
        size = c.stack.memory.score_working * batch.tokens * arch.heads * batch.keys
    return size / ways(c, "tensor")


def weight_element(c: Configuration) -> int:
    """Bytes of a gradient as backward makes it, and of a gathered weight."""
    return 2 if kernels_of(c).compute == "bf16" else 4


def backward_working(c: Configuration, alive: Numeric) -> Numeric:
    """The most that one layer's backward needs beside its kept tensors. [byte]

    Parameters
    ----------
    alive : Numeric
        1 where accumulated gradients exist already, so that new ones are only temporaries.
    """
    element = weight_element(c)
    sharded = c.stack.memory.engine == "fsdp"
    most: Numeric = -np.inf
    for point in points(c):
        fresh = point.gradients if sharded else point.gradients * (1 - np.asarray(alive) * 1)
        apart = point.apart * alive * (c.stack.memory.engine != "megatron")
        most = np.maximum(most, point.size + element * (fresh + apart))
    return most
