"""What a layer keeps at each checkpoint granularity, and what its backward needs besides.

"Kept" exists for every layer until its backward, "working" once, while a layer runs backward: the
tensors it recomputes and the gradients between its operations.
"""

from __future__ import annotations

from collections.abc import Iterable

from costmodels.activations import input_alias, layer_input
from costmodels.backward_memory import backward_working, full_layer
from costmodels.configuration import Configuration
from costmodels.costs import GRANULARITIES, SEGMENT
from costmodels.kernels import Batch, Kernels, Saved
from costmodels.module_recompute import without
from costmodels.numeric import Numeric
from costmodels.sharing import batch_of, kernels_of, on_rank, ways


def checkpoint(c: Configuration) -> Numeric:
    """A layer's input on one rank. [byte]"""
    kernels, batch = kernels_of(c), batch_of(c)
    return layer_input(c.architecture, kernels, batch.tokens) / ways(c, "sequence")


def kept(c: Configuration) -> dict[str, Numeric]:
    """Bytes each layer keeps for one micro-batch, by granularity."""
    segment = 0.0 * checkpoint(c) if c.stack.memory.checkpoints_offloaded else checkpoint(c)
    sizes: dict[str, Numeric] = {
        "none": on_rank(c, full_layer(c)),
        "selective": on_rank(c, selective_tensors(c)),
    }
    for granularity in GRANULARITIES:
        if granularity not in sizes:
            sizes[granularity] = segment / SEGMENT[granularity]
    return sizes


def working(c: Configuration, alive: Numeric) -> dict[str, Numeric]:
    """Bytes held once while a layer of that granularity runs backward.

    ``alive`` is 1 where accumulated gradients exist already.
    """
    gradients = backward_working(c, alive)
    whole = on_rank(c, full_layer(c))
    own = input_alias(c.architecture, kernels_of(c), batch_of(c).tokens) / ways(c, "sequence")
    sizes: dict[str, Numeric] = {
        "none": gradients,
        "selective": gradients + whole - on_rank(c, _shared_with_full(c)),
    }
    for granularity in GRANULARITIES:
        if granularity not in sizes:
            sizes[granularity] = gradients + SEGMENT[granularity] * whole - own
    return sizes


def selective_tensors(c: Configuration) -> tuple[Saved, ...]:
    """What stays of a layer under the stack's selective recomputation. [byte]

    ``attention``: all but what core attention keeps for itself (Korthikanti et al. 2022, section
    5). ``activations``: the layer's input and every output of a matrix product or of the
    attention kernel, as torch.utils.checkpoint's selective policy saves them. ``half``: of the
    matrix products only every other one (torchtitan, distributed/activation_checkpoint.py).
    ``modules``: all but what the stack's ``recompute_modules`` make anew.
    """
    policy = c.stack.memory.selective
    if policy == "modules":
        return without(c, full_layer(c))
    if policy == "attention":
        return tuple(t for t in full_layer(c) if t.role != "scores" or t.group != "attn")
    return products(c, half=policy == "half")


def products(c: Configuration, half: bool) -> tuple[Saved, ...]:
    """Layer input, outputs of matrix products, attention output and its statistics. [byte]

    Order of the products: query, key, value, attention out, gate, up, down; ``half`` keeps the
    first, third, fifth and seventh.
    """
    arch, kernels, batch = c.architecture, kernels_of(c), batch_of(c)
    unit = batch.tokens * kernels.element
    q, k, h = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim, arch.hidden
    scores = tuple(t for t in full_layer(c) if t.role == "scores")
    kept_scores = scores if kernels.attention in ("flash", "efficient") else ()
    tensors = (
        Saved("other", "input", layer_input(arch, kernels, batch.tokens), "sequence"),
        Saved("attn", "product", unit * 2 * q),  # query and the kernel's output
        Saved("attn", "product", unit * k * (1 if half else 2), "kv"),
        Saved("other", "product", unit * h, "sequence"),  # down
        *kept_scores,
    )
    if not half:
        tensors += (Saved("other", "product", unit * h, "sequence"),)  # attention out
    return tensors + _inner_products(c, kernels, batch, half)


def _inner_products(
    c: Configuration, kernels: Kernels, batch: Batch, half: bool
) -> tuple[Saved, ...]:
    """Outputs of the feed-forward's first products, per routed copy where it is routed."""
    arch = c.architecture
    inputs = 2 if arch.gated_mlp and not half else 1
    unit = batch.tokens * kernels.element * inputs
    if arch.moe is None:
        return (Saved("mlp", "product", unit * arch.ffn),)
    copies = unit * arch.moe.top_k
    down = batch.tokens * arch.moe.top_k * kernels.element * arch.hidden
    return (
        Saved("mlp", "product", copies * arch.moe.ffn),
        Saved("mlp", "product", unit * arch.moe.shared_ffn),
        Saved("mlp", "product", down, "none"),
    )


def _shared_with_full(c: Configuration) -> Iterable[Saved]:
    """Tensors that stay under the selective policy and that the recomputed layer uses as well."""
    if c.stack.memory.selective in ("attention", "modules"):
        return selective_tensors(c)
    return tuple(t for t in selective_tensors(c) if t.group != "other")
