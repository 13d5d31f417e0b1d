"""The network a row trained: from its cells, or by name from the catalogue."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from costmodels.architecture import Architecture
from costmodels.params import total_parameters
from planner.catalogue import find_model, load_model
from planner.validate.cells import Cells
from planner.validate.run import Skip

SHAPE = ("layers", "heads", "kv_heads", "ffn", "vocab", "gated_mlp", "tied_embeddings")
STEPS = {"vocab": 1, "layers": 1, "ffn": 64}  # what a parameter count can tell, and how finely
VOCABULARIES = (5_000, 300_000)  # of tokenizers of language models
FFN_PER_HIDDEN = 4  # of a plain feed-forward where the table does not print it


def architecture_of(cells: Cells, seq_len: int) -> Architecture:
    """The network of a row.

    Cells left empty come from the catalogue where it has a model of the row's name; a missing
    feed-forward width, number of layers or vocabulary also from the parameter count.

    Raises
    ------
    Skip
        If the shape is not determined.
    """
    known = _catalogued(cells.row.text("model"))
    routed = cells.row.whole("experts")
    if known is not None and (cells.row.whole("hidden") is None or routed):
        return _cut(cells, known)
    if known is not None and _completes(known, cells):
        return _printed_over(known, cells)
    if routed:
        raise Skip(
            "missing: shape of the experts" if cells.row.text("peak_mem_gib") else "moe-time"
        )
    hidden, heads = cells.whole("hidden"), cells.whole("heads")
    if hidden is None:
        raise Skip("missing: hidden")
    shape = _dense(cells, hidden, heads, seq_len)
    return shape if shape.layers and shape.ffn and shape.vocab else _counted(cells, shape)


@cache
def _catalogued(name: str) -> Architecture | None:
    if not name:
        return None
    try:
        return load_model(find_model(name.split(" cut to ")[0])[0])
    except ValueError:
        return None


def _cut(cells: Cells, known: Architecture) -> Architecture:
    """The catalogue's model with the row's number of layers."""
    layers = cells.row.whole("layers") or known.layers
    return replace(known, layers=layers, name=cells.row.text("model"))


def _completes(known: Architecture, cells: Cells) -> bool:
    """Whether cells are empty that a catalogue model of the same shape fills.

    Only where its kind has no default of its own for them.
    """
    row = cells.row
    layers = row.whole("layers")
    same = row.whole("hidden") == known.hidden and layers in (None, known.layers)
    empty = [n for n in SHAPE if not row.text(n) and n not in cells.kind.defaults]
    cells.assumed += empty if same else []
    return same and bool(empty)


def _printed_over(known: Architecture, cells: Cells) -> Architecture:
    """The catalogue's model with what the row prints or its kind means."""
    names = [n for n in SHAPE if cells.row.text(n) or n in cells.kind.defaults]
    whole = {n: cells.whole(n) for n in names if n not in ("gated_mlp", "tied_embeddings")}
    flags = {n: cells.flag(n, False) for n in names if n in ("gated_mlp", "tied_embeddings")}
    own: dict[str, Any] = {**whole, **flags, "name": cells.row.text("model")}
    if "heads" in own:
        own["head_dim"] = -(-known.hidden // own["heads"])
        own.setdefault("kv_heads", min(known.kv_heads, own["heads"]))
    return replace(known, **own)


def _gated(cells: Cells) -> bool:
    """Whether the feed-forward has a gate; unsaid, it has unless it is four hidden wide.

    Four is the width of GPT and its descendants; gated ones keep their parameters at a lower one
    (Shazeer 2020, arXiv 2002.05202).
    """
    if cells.row.text("gated_mlp") or "gated_mlp" in cells.kind.defaults:
        return cells.flag("gated_mlp", False)
    cells.assumed.append("gated_mlp")
    ffn, hidden = cells.row.whole("ffn"), cells.row.whole("hidden")
    return ffn is not None and hidden is not None and ffn != FFN_PER_HIDDEN * hidden


def _dense(cells: Cells, hidden: int, heads: int | None, seq_len: int) -> Architecture:
    row = cells.row
    gated = _gated(cells)
    if heads is None:
        cells.assumed.append("heads")
        heads = usual_heads(hidden)
    ffn = cells.whole("ffn") or (0 if gated else FFN_PER_HIDDEN * hidden)
    biased = not gated and cells.kind.biases
    return Architecture(
        name=row.text("model"),
        family="llama" if gated else "gpt2",
        layers=cells.whole("layers") or 0,
        hidden=hidden,
        heads=heads,
        kv_heads=cells.whole("kv_heads") or heads,
        head_dim=-(-hidden // heads),
        ffn=ffn,
        vocab=cells.whole("vocab") or 0,
        max_seq_len=seq_len,
        gated_mlp=gated,
        activation="silu" if gated else "gelu",
        norm="rmsnorm" if gated else "layernorm",
        norms_per_layer=2,
        tied_embeddings=cells.flag("tied_embeddings", not gated),
        bias="all" if biased else "none",
        positional="rope" if gated else "learned",
        norm_bias=biased,
    )


def usual_heads(hidden: int) -> int:
    """Heads of the width nearest to 128 that divide a hidden width, an eighth of them a card.

    >>> usual_heads(12288), usual_heads(14400)
    (96, 120)
    """
    fitting = [a for a in range(1, hidden + 1) if hidden % a == 0 and (a % 8 == 0 or hidden < 1024)]
    return min(fitting or [1], key=lambda a: abs(hidden / a - 128))


def _counted(cells: Cells, shape: Architecture) -> Architecture:
    """Layers, feed-forward width or vocabulary, whichever alone is missing, from the parameters.

    A vocabulary only where the count leaves one that tokenizers have.
    """
    billions = cells.row.number("params_b")
    empty = [name for name in STEPS if not getattr(shape, name)]
    missing = empty[0]
    if not billions or len(empty) > 1:
        raise Skip(f"missing: {missing}")
    cells.assumed.append(missing)

    def with_steps(steps: int) -> Architecture:
        own: dict[str, Any] = {missing: STEPS[missing] * steps}
        return replace(shape, **own)

    low, high = (total_parameters(with_steps(steps)) for steps in (1, 2))
    steps = round((billions * 1e9 - low) / (high - low)) + 1
    least, most = VOCABULARIES if missing == "vocab" else (1, steps)
    if not least <= steps <= most:
        raise Skip(f"missing: {missing}")
    return with_steps(steps)
