"""Which rules look at which kind of document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.lint import (
    accelerate_deepspeed_rules,
    accelerate_fsdp_rules,
    accelerate_rules,
    argument_rules,
    axolotl_engine_rules,
    axolotl_rules,
    deepspeed_auto_rules,
    deepspeed_batch_rules,
    deepspeed_bucket_rules,
    deepspeed_engine_rules,
    deepspeed_key_rules,
    deepspeed_offload_rules,
    deepspeed_optimizer_rules,
    deepspeed_precision_rules,
    deepspeed_scheduler_rules,
    deepspeed_value_rules,
    hf_deepspeed_rules,
    hf_rules,
    hf_value_rules,
    launch_rules,
    llamafactory_rules,
    megatron_key_rules,
    megatron_pipeline_rules,
    megatron_recompute_rules,
    megatron_rules,
    megatron_run_rules,
    plan_rules,
    yaml_rules,
)
from planner.lint.context import Context, check_framework
from planner.lint.deepspeed_facts import DeepSpeedFacts
from planner.lint.document import Document, from_mapping
from planner.lint.finding import Finding
from planner.lint.rule import Facts, Rule, apply_rules

DEEPSPEED_RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    *deepspeed_value_rules.RULES,
    *deepspeed_key_rules.RULES,
    *deepspeed_auto_rules.RULES,
    *deepspeed_batch_rules.RULES,
    *deepspeed_precision_rules.RULES,
    *deepspeed_optimizer_rules.RULES,
    *deepspeed_scheduler_rules.RULES,
    *deepspeed_offload_rules.RULES,
    *deepspeed_bucket_rules.RULES,
    *deepspeed_engine_rules.RULES,
    *hf_deepspeed_rules.RULES,
)
ACCELERATE_RULES: tuple[Rule[Facts], ...] = (
    *yaml_rules.RULES,
    *accelerate_rules.RULES,
    *accelerate_deepspeed_rules.RULES,
    *accelerate_fsdp_rules.RULES,
)
MEGATRON_RULES: tuple[Rule[Facts], ...] = (
    *argument_rules.RULES,
    *megatron_rules.RULES,
    *megatron_pipeline_rules.RULES,
    *megatron_key_rules.RULES,
    *megatron_run_rules.RULES,
    *megatron_recompute_rules.RULES,
    hf_rules.ATTENTION_RULE,
)
LLAMAFACTORY_RULES: tuple[Rule[Facts], ...] = (
    *yaml_rules.RULES,
    *hf_rules.RULES,
    *hf_value_rules.RULES[2:],
    *llamafactory_rules.RULES,
    hf_rules.ATTENTION_RULE,
)
KIND_RULES: Mapping[str, tuple[Rule[Facts], ...]] = {
    "accelerate": ACCELERATE_RULES,
    "trainer": (
        *argument_rules.RULES,
        *hf_rules.RULES,
        *hf_value_rules.RULES,
        hf_rules.ATTENTION_RULE,
    ),
    "llamafactory": LLAMAFACTORY_RULES,
    "axolotl": (
        *yaml_rules.RULES,
        *axolotl_rules.RULES,
        *axolotl_engine_rules.RULES,
        hf_rules.ATTENTION_RULE,
    ),
    "megatron": MEGATRON_RULES,
    "plan": plan_rules.RULES,
    "launch": launch_rules.RULES,
}


def lint_deepspeed(
    document: Document | Mapping[str, Any], context: Context | str = "plain"
) -> tuple[Finding, ...]:
    """Findings of a DeepSpeed configuration.

    Parameters
    ----------
    document : Document or mapping
        The file as read, or its values.
    context : Context or str
        Who reads it: hf, accelerate, plain or megatron, or a whole context.

    Returns
    -------
    tuple of Finding
        Worst first; empty if there is nothing to say.

    Examples
    --------
    >>> lint_deepspeed({"train_batch_size": 8, "bf16": {"enabled": True}})
    ()
    """
    if not isinstance(document, Document):
        document = from_mapping(document)
    if isinstance(context, str):
        context = Context(check_framework(context))
    return apply_rules(DEEPSPEED_RULES, DeepSpeedFacts(document, context), document)


def lint(document: Document, context: Context) -> tuple[Finding, ...]:
    """Findings of a document of any kind, by itself and against its partners."""
    if document.kind == "deepspeed":
        return lint_deepspeed(document, context)
    return apply_rules(KIND_RULES[document.kind], Facts(document, context), document)


def all_rules() -> tuple[Rule[Any], ...]:
    """Every rule there is, once."""
    every: list[Rule[Any]] = [*DEEPSPEED_RULES]
    every += [rule for rules in KIND_RULES.values() for rule in rules]
    unique: dict[str, Rule[Any]] = {rule.id: rule for rule in every}
    return tuple(unique.values())
