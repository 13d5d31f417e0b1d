"""Megatron argument lists: layers and micro-batches against pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.megatron_flags import VA, deepspeed, number, on, pp
from planner.lint.megatron_rules import data_ranks
from planner.lint.rule import Facts, Hit, Rule, remove_key


def stage_layers(facts: Facts) -> Iterator[Hit]:
    """Layers against pipeline stages."""
    layers, stages = number(facts.doc, "num_layers"), pp(facts.doc)
    if not layers or not stages or stages <= 1:
        return
    uneven = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
    free = (*uneven, "pipeline_model_parallel_layout", "hybrid_layer_pattern", "custom_partition")
    if deepspeed(facts.doc) or any(facts.doc.has(name) for name in free[2:]):
        return
    first, last = (number(facts.doc, name) for name in uneven)
    middle = layers - (first or 0) - (last or 0)
    rest = stages - (first is not None) - (last is not None)
    extra = int(on(facts.doc, "account_for_embedding_in_pipeline_split"))
    extra += on(facts.doc, "account_for_loss_in_pipeline_split")
    if rest > 0 and (middle + extra) % rest:
        yield Hit(("num_layers",), {"layers": middle + extra, "stages": rest})


def interleaving(facts: Facts) -> Iterator[Hit]:
    """Virtual stages."""
    names = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
    given = [n for n in (*names, "pipeline_model_parallel_layout") if facts.doc.has(n)]
    if len(given) > 1:
        values = {"what": "only one of the flags for virtual stages may be given"}
        yield Hit((given[1],), values, (remove_key(given[1]),))
        return
    chosen = [n for n in names if n in given]
    if not chosen:
        return
    name, stages, layers = chosen[0], pp(facts.doc), number(facts.doc, "num_layers")
    needed = 2 if on(facts.doc, "no_overlap_p2p_communication") or deepspeed(facts.doc) else 1
    if stages is not None and stages <= needed:
        values = {"what": f"interleaving needs more than {needed} pipeline stages"}
        yield Hit((name,), values, (remove_key(name),))
        return
    per = number(facts.doc, name)
    whole = bool(stages and layers and layers % stages == 0)
    if name == names[0] and per and per > 0 and whole and stages and layers:
        held = layers // stages
        if held % per:
            what = f"{held} layers a stage are no multiple of {per} per virtual stage"
            yield Hit((name,), {"what": what})
    count = micro_batches(facts)
    if count is not None and stages and count % stages:
        group = number(facts.doc, "microbatch_group_size_per_virtual_pipeline_stage", stages)
        if group and not (stages <= group <= count and count % group >= stages):
            what = f"{count} micro-batches are no multiple of {stages} pipeline stages"
            yield Hit((name,), {"what": what})


def micro_batches(facts: Facts) -> int | None:
    """Micro-batches a step and replica."""
    dp = data_ranks(facts)
    batch, micro = number(facts.doc, "global_batch_size"), number(facts.doc, "micro_batch_size")
    if dp and batch and micro and micro > 0 and batch % (dp * micro) == 0:
        return batch // (dp * micro)
    return None


def bubble(facts: Facts) -> Iterator[Hit]:
    """Few micro-batches for the pipeline."""
    stages, count = pp(facts.doc), micro_batches(facts)
    if stages and stages > 1 and count is not None and count < 4 * stages:
        virtual = number(facts.doc, "num_virtual_stages_per_pipeline_rank", 1) or 1
        share = (stages - 1) / (count * virtual + stages - 1)
        severity = "warning" if count < stages else "info"
        path = ("global_batch_size",) if facts.doc.has("global_batch_size") else ()
        values = {"count": count, "stages": stages, "share": f"{share:.0%}"}
        yield Hit(path, values, (), severity)  # type: ignore[arg-type]


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "mg-stage-layers",
        "error",
        "{layers} layers cannot be shared evenly by {stages} stages",
        "give --decoder-first/-last-pipeline-num-layers or --pipeline-model-parallel-layout",
        VA,
        stage_layers,
    ),
    Rule(
        "mg-interleaving",
        "error",
        "{what}",
        "correct the virtual stages",
        f"{VA}; megatron/core/pipeline_parallel/schedules.py",
        interleaving,
    ),
    Rule(
        "mg-bubble",
        "info",
        "{count} micro-batches over {stages} pipeline stages: about {share} of the step is bubble",
        "raise the global batch, lower the micro-batch, or use fewer stages",
        "Narayanan et al. 2021, Efficient Large-Scale Language Model Training, section 2.2",
        bubble,
    ),
)
