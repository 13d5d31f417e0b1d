"""What the ends of the model hold: embedding, output projection and loss."""

from __future__ import annotations

import numpy as np

from costmodels.activations import embedding_saved, head_saved, rotary_tables
from costmodels.attention_activations import SOFTCAP_FAMILIES, score_bytes
from costmodels.backward_memory import weight_element
from costmodels.configuration import Configuration
from costmodels.held import stage_held, vocabulary
from costmodels.memory_profile import Logits
from costmodels.numeric import Numeric, ceil_div
from costmodels.params import token_table
from costmodels.sharing import batch_of, kernels_of, ways
from costmodels.states import gradient_bytes


def logits_of(c: Configuration) -> Logits:
    """The figures of the cross-entropy that runs.

    Raises
    ------
    ValueError
        If the stack has no such cross-entropy.
    """
    profile = c.stack.memory
    name = profile.cross_entropy if c.cross_entropy == "auto" else c.cross_entropy
    if name not in profile.logits:
        known = ", ".join(sorted(profile.logits))
        raise ValueError(f"cross_entropy {name!r}: stack {c.stack.name} has {known}")
    return profile.logits[name]


def logit_count(c: Configuration) -> Numeric:
    """Logits that exist at once on one rank of the last stage. [-]"""
    tokens, vocab = batch_of(c).tokens, vocabulary(c)
    chunks = logits_of(c).chunks
    if chunks > 0:
        tokens = tokens / chunks
    elif chunks < 0:
        # Liger: a power of two near tokens / (V / h), so that logits take about T h elements
        pieces = ceil_div(vocab, c.architecture.hidden)
        rows = 2.0 ** np.ceil(np.log2(np.maximum(ceil_div(tokens, pieces), 1)))
        tokens = np.minimum(rows, tokens)
    return tokens * vocab / (np.asarray(c.tp) if c.stack.memory.logits_sharded else 1)


def table_bytes(c: Configuration) -> Numeric:
    """One token table on a rank, in the type of its gradient. [byte]"""
    ways = 1 if c.stack.memory.tables_whole else np.asarray(c.tp)
    return token_table(c.architecture, vocabulary(c)) / ways * weight_element(c)


def loss_bytes(c: Configuration, moment: str) -> Numeric:
    """Bytes the loss holds on the last stage: ``forward``, ``backward``, ``rest``, ``metrics``."""
    figures = logits_of(c)
    size = {
        "forward": figures.forward,
        "backward": figures.backward,
        "rest": figures.rest,
        "metrics": figures.metrics,
    }[moment]
    if c.precision in ("fp32", "tf32") and figures.chunks == 0 and moment == "forward":
        size = max(size - 2, figures.saved)  # the logits are fp32 already
    if moment != "rest" and c.architecture.family in SOFTCAP_FAMILIES:
        size = size + kernels_of(c).element  # tanh(logits / c)
    split = 0.0 if moment == "rest" else c.stack.memory.split_logits
    held = (size + np.where(np.asarray(c.tp) > 1, split, 0.0)) * logit_count(c)
    if moment == "backward":
        held = np.maximum(held, _projection_backward(c))
    profile = c.stack.memory
    earlier = profile.last_outputs if c.pp > 1 or profile.engine_alone else 0.0
    held = held + earlier * logit_count(c)
    if figures.lost and moment == "backward":
        freed = figures.lost * logit_count(c) + _layer_scores(c)
        held = held + np.maximum(freed - _gradients_of_last(c), 0.0)
    if figures.table:
        elements = token_table(c.architecture, vocabulary(c)) / np.asarray(c.tp)
        inputs = batch_of(c).tokens * c.architecture.hidden * kernels_of(c).element
        held = held + figures.table * elements + inputs
    return held


def _layer_scores(c: Configuration) -> Numeric:
    """Blocks of one layer's scores in unfused attention, which its backward frees. [byte]"""
    kernels, batch = kernels_of(c), batch_of(c)
    if kernels.attention in ("flash", "efficient"):
        return 0.0 * batch.tokens
    width = score_bytes(c.architecture, kernels) + c.stack.memory.score_working
    return width * batch.tokens * batch.keys * c.architecture.heads / ways(c, "tensor")


def _gradients_of_last(c: Configuration) -> Numeric:
    """Gradients the last stage makes in its first backward, an even share of layers. [byte]"""
    return gradient_bytes(c) * stage_held(c, 0, 1).total


def _projection_backward(c: Configuration) -> Numeric:
    """The output projection runs backward: gradients of logits, table and input. [byte]

    Under sequence parallelism its input is gathered again and the input's gradient is whole
    before it is scattered.
    """
    kernels = kernels_of(c)
    stream = batch_of(c).tokens * c.architecture.hidden * kernels.element
    sequence = np.asarray(ways(c, "sequence"))
    profile = c.stack.memory
    again = profile.linear_inputs == "sharded" and not profile.gather_buffer  # it is in the buffer
    gathered = np.where(sequence > 1, (again * 1 + 1 / sequence) * stream, 0.0)
    return kernels.element * logit_count(c) + table_bytes(c) + stream + gathered


def first_stage_saved(c: Configuration) -> Numeric:
    """What the embedding keeps for one micro-batch. [byte]"""
    return embedding_saved(c.architecture, kernels_of(c), batch_of(c)) / ways(c, "sequence")


def last_stage_saved(c: Configuration) -> Numeric:
    """The final norm and the projection's input, for one micro-batch. [byte]"""
    kernels, batch = kernels_of(c), batch_of(c)
    entry = batch.tokens * kernels.saved_input * c.architecture.hidden
    norm = head_saved(c.architecture, kernels, batch) - entry
    return norm / ways(c, "sequence") + entry / ways(c, "input")


def shared_tables(c: Configuration) -> Numeric:
    """Rotary tables, once on every stage. [byte]"""
    return rotary_tables(c.architecture, kernels_of(c), batch_of(c))


def uncast_output(c: Configuration) -> Numeric:
    """The fp32 output of the final norm, alive in the forward under autocast. [byte]"""
    kernels = kernels_of(c)
    size = batch_of(c).tokens * c.architecture.hidden * kernels.residual
    return size / ways(c, "sequence") if kernels.compute == "amp" else 0.0 * size
