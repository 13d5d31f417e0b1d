"""Layers of each pipeline stage, by the rule of the stack that ran."""

from __future__ import annotations

from costmodels.architecture import Architecture
from costmodels.step import even_layers


def even(layers: int, pp: int) -> tuple[int, ...]:
    """The same number on every stage, the remainder on the first ones."""
    return tuple(int(n) for n in even_layers(layers, pp))


def blocks(layers: int, pp: int, before: int, after: int) -> tuple[int, ...]:
    """An even split of the layers and of what counts like one before and after them.

    >>> blocks(40, 4, 1, 2)
    (10, 11, 11, 8)
    """
    parts = list(even(layers + before + after, pp))
    parts[0] -= before
    parts[-1] -= after
    return tuple(parts) if min(parts) >= 0 else even(layers, pp)


def accounted(layers: int, pp: int, chunks: int) -> tuple[int, ...]:
    """Even; where layers do not divide over all chunks, embedding and loss count like layers.

    Megatron-Core wants the same number in each of the ``chunks`` of every stage and otherwise
    needs --account-for-embedding-in-pipeline-split and its like for the loss
    (megatron/core/transformer/transformer_block.py, get_num_layers_to_build).

    >>> accounted(80, 4, 5), accounted(126, 8, 8)
    ((20, 20, 20, 20), (15, 16, 16, 16, 16, 16, 16, 15))
    """
    whole = layers % (pp * chunks) == 0 or (layers + 2) % (pp * chunks) != 0
    return even(layers, pp) if whole else blocks(layers, pp, 1, 1)


def weighed(architecture: Architecture, pp: int) -> tuple[int, ...]:
    """Blocks dealt by computing cost: a stage ends once the sum passes its share.

    A layer costs its weights, the head its own, embedding and norms nothing; the block that
    passes the share still belongs to the stage. (nanotron, src/nanotron/models/base.py,
    build_model; models/llama.py, get_block_compute_costs)
    """
    a = architecture
    matrices = 3 if a.gated_mlp else 2
    attention = 2 * a.hidden * a.hidden + 2 * a.hidden * a.kv_heads * a.head_dim
    layer = attention + matrices * a.hidden * a.ffn
    head = a.vocab * a.hidden
    total = layer * a.layers + head
    parts, stage, done = [0] * pp, 0, 0.0
    for _ in range(a.layers):
        parts[stage] += 1
        done += layer
        if stage < pp - 1 and done > total * (stage + 1) / pp:
            stage += 1
    return tuple(parts)
