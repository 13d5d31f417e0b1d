"""Parameters a rank holds, of a layer or of the ends, and over how many ranks ZeRO shards them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.architecture import Architecture
from costmodels.configuration import Configuration
from costmodels.numeric import Array, Numeric
from costmodels.params import (
    Parameters,
    dense_on_rank,
    experts_on_rank,
    layer_parameters,
    mean_layer_parameters,
    padded_vocab,
    routed_layers,
    stage_parameters,
    token_table,
)


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters a rank holds, and over how many ranks ZeRO may shard them. [-]"""

    dense: Numeric
    routed: Numeric
    shards: Numeric
    routed_shards: Numeric

    @property
    def total(self) -> Numeric:
        """All of them."""
        return self.dense + self.routed

    def over(self, sharded: Numeric) -> Numeric:
        """Parameters a rank keeps where ``sharded`` (0 or 1) says whether they are divided."""
        routed = self.routed / np.where(sharded, self.routed_shards, 1)
        return self.dense / np.where(sharded, self.shards, 1) + routed


def weights_sharded(c: Configuration) -> Array:
    """Whether a rank stores a share of the weights and gathers layers to run them.

    At ZeRO stage 3, and of FSDP at stage 2 as well: its SHARD_GRAD_OP only keeps layers gathered
    from their forward to their backward. (torch/distributed/fsdp/_fully_shard/_fully_shard.py,
    reshard_after_forward)
    """
    least = 2 if c.stack.memory.engine == "fsdp" else 3
    return np.asarray(np.asarray(c.zero_stage) >= least)


def summed_each(c: Configuration) -> Array:
    """Whether whole gradients are summed over the replicas in every micro-batch's backward.

    FSDP of one shard, which is what torchtitan makes of replicas (torchtitan/distributed/fsdp.py,
    resolve_fsdp_mesh), sums where it would scatter (_fsdp_collectives.py, foreach_reduce).
    """
    memory = c.stack.memory
    streams = memory.engine == "fsdp" and memory.sync_each_micro_batch and c.pp == 1
    return np.asarray((np.asarray(c.zero_stage) == 0) & streams)


def vocabulary(c: Configuration) -> Numeric:
    """Rows of the token tables as the stack pads them. [-]"""
    multiple = c.stack.memory.vocab_multiple
    return padded_vocab(c.architecture, c.tp, multiple) if multiple else c.architecture.vocab


def held(c: Configuration, parameters: Parameters) -> Held:
    """``parameters`` as one rank holds them."""
    replicas = np.asarray(c.dp) * c.cp
    routed_shards: Numeric = np.maximum(replicas * c.tp / (c.expert_tp * c.ep), 1)
    if c.stack.memory.engine == "fsdp" and c.architecture.moe is not None:
        # FSDP2 shards a tensor of all experts along them: the first rank holds whole ones
        own = np.ceil(c.architecture.moe.experts / np.asarray(c.ep))
        routed_shards = own / np.ceil(own / routed_shards)
    return Held(
        dense=dense_on_rank(c.architecture, parameters, c.tp),
        routed=experts_on_rank(parameters, c.expert_tp, c.ep),
        shards=replicas,
        routed_shards=routed_shards,
    )


def layer_held(c: Configuration) -> Held:
    """One layer; of models with routed ones the average of those after the leading dense ones."""
    return held(c, repeated_layer(c.architecture))


def repeated_layer(arch: Architecture) -> Parameters:
    """The average layer after the leading dense ones. [-]"""
    if arch.moe is None or arch.moe.first_dense_layers >= arch.layers:
        return mean_layer_parameters(arch)
    share = routed_layers(arch) / (arch.layers - arch.moe.first_dense_layers)
    return layer_parameters(arch, routed=True) * share + layer_parameters(arch) * (1 - share)


def leading_held(c: Configuration, first: Numeric) -> Held:
    """What the first stage's leading dense layers have more, or less, than repeated ones.

    A stage holds at most as many of them as an even split gives it.
    """
    arch = c.architecture
    count = 0.0 if arch.moe is None else min(arch.moe.first_dense_layers, arch.layers / c.pp)
    more = layer_parameters(arch) + repeated_layer(arch) * -1
    return held(c, more * (count * first))


def ends_held(c: Configuration, first: Numeric, last: Numeric) -> Held:
    """The embedding on the ``first`` stage, the final norm and head on the ``last``."""
    parameters = stage_parameters(c.architecture, 0, first, last, vocabulary(c))
    # a tied table is split with the head that shares it (deepspeed/module_inject/auto_tp.py)
    if not c.stack.memory.embedding_split and not c.architecture.tied_embeddings:
        table = token_table(c.architecture, vocabulary(c)) * first
        parameters = parameters + Parameters(sharded=-table, replicated=table)
    return held(c, parameters)


def stage_held(c: Configuration, first: Numeric, last: Numeric) -> Held:
    """All parameters of a stage with an even share of the layers."""
    layer, ends = layer_held(c), ends_held(c, first, last)
    share = c.architecture.layers / c.pp
    return Held(
        dense=layer.dense * share + ends.dense,
        routed=layer.routed * share + ends.routed,
        shards=ends.shards,
        routed_shards=ends.routed_shards,
    )
