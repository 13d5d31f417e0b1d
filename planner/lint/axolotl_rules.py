"""An axolotl YAML."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.document import as_bool, as_int
from planner.lint.names import names, nearest
from planner.lint.rule import Facts, Hit, Rule, move_key, remove_key, set_key

_PACKING_BACKENDS = ("flash", "flex", "sdpa", "eager", "xformers", "sage", "s2")


def _on(facts: Facts, name: str) -> bool:
    return bool(as_bool(facts.doc.get(name)))


def unknown(facts: Facts) -> Iterator[Hit]:
    """Keys that no schema has."""
    known = names("axolotl")
    for name in facts.doc.data:
        if name not in known:
            close = nearest(str(name), known, 0.86)
            meant = f"write {close}" if close else "take it out"
            patch = move_key((str(name),), (close,)) if close else remove_key(str(name))
            severity = "warning" if close else "info"
            yield Hit((str(name),), {"name": name, "meant": meant}, (patch,), severity)  # type: ignore[arg-type]


def batch_fields(facts: Facts) -> Iterator[Hit]:
    """Two of three batch fields, not all."""
    given = [
        name
        for name in ("micro_batch_size", "gradient_accumulation_steps", "batch_size")
        if facts.doc.get(name) is not None
    ]
    if "gradient_accumulation_steps" in given and "batch_size" in given:
        values = {"what": "gradient_accumulation_steps and batch_size exclude each other"}
        yield Hit(("batch_size",), values, (remove_key("batch_size"),))
    elif len(given) < 2:
        what = "two of micro_batch_size, gradient_accumulation_steps and batch_size are needed"
        has_micro = "micro_batch_size" in given
        add = "gradient_accumulation_steps" if has_micro else "micro_batch_size"
        yield Hit((), {"what": what}, (set_key(add, value=1),))


def numbers(facts: Facts) -> Iterator[Hit]:
    """Counts that are not counts."""
    for name in ("micro_batch_size", "gradient_accumulation_steps", "sequence_len"):
        value = facts.doc.get(name)
        if value is not None and ((as_int(value) or 0) < 1 or isinstance(value, bool)):
            yield Hit((name,), {"name": name, "value": value})


def both_halves(facts: Facts) -> Iterator[Hit]:
    """bf16 and fp16."""
    if facts.doc.get("bf16") is True and facts.doc.get("fp16") is True:
        yield Hit(("fp16",), {}, (set_key("fp16", value=False),))


def unsupported(facts: Facts) -> Iterator[Hit]:
    """A precision the GPU does not have."""
    device = facts.ctx.device
    if device is None:
        return
    for name in ("bf16", "fp16", "tf32", "fp8"):
        if facts.doc.get(name) is True and name not in device.supports:
            other = "fp16: true" if name == "bf16" else f"{name}: false"
            patch = [set_key(name, value=False)]
            if name == "bf16":
                patch.append(set_key("fp16", value=True))
            values = {"name": name, "gpu": device.name, "other": other}
            yield Hit((name,), values, tuple(patch))


def packing(facts: Facts) -> Iterator[Hit]:
    """Packing without an attention kernel that keeps samples apart."""
    kernel = str(facts.doc.get("attn_implementation") or "")
    old: tuple[str, ...] = (
        "flash_attention",
        "flex_attention",
        "sdp_attention",
        "xformers_attention",
    )
    old += ("eager_attention", "sage_attention", "s2_attention")
    known = any(_on(facts, name) for name in old)
    known = known or any(word in kernel for word in _PACKING_BACKENDS)
    if _on(facts, "sample_packing") and not known:
        patch = (set_key("attn_implementation", value="flash_attention_2"),)
        yield Hit(("sample_packing",), {}, patch)


def packing_rl(facts: Facts) -> Iterator[Hit]:
    """Packing with preference training."""
    if facts.doc.get("rl") and _on(facts, "sample_packing"):
        yield Hit(("sample_packing",), {}, (set_key("sample_packing", value=False),))


def warmup(facts: Facts) -> Iterator[Hit]:
    """Exclusive pairs."""
    pairs = (("warmup_steps", "warmup_ratio"), ("save_steps", "saves_per_epoch"))
    for one, two in (*pairs, ("eval_steps", "evals_per_epoch")):
        if facts.doc.get(one) and facts.doc.get(two):
            yield Hit((two,), {"one": one, "two": two}, (remove_key(two),))


def quantized(facts: Facts) -> Iterator[Hit]:
    """Adapters and loading in few bits."""
    adapter = facts.doc.get("adapter")
    loads = [name for name in ("load_in_4bit", "load_in_8bit") if _on(facts, name)]
    if adapter == "qlora" and "load_in_8bit" in loads:
        yield Hit(("load_in_8bit",), {"what": "qlora excludes load_in_8bit"})
    if adapter == "qlora" and not loads and not facts.doc.get("gptq"):
        patch = (set_key("load_in_4bit", value=True),)
        yield Hit(("adapter",), {"what": "qlora needs load_in_4bit"}, patch)
    if len(loads) == 2:
        yield Hit(("load_in_8bit",), {"what": "load_in_4bit and load_in_8bit exclude each other"})


def no_half(facts: Facts) -> Iterator[Hit]:
    """Nothing in half precision."""
    halves = ("bf16", "bfloat16", "fp16", "float16", "fp8")
    if not any(facts.doc.get(name) for name in halves):
        given = next((name for name in halves if facts.doc.has(name)), None)
        path = (given,) if given else ()
        yield Hit(path, {}, (set_key("bf16", value="auto"),))


VALIDATION = "axolotl-ai-cloud/axolotl (July 2026), src/axolotl/utils/schemas/validation.py"

RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "axolotl-unknown-key",
        "warning",
        "{name} is no key of axolotl: it is ignored without a word",
        "{meant}",
        "axolotl-ai-cloud/axolotl (July 2026), src/axolotl/utils/schemas/config.py",
        unknown,
    ),
    Rule(
        "axolotl-batch",
        "error",
        "{what}",
        "give micro_batch_size and gradient_accumulation_steps",
        f"{VALIDATION} (hint_sample_packing_padding, check_batch_size_fields)",
        batch_fields,
    ),
    Rule(
        "axolotl-bad-number",
        "error",
        "{name} is {value!r}; expected a whole number, 1 or more",
        "write a whole number",
        "axolotl-ai-cloud/axolotl (July 2026), src/axolotl/utils/schemas/training.py",
        numbers,
    ),
    Rule(
        "axolotl-fp16-and-bf16",
        "error",
        "bf16 and fp16 are both on; the trainer stops",
        "turn one off",
        "transformers 5.24.0, src/transformers/training_args.py (__post_init__)",
        both_halves,
    ),
    Rule(
        "axolotl-precision-unsupported",
        "error",
        "{name} is on, but {gpu} has no {name}",
        "write {other}",
        "axolotl-ai-cloud/axolotl (July 2026), src/axolotl/utils/schemas/config.py"
        " (check_bf16); the GPU's datasheet",
        unsupported,
    ),
    Rule(
        "axolotl-packing",
        "warning",
        "sample_packing without an attention kernel that keeps samples apart: tokens attend across"
        " samples",
        "set attn_implementation to flash_attention_2",
        f"{VALIDATION} (check_sample_packing_without_attention)",
        packing,
    ),
    Rule(
        "axolotl-packing-rl",
        "error",
        "sample_packing does not work with preference training (rl)",
        "set sample_packing to false",
        f"{VALIDATION} (check_sample_packing_w_rl)",
        packing_rl,
    ),
    Rule(
        "axolotl-exclusive",
        "error",
        "{one} and {two} exclude each other",
        "take one out",
        VALIDATION,
        warmup,
    ),
    Rule(
        "axolotl-quantized",
        "error",
        "{what}",
        "let adapter and load_in_4bit or load_in_8bit agree",
        "axolotl-ai-cloud/axolotl (July 2026), src/axolotl/utils/schemas/peft.py (validate_qlora)",
        quantized,
    ),
    Rule(
        "axolotl-no-half-precision",
        "warning",
        "neither bf16 nor fp16 is on: training runs in fp32, twice the memory and traffic",
        "write bf16: auto",
        "axolotl-ai-cloud/axolotl (July 2026), src/axolotl/utils/schemas/config.py",
        no_half,
    ),
)
