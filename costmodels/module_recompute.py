"""What stays of a layer when named modules of it are recomputed (Megatron-Core).

``core_attn``, ``mlp`` and ``moe`` run again from their kept input. ``layernorm``, ``moe_act`` and
``mla_up_proj`` give up their output once its reader has used it and make it anew before that
reader's backward. (megatron/core/transformer/transformer_config.py, recompute_modules;
megatron/core/tensor_parallel/random.py, CheckpointWithoutOutput)
"""

from __future__ import annotations

from collections.abc import Iterable

from costmodels.configuration import Configuration
from costmodels.kernels import Saved
from costmodels.memory_profile import Module
from costmodels.sharing import batch_of, kernels_of


def given_up(tensor: Saved, module: Module, routed: bool) -> bool:
    """Whether recomputing a module spares a tensor of a layer.

    Parameters
    ----------
    tensor : Saved
        What a layer keeps when nothing is recomputed.
    module : str
        A name that ``recompute_modules`` takes.
    routed : bool
        The layer's feed-forward is routed.
    """
    if module == "core_attn":
        return tensor.group == "attn" and tensor.role == "scores"
    if module == "layernorm":  # the outputs of the norms before attention and feed-forward
        return tensor.role == "input" and tensor.split == "input"
    if module == "mla_up_proj":
        return tensor.role == "latent"
    if module == "moe_act":
        return tensor.role == "expert"
    whole = module == ("moe" if routed else "mlp")
    return whole and tensor.group == "mlp" and not _entry(tensor)


def _entry(tensor: Saved) -> bool:
    """The norm's output, from which a feed-forward runs again."""
    return tensor.role == "input" and tensor.split == "input"


def without(c: Configuration, tensors: Iterable[Saved]) -> tuple[Saved, ...]:
    """The tensors that stay under the stack's ``recompute_modules``.

    A routed feed-forward that runs again keeps its input, which otherwise only its router does.
    """
    modules, routed = c.stack.memory.recompute_modules, c.architecture.moe is not None
    kept = tuple(t for t in tensors if not any(given_up(t, m, routed) for m in modules))
    if routed and "moe" in modules and "layernorm" not in modules:
        size = batch_of(c).tokens * kernels_of(c).element * c.architecture.hidden
        kept += (Saved("mlp", "input", size, "input"),)
    return kept
