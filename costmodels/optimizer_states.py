"""Bytes an optimizer keeps for a parameter, besides the fp32 copy of 16-bit weights."""

from __future__ import annotations

from costmodels.architecture import Architecture
from costmodels.params import layer_parameters, norm_parameters, routed_layers

# fp32 bytes per parameter. Adam: two moments; momentum and Lion: one.
MOMENTS = {"sgd": 0.0, "momentum": 4.0, "adam": 8.0, "adamw": 8.0, "lion": 4.0}
BLOCK = 256  # elements that share a scale in bitsandbytes' 8-bit states
EIGHT_BIT = 2 + 2 * 4 / BLOCK  # two one-byte moments and an fp32 scale a block for each
SMALLEST_8BIT = 4096  # tensors with fewer elements stay fp32 (bitsandbytes, min_8bit_size)
OPTIMIZERS = (*MOMENTS, "adafactor", "adam8bit", "muon")
PARTS = ("layer", "table", "norm")


def state_bytes(optimizer: str, part: str, arch: Architecture, flat: bool = False) -> float:
    """Optimizer state for a parameter of a ``layer``, of a ``table`` or of a ``norm``. [byte]

    Parameters
    ----------
    flat : bool
        The optimizer sees one-dimensional shards, as under DeepSpeed ZeRO, so that Adafactor
        cannot factor its second moment.

    Raises
    ------
    ValueError
        If the optimizer is unknown.

    Notes
    -----
    Adafactor without momentum keeps a row and a column of the second moment (Shazeer and Stern
    2018, arXiv 1804.04235); Muon one momentum for matrices inside layers and Adam elsewhere.

    Examples
    --------
    >>> gpt = Architecture("g", "gpt2", 1, 64, 4, 4, 16, 256, 100, 32, False, "gelu", "layernorm",
    ...                    2, True)
    >>> [state_bytes(o, "table", gpt) for o in ("sgd", "momentum", "adamw")]
    [0.0, 4.0, 8.0]
    """
    if optimizer in MOMENTS:
        return MOMENTS[optimizer]
    if optimizer == "adam8bit":
        small = part == "norm" and arch.hidden < SMALLEST_8BIT and not flat
        return 8.0 if small else EIGHT_BIT
    if optimizer == "muon":
        return 4.0 if part == "layer" else 8.0
    if optimizer == "adafactor":
        return 4.0 if flat or part == "norm" else _factored(part, arch)
    raise ValueError(f"optimizer {optimizer!r}: expected one of {', '.join(OPTIMIZERS)}")


def _factored(part: str, arch: Architecture) -> float:
    """4 (rows + columns) / (rows * columns), over the matrices of the part."""
    h = arch.hidden
    if part == "table":
        return 4.0 * (arch.vocab + h) / (arch.vocab * h)
    q, k = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    inputs = 2 if arch.gated_mlp else 1
    edges: float = 2 * (h + q) + 2 * (h + k)
    routed = routed_layers(arch) / arch.layers
    if arch.moe is not None:
        edges += routed * arch.moe.experts * (inputs + 1) * (h + arch.moe.ffn)
    edges += (1 - routed) * (inputs + 1) * (h + arch.ffn)
    whole = layer_parameters(arch).total * (1 - routed)
    if routed:
        whole = whole + layer_parameters(arch, routed=True).total * routed
    return float(4.0 * edges / (whole - norm_parameters(arch).total))
