"""Megatron argument lists: recompute, and where activations are kept."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.megatron_flags import TC, VA, deepspeed, number, on, pp, tp
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key

_MODULES: tuple[str, ...] = (
    "core_attn",
    "moe_act",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "moe",
    "shared_experts",
)

_MODULES += ("mhc",)


def recompute(facts: Facts) -> Iterator[Hit]:
    """Recompute flags that must come together."""
    mode = facts.doc.get("recompute_granularity")
    method, layers = facts.doc.has("recompute_method"), facts.doc.has("recompute_num_layers")
    if mode == "full" and not method:
        values = {"what": "full recompute needs --recompute-method uniform or block"}
        patch = [set_key("recompute_method", value="uniform")]
        if not layers:
            patch.append(set_key("recompute_num_layers", value=1))
        yield Hit(("recompute_granularity",), values, tuple(patch))
    elif mode == "full" and not layers:
        values = {"what": "full recompute needs --recompute-num-layers"}
        yield Hit(("recompute_granularity",), values, (set_key("recompute_num_layers", value=1),))
    elif mode == "selective" and method:
        values = {"what": "selective recompute takes no --recompute-method"}
        yield Hit(("recompute_method",), values, (remove_key("recompute_method"),))
    elif mode not in (None, "full", "selective"):
        values = {"what": f"granularity {mode}: expected full or selective"}
        yield Hit(("recompute_granularity",), values)
    if facts.doc.get("recompute_method") not in (None, "uniform", "block"):
        yield Hit(("recompute_method",), {"what": "method: expected uniform or block"})
    modules = facts.doc.get("recompute_modules")
    listed = modules if isinstance(modules, list) else [modules] if modules else []
    for module in listed:
        if isinstance(module, str) and not module.startswith("gd") and module not in _MODULES:
            values = {"what": f"module {module}: expected among {', '.join(_MODULES)}"}
            yield Hit(("recompute_modules",), values)
    if listed and mode != "selective":
        values = {"what": "--recompute-modules is for selective recompute"}
        yield Hit(("recompute_modules",), values, (remove_key("recompute_modules"),))


def core_attention(facts: Facts) -> Iterator[Hit]:
    """Selective recompute of what flash attention does not keep."""
    flash = on(facts.doc, "use_flash_attn") or on(facts.doc, "use_flash_attn_v2")
    engine = facts.doc.get("transformer_impl", default="transformer_engine")
    flash = flash or (not deepspeed(facts.doc) and engine == "transformer_engine")
    chosen = facts.doc.get("recompute_granularity") == "selective"
    chosen = chosen or on(facts.doc, "recompute_activations")
    if chosen and flash and not facts.doc.has("recompute_modules"):
        name = (
            "recompute_granularity"
            if facts.doc.has("recompute_granularity")
            else "recompute_activations"
        )
        yield Hit((name,), {})


def distributed_activations(facts: Facts) -> Iterator[Hit]:
    """distribute_saved_activations."""
    name = "distribute_saved_activations"
    if not on(facts.doc, name):
        return
    if tp(facts.doc) == 1:
        yield Hit((name,), {"need": "tensor parallelism"}, (remove_key(name),))
    elif facts.doc.get("recompute_granularity") != "full":
        yield Hit((name,), {"need": "full recompute"}, (remove_key(name),))
    elif on(facts.doc, "sequence_parallel"):
        yield Hit((name,), {"need": "sequence parallelism off"}, (remove_key(name),))


def layer_offload(facts: Facts) -> Iterator[Hit]:
    """cpu-offloading-num-layers."""
    name = "cpu_offloading_num_layers"
    count, layers = number(facts.doc, name), number(facts.doc, "num_layers")
    if not count:
        return
    stages = pp(facts.doc)
    if stages is not None and stages > 1:
        yield Hit((name,), {"what": "excludes pipeline parallelism"}, (remove_key(name),))
    if facts.doc.has("recompute_granularity"):
        yield Hit((name,), {"what": "excludes recompute"}, (remove_key(name),))
    if layers and count >= layers:
        values = {"what": f"must be below the {layers} layers"}
        yield Hit((name,), values, (set_key(name, value=layers - 1),))


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "mg-recompute", "error", "{what}", "correct the recompute flags", f"{VA}; {TC}", recompute
    ),
    Rule(
        "mg-core-attention",
        "info",
        "selective recompute drops the attention matrices, which fused attention never keeps: it"
        " saves next to nothing",
        "name other modules with --recompute-modules, or use full recompute",
        TC,
        core_attention,
    ),
    Rule(
        "mg-distributed-activations",
        "error",
        "distribute-saved-activations needs {need}",
        "take it out",
        VA,
        distributed_activations,
    ),
    Rule(
        "mg-layer-offload",
        "error",
        "cpu-offloading-num-layers {what}",
        "change or drop it",
        TC,
        layer_offload,
    ),
)
