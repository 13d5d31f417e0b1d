"""Precision blocks of a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.deepspeed_facts import AUTO, DeepSpeedFacts
from planner.lint.deepspeed_sources import CONFIG, ENGINE, HF_DEEPSPEED
from planner.lint.document import as_bool, as_int, as_number
from planner.lint.rule import Hit, Rule, set_key


def both_halves(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """fp16 and bf16 at once."""
    if facts.enabled("fp16") and facts.enabled("bf16"):
        yield Hit(("fp16", "enabled"), {}, (set_key("fp16", "enabled", value=False),))


def no_half(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Nothing in half precision."""
    blocks = [name for name in ("fp16", "bf16") if facts.doc.has(name, "enabled")]
    if facts.half is not False or (facts.ctx.hugging_face and not blocks):
        return
    chosen = any(facts.doc.get(name, "enabled") != AUTO for name in blocks)
    intended = any(
        facts.doc.get("data_types", name) == "fp32" for name in ("grad_accum_dtype", "param_dtype")
    )
    path = next(((s, "enabled") for s in ("bf16", "fp16") if facts.doc.has(s, "enabled")), ())
    device = facts.ctx.device
    wanted = "fp16" if device is not None and "bf16" not in device.supports else "bf16"
    patch = (set_key(wanted, "enabled", value=True),)
    # Without a block the engine takes the model as it is, which may be in half precision already.
    quiet = intended or not blocks or (facts.ctx.hugging_face and not chosen)
    yield Hit(path, {"wanted": wanted}, patch, "info" if quiet else "warning")


def half_missing(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A precision asked on the command line that the file has no block for."""
    if not facts.ctx.hugging_face:
        return
    for name, other in (("bf16", "fp16"), ("fp16", "bf16")):
        if facts.doc.has(name) or not facts.doc.has(other):
            continue
        asked = as_bool(facts.trainer(name))
        if asked or (asked is None and facts.doc.get(other, "enabled") == AUTO):
            patch = (set_key(name, value={"enabled": AUTO}),)
            severity = "warning" if asked else "info"
            yield Hit((other,), {"name": name}, patch, severity)  # type: ignore[arg-type]


def half_unsupported(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A precision the GPU does not have."""
    device = facts.ctx.device
    if device is None:
        return
    for name, other in (("bf16", "fp16"), ("fp16", "bf16")):
        if facts.enabled(name) and name not in device.supports:
            patch = [set_key(name, "enabled", value=False)]
            if other in device.supports:
                patch.append(set_key(other, "enabled", value=True))
            values = {"name": name, "gpu": device.name, "other": other}
            yield Hit((name, "enabled"), values, tuple(patch))


def loss_scale(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A first loss scale so high that the first steps are all skipped."""
    power = as_int(facts.doc.get("fp16", "initial_scale_power"))
    fixed = as_number(facts.doc.get("fp16", "loss_scale"))
    if power is not None and power > 24 and not fixed and facts.enabled("fp16") is not False:
        patch = (set_key("fp16", "initial_scale_power", value=16),)
        yield Hit(("fp16", "initial_scale_power"), {"power": power, "n": power - 16}, patch)


def loss_scale_bounds(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Dynamic loss scaling needs a positive window and floor."""
    if facts.enabled("fp16") is False or as_number(facts.doc.get("fp16", "loss_scale")):
        return
    for name, default in (("loss_scale_window", 1000), ("min_loss_scale", 1)):
        value = as_number(facts.doc.get("fp16", name))
        if value is not None and value <= 0:
            path = ("fp16", name)
            yield Hit(path, {"name": name}, (set_key(*path, value=default),))


def master_weights(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """16-bit master weights and what they need."""
    for half in ("bf16", "fp16"):
        path = (half, f"{half}_master_weights_and_grads")
        if not as_bool(facts.doc.get(*path)):
            continue
        offloaded = facts.device("offload_optimizer") != "none"
        states = as_bool(facts.doc.get("bf16", "bf16_optimizer_states"))
        if facts.stage == 0:
            yield Hit(path, {"need": "ZeRO stage 1, 2 or 3"})
        elif not offloaded and not (half == "bf16" and states):
            need = "optimizer offload to the CPU"
            need += ", or bf16_optimizer_states" if half == "bf16" else ""
            yield Hit(path, {"need": need})
    states_path = ("bf16", "bf16_optimizer_states")
    if as_bool(facts.doc.get(*states_path)) and not as_bool(
        facts.doc.get("bf16", "bf16_master_weights_and_grads")
    ):
        yield Hit(states_path, {"need": "bf16_master_weights_and_grads"})


def accumulation_dtype(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """fp32 gradient accumulation without ZeRO."""
    path = ("data_types", "grad_accum_dtype")
    if facts.stage == 0 and facts.half and facts.doc.get(*path) == "fp32":
        yield Hit(path, {}, (set_key("zero_optimization", "stage", value=1),))


def param_dtype(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """data_types.param_dtype against the precision blocks."""
    path = ("data_types", "param_dtype")
    given = facts.doc.get(*path)
    modes = [name for name in ("fp16", "bf16") if facts.enabled(name)]
    mode = modes[0] if modes else "fp32"
    known = given in ("fp16", "bf16", "fp32") and facts.half is not None
    if known and given != mode and not facts.enabled("torch_autocast"):
        yield Hit(path, {"given": given, "mode": mode}, (set_key(*path, value=mode),))


_PRECISION = "DeepSpeed 0.19.8, deepspeed/runtime/precision_config.py"


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-fp16-and-bf16",
        "error",
        "fp16 and bf16 are both on; DeepSpeed stops",
        "turn one off",
        f"{CONFIG} (_initialize_params)",
        both_halves,
    ),
    Rule(
        "ds-no-half-precision",
        "warning",
        "half precision is not on: unless the model itself is cast, weights, gathers and"
        " activations are fp32, twice the memory and traffic",
        "turn {wanted} on, or state fp32 with data_types.grad_accum_dtype",
        f"{CONFIG} (_initialize_params)",
        no_half,
    ),
    Rule(
        "ds-half-missing",
        "warning",
        "the file has no {name} block, so --{name} on the command line does not reach the engine",
        'add "{name}": {{"enabled": "auto"}}',
        f"{HF_DEEPSPEED} (fill_match returns when the section is absent)",
        half_missing,
    ),
    Rule(
        "ds-half-unsupported",
        "error",
        "{name} is on, but {gpu} has no {name}",
        "use {other}; for fp16 keep the loss scale dynamic",
        f"{ENGINE} (_do_sanity_check); the GPU's datasheet",
        half_unsupported,
    ),
    Rule(
        "ds-loss-scale-start",
        "info",
        "the first loss scale is 2^{power}: about {n} steps or more are skipped until it is small"
        " enough",
        "use 16",
        f"{_PRECISION} (initial_dynamic_scale)",
        loss_scale,
    ),
    Rule(
        "ds-loss-scale-bounds",
        "error",
        "{name} must be above 0 with dynamic loss scaling",
        "use the default",
        f"{_PRECISION} (_validate_dynamic_loss_scale_params)",
        loss_scale_bounds,
    ),
    Rule(
        "ds-master-weights",
        "error",
        "16-bit master weights need {need}",
        "add it, or take the switch out",
        f"{CONFIG} (_do_error_check); deepspeed/runtime/base_optimizer.py",
        master_weights,
    ),
    Rule(
        "ds-accumulation-dtype",
        "error",
        "fp32 gradient accumulation beside a half-precision model is not implemented without ZeRO",
        "use stage 1 or higher, or leave grad_accum_dtype out",
        f"{ENGINE} (_do_optimizer_sanity_check)",
        accumulation_dtype,
    ),
    Rule(
        "ds-param-dtype",
        "error",
        "data_types.param_dtype is {given}, but the precision blocks say {mode}",
        "write {mode}, or leave it out",
        f"{ENGINE} (_assert_valid_mixed_precision_config)",
        param_dtype,
    ),
)
