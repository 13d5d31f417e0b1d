"""An axolotl YAML: engines, their optimizers and their checkpointing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.axolotl_rules import VALIDATION
from planner.lint.document import as_bool, as_int
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key


def _fsdp_version(facts: Facts) -> int:
    inner = facts.doc.section("fsdp_config")
    given = facts.doc.get("fsdp_version") or inner.get("fsdp_version") or inner.get("version")
    return as_int(given) or 1


def both_engines(facts: Facts) -> Iterator[Hit]:
    """deepspeed and fsdp."""
    for name in ("fsdp", "fsdp_config"):
        if facts.doc.get("deepspeed") and facts.doc.get(name):
            yield Hit((name,), {}, (remove_key(name),))
            return


def eight_bit_fsdp(facts: Facts) -> Iterator[Hit]:
    """8-bit optimizers with FSDP."""
    optimizer, fsdp = str(facts.doc.get("optimizer") or ""), facts.doc.section("fsdp_config")
    if not fsdp or "8bit" not in optimizer:
        return
    if _fsdp_version(facts) == 2 and optimizer in ("adamw_8bit", "adamw_bnb_8bit"):
        patch = (set_key("optimizer", value="adamw_torch_8bit"),)
        yield Hit(("optimizer",), {"what": "FSDP2", "name": optimizer}, patch)
    offloads = fsdp.get("offload_params", fsdp.get("fsdp_offload_params"))
    if _fsdp_version(facts) == 1 and as_bool(offloads):
        patch = (set_key("optimizer", value="adamw_torch"),)
        yield Hit(("optimizer",), {"what": "FSDP offload", "name": optimizer}, patch)


def muon_engine(facts: Facts) -> Iterator[Hit]:
    """Muon and what it does not go with."""
    optimizer = facts.doc.get("optimizer")
    if optimizer == "muon" and facts.doc.get("deepspeed"):
        yield Hit(
            ("optimizer",), {"what": "DeepSpeed"}, (set_key("optimizer", value="adamw_torch"),)
        )
    has_fsdp = bool(facts.doc.get("fsdp") or facts.doc.section("fsdp_config"))
    if optimizer == "muon" and has_fsdp and _fsdp_version(facts) == 1:
        yield Hit(("optimizer",), {"what": "FSDP1"}, (set_key("fsdp_version", value=2),))


def checkpointing_off(facts: Facts) -> Iterator[Hit]:
    """No activation checkpointing."""
    mode = facts.doc.get(
        "gradient_checkpointing", default=facts.doc.get("activation_checkpointing")
    )
    inner = facts.doc.section("fsdp_config")
    own = inner.get("activation_checkpointing", inner.get("fsdp_activation_checkpointing"))
    if not mode and not as_bool(own):
        yield Hit(("gradient_checkpointing",), {}, (set_key("gradient_checkpointing", value=True),))


def checkpointing_twice(facts: Facts) -> Iterator[Hit]:
    """Checkpointing in both places."""
    inner = facts.doc.section("fsdp_config")
    own = inner.get("activation_checkpointing", inner.get("fsdp_activation_checkpointing"))
    if as_bool(own) and facts.doc.get("gradient_checkpointing"):
        path = ("gradient_checkpointing",)
        yield Hit(path, {}, (set_key(*path, value=False),))


def fsdp_1(facts: Facts) -> Iterator[Hit]:
    """The FSDP that is on its way out."""
    has_fsdp = bool(facts.doc.get("fsdp") or facts.doc.section("fsdp_config"))
    if has_fsdp and _fsdp_version(facts) == 1:
        path = ("fsdp_config",) if isinstance(facts.doc.get("fsdp_config"), Mapping) else ("fsdp",)
        yield Hit(path, {}, (set_key("fsdp_version", value=2),))


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "axolotl-both-engines",
        "error",
        "deepspeed and fsdp exclude each other; axolotl stops",
        "take one out",
        f"{VALIDATION} (check_fsdp_deepspeed)",
        both_engines,
    ),
    Rule(
        "axolotl-8bit-fsdp",
        "error",
        "{what} refuses the optimizer {name}",
        "use adamw_torch_8bit with FSDP2, adamw_torch with FSDP1",
        f"{VALIDATION} (check_fsdp2_w_8bit_optimizer, check_fsdp_offload_w_8bit_optimizer)",
        eight_bit_fsdp,
    ),
    Rule(
        "axolotl-muon",
        "error",
        "muon does not work with {what}",
        "use FSDP2, or another optimizer",
        f"{VALIDATION} (check_muon_deepspeed_fsdp)",
        muon_engine,
    ),
    Rule(
        "axolotl-checkpointing",
        "info",
        "no activation checkpointing: every layer's activations are kept",
        "set gradient_checkpointing to true if memory is short",
        "axolotl-ai-cloud/axolotl (July 2026), src/axolotl/utils/schemas/config.py",
        checkpointing_off,
    ),
    Rule(
        "axolotl-checkpointing-twice",
        "warning",
        "gradient_checkpointing on top of FSDP's own gathers the weights once more in the backward"
        " pass",
        "leave it to fsdp_config",
        "transformers 5.24.0, src/transformers/training_args.py",
        checkpointing_twice,
    ),
    Rule(
        "axolotl-fsdp-1",
        "info",
        "this is FSDP1, which axolotl marks as deprecated",
        "set fsdp_version to 2",
        f"{VALIDATION} (check_fsdp_version)",
        fsdp_1,
    ),
)
