"""The ZeRO stage that a framework's name says, where the table has no cell for it."""

from __future__ import annotations

import re

STAGE = re.compile(
    r"(?<![a-z])zero[ _-]*(?:stage)?[ _-]*([0-3])(?![\d/])|deepspeed\W+stage[ _-]*([0-3])(?![\d/])",
    re.IGNORECASE,
)
# Both add to stage 3 (Rajbhandari et al. 2021, arXiv 2104.07857; Wang et al. 2023, 2306.10209).
BEYOND = re.compile(r"zero[ _-]*(infinity|\+\+)", re.IGNORECASE)
FSDP = re.compile(r"fsdp|fully[ _-]*sharded|FULL_SHARD", re.IGNORECASE)
GRADIENTS = re.compile(r"shard_grad_op|grad[ _-]*op", re.IGNORECASE)  # weights stay whole
NOTHING = re.compile(r"no_shard", re.IGNORECASE)
FULL = "3"


def stage_said(framework: str, notes: str = "") -> str:
    """The stage in a framework's name; of FSDP full sharding, unless its strategy is named.

    Parameters
    ----------
    framework : str
        The software, as a table names it.
    notes : str
        Where FSDP's strategy may be named too.

    Returns
    -------
    str
        ``0`` to ``3``; empty where nothing says one, or several are named.

    Examples
    --------
    >>> [stage_said(f) for f in ("HF + DeepSpeed ZeRO-1", "Composer FSDP", "hf-fsdp2", "deepspeed")]
    ['1', '3', '3', '']
    >>> stage_said("FSDP SHARD_GRAD_OP"), stage_said("DeepSpeed ZeRO-2 or ZeRO-3")
    ('2', '')
    """
    named = {a or b for a, b in STAGE.findall(framework)}
    if named:
        return named.pop() if len(named) == 1 else ""
    if BEYOND.search(framework):
        return FULL
    if not FSDP.search(framework):
        return ""
    strategy = f"{framework} {notes}"
    return "0" if NOTHING.search(strategy) else "2" if GRADIENTS.search(strategy) else FULL
