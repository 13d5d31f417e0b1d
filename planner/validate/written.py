"""How people and programs write a cell: blanks, thousands, units, per cent, yes and no."""

from __future__ import annotations

import re

from planner.validate.columns import FLAGS, NUMBERS, TEXTS, WHOLE

# What programs write into a cell that holds nothing.
BLANK = ("nan", "n/a", "na", "#n/a", "null", "<na>", "nat", "-", "--", "?", "unknown")
BLANK_NUMBERS = (*BLANK, "none", "not stated", "not printed")
FREE = ("source", "ref", "model", "notes")  # any text means itself
UNITS = {  # a column's own unit may stand behind the number
    "mfu_pct": r"%",
    "gpu_mem_gb": r"gi?b",
    "peak_mem_gib": r"gib",
    "step_time_s": r"s|sec|seconds",
    "params_b": r"b",
    "tokens_per_s_per_gpu": r"tokens/s(ec)?(/gpu)?|tok/s(/gpu)?",
    "tflops_per_gpu": r"tflops?(/s)?(/gpu)?",
}
THOUSANDS = re.compile(r"\d{1,3}([, \u00a0\u202f]\d{3})+(\.\d+)?")
ZERO = re.compile(r"zero[- ]?(\d)", re.IGNORECASE)
YES = ("true", "yes", "y", "on", "1", "1.0", "t")
NO = ("false", "no", "n", "off", "0", "0.0", "f")


def column(name: str) -> str:
    """The column a header means, whatever its case and spaces; unknown ones as they are.

    >>> column(" Seq Len "), column("My Column")
    ('seq_len', 'My Column')
    """
    name = one_line(name)
    plain = re.sub(r"[ -]+", "_", name.lower())
    return plain if plain in (*NUMBERS, *FLAGS, *TEXTS) else name


def one_line(text: str) -> str:
    """The text with single spaces for whitespace and for what cannot be printed.

    >>> one_line(" 0\\r0\\x1b ")
    '0 0'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def canonical(name: str, text: str) -> str:
    """A cell as the rest of the program reads it; what makes no sense stays as it is.

    >>> canonical("n_gpus", "1,024"), canonical("mfu_pct", "45.2 %"), canonical("dp", "NaN")
    ('1024', '45.2', '')
    >>> canonical("sequence_parallel", "Yes"), canonical("layers", "many")
    ('true', 'many')
    """
    text = one_line(text)
    if name in FREE:
        return "" if text.lower() == "nan" else text
    if text.lower() in (BLANK_NUMBERS if name in (*NUMBERS, *FLAGS) else BLANK):
        return ""
    if name in NUMBERS:
        return _number(name, text)
    if name in FLAGS:
        low = text.lower()
        return "true" if low in YES else "false" if low in NO else low
    return text.lower() if name in ("outcome", "mem_kind") else text


def _number(name: str, text: str) -> str:
    plain = text
    if name in UNITS:
        plain = re.sub(rf"(?<=[\d.])\s*(?:{UNITS[name]})$", "", plain, flags=re.IGNORECASE)
    if name == "zero_stage" and (stage := ZERO.fullmatch(plain)):
        return stage[1]
    if THOUSANDS.fullmatch(plain):
        plain = re.sub(r"[, \u00a0\u202f]", "", plain)
    try:
        value = float(plain)
    except ValueError:
        return text
    if name in WHOLE and value == value // 1 and abs(value) < 1e15:
        return str(int(value))
    return plain
