"""Everything a file and its partners say, read by the reader of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.advisor.flags import TRAINER_MARKS
from planner.advisor.readers import Reading
from planner.advisor.settings import Settings
from planner.advisor.settings_engines import accelerate, deepspeed, plan
from planner.advisor.settings_megatron import megatron
from planner.advisor.settings_trainers import axolotl, llamafactory, trainer
from planner.lint.context import Context
from planner.lint.document import Document


def settings_of(reading: Reading, ctx: Context) -> Settings:
    """Everything the file and its partners say."""
    out = Settings()
    doc = reading.document
    _READERS[doc.kind](out, doc, ctx)
    for partner in ctx.partners:
        if partner.kind in ("plan", "deepspeed", "accelerate") and partner.name != doc.name:
            _READERS[partner.kind](out, partner, ctx)
    if ctx.trainer is not None and ctx.trainer is not doc:
        _READERS["trainer"](out, ctx.trainer, ctx)
    flags = ctx.trainer if doc.kind == "trainer" else doc
    if flags is not None and _says_all(flags):
        out.assume("precision", "fp32", "neither bf16 nor fp16 is on")
    if doc.kind in ("trainer", "llamafactory", "axolotl"):
        out.give("zero_stage", 0, doc, how="default")
        out.give("stack", "deepspeed", doc, how="default")
    return out


def _says_all(flags: Document) -> bool:
    """Whether a precision that is not on is off: not so in a script's own flags."""
    if flags.kind == "trainer":
        return bool(TRAINER_MARKS & flags.data.keys())
    return flags.kind in ("llamafactory", "axolotl")


_READERS: Mapping[str, Callable[[Settings, Document, Context], None]] = {
    "deepspeed": deepspeed,
    "accelerate": accelerate,
    "trainer": trainer,
    "llamafactory": llamafactory,
    "axolotl": axolotl,
    "megatron": megatron,
    "plan": plan,
}
