"""Pipeline, ZeRO++, gradients and checkpointing in a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.deepspeed_facts import DeepSpeedFacts
from planner.lint.deepspeed_sources import ENGINE, ZERO, ZERO_FOLDER
from planner.lint.deepspeed_words import PIPELINE_DEGREE_KEYS
from planner.lint.document import as_bool, as_int, as_number
from planner.lint.rule import Hit, Rule, remove_key, set_key


def pipeline_stage(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Pipeline parallelism with gradients or weights sharded."""
    if facts.pp > 1 and facts.stage >= 2:
        patch = (set_key(ZERO, "stage", value=1),)
        yield Hit((ZERO, "stage"), {"stage": facts.stage, "pp": facts.pp}, patch)


def pipeline_reentrant(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Activation checkpointing in DeepSpeed's pipeline."""
    interval = as_int(facts.doc.get("pipeline", "activation_checkpoint_interval"))
    if interval and as_bool(facts.doc.get("pipeline", "use_reentrant")) is not False:
        path = ("pipeline", "activation_checkpoint_interval")
        yield Hit(path, {}, (set_key("pipeline", "use_reentrant", value=False),))


def pipeline_seeds(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """seed_layers on current Pythons."""
    path = ("pipeline", "seed_layers")
    if as_bool(facts.doc.get(*path)):
        yield Hit(path, {}, (set_key(*path, value=False),))


def hpz(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """The secondary shard of ZeRO++."""
    size = facts.zero_count("zero_hpz_partition_size")
    path = (ZERO, "zero_hpz_partition_size")
    if facts.stage != 3 or size is None or size <= 1:
        return
    world, device = facts.ctx.world, facts.ctx.device
    if world is not None and world % int(size):
        values = {"what": f"{world} processes are not a multiple of it", "size": int(size)}
        yield Hit(path, values, (), "error")
    elif device is not None and size != device.gpus_per_node:
        node = device.gpus_per_node
        values = {"what": f"a node has {node} GPUs, so its groups do not match", "size": int(size)}
        yield Hit(path, values, (set_key(*path, value=node),), "warning")
    else:
        what = "each node keeps one more 16-bit copy of the weights, and no gather leaves the node"
        yield Hit(path, {"what": what, "size": int(size)}, (), "info")


def quantized_gradients(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """zero_quantized_gradients needs reduce_scatter."""
    quantized = facts.stage == 3 and as_bool(facts.zero("zero_quantized_gradients"))
    if quantized and as_bool(facts.zero("reduce_scatter")) is False:
        path = (ZERO, "reduce_scatter")
        yield Hit(path, {}, (set_key(*path, value=True),))


def old_stage_1(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """legacy_stage1."""
    path = (ZERO, "legacy_stage1")
    if as_bool(facts.doc.get(*path)):
        yield Hit(path, {}, (remove_key(*path),))


def elastic_checkpoint(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """elastic_checkpoint at stage 3."""
    path = (ZERO, "elastic_checkpoint")
    if facts.stage == 3 and as_bool(facts.doc.get(*path)):
        yield Hit(path, {}, (remove_key(*path),))


def grad_norm(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """compute_grad_norm off, and what it excludes."""
    path = (ZERO, "compute_grad_norm")
    if as_bool(facts.doc.get(*path)) is not False:
        return
    reasons = {
        "ZeRO stage 1 or 2": facts.stage not in (1, 2),
        "gradient_clipping 0": bool(as_number(facts.doc.get("gradient_clipping"))),
        "no ZenFlow": facts.doc.has(ZERO, "zenflow"),
        "no optimizer offload": facts.device("offload_optimizer") != "none",
    }
    for need, broken in reasons.items():
        if broken:
            yield Hit(path, {"need": need}, (remove_key(*path),))
            return


def predivide(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Gradient scaling that reduce-scatter does not support."""
    if facts.stage < 2 or as_bool(facts.zero("reduce_scatter")) is False:
        return
    factor = as_number(facts.doc.get("gradient_predivide_factor"))
    if factor is not None and factor != 1:
        path = ("gradient_predivide_factor",)
        yield Hit(path, {"name": path[0]}, (remove_key(*path),))
    if as_bool(facts.doc.get("prescale_gradients")):
        path = ("prescale_gradients",)
        yield Hit(path, {"name": path[0]}, (remove_key(*path),))


def summed_gradients(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """gradient_allreduce_op sum."""
    op = facts.doc.get("gradient_allreduce_op")
    deep = as_bool(facts.doc.get("compile", "deepcompile"))
    blocked = facts.stage == 3 or facts.doc.has(ZERO, "zenflow") or deep
    if isinstance(op, str) and op.lower() == "sum" and blocked:
        path = ("gradient_allreduce_op",)
        yield Hit(path, {}, (remove_key(*path),))


def activation_checkpointing(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """The section configures a function; it does not turn anything on."""
    section = facts.doc.section("activation_checkpointing")
    if not section:
        return
    on = [key for key, value in section.items() if value not in (False, None)]
    inert = facts.ctx.hugging_face and bool(on)
    path = ("activation_checkpointing",)
    patch = (remove_key(*path),) if facts.ctx.hugging_face else ()
    yield Hit(path, {}, patch, "warning" if inert else "info")


def partitioned_activations(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """partition_activations without tensor parallelism."""
    path = ("activation_checkpointing", "partition_activations")
    known = any(facts.doc.has(key) for key in PIPELINE_DEGREE_KEYS) or facts.autotp
    if as_bool(facts.doc.get(*path)) and facts.tp == 1 and known:
        yield Hit(path, {}, (set_key(*path, value=False),))


def one_rank(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """ZeRO over a single process."""
    offloads = any(facts.device(w) != "none" for w in ("offload_optimizer", "offload_param"))
    if facts.ctx.world == 1 and facts.stage and not offloads:
        yield Hit((ZERO, "stage"), {"stage": facts.stage})


def degrees(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Parallel degrees that the processes cannot be divided into."""
    world = facts.ctx.world
    split = facts.pp * facts.tp * (as_int(facts.doc.get("sequence_parallel_size")) or 1)
    if world is not None and split > 1 and world % split:
        keys = (*PIPELINE_DEGREE_KEYS, "tensor_parallel", "sequence_parallel_size")
        path = next(((key,) for key in keys if facts.doc.has(key)), ())
        yield Hit(path, {"world": world, "split": split})


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-pipeline-stage",
        "error",
        "the pipeline engine refuses ZeRO stage {stage}: {pp} pipeline stages work with 0 or 1"
        " only",
        "use stage 1",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/engine.py",
        pipeline_stage,
    ),
    Rule(
        "ds-pipeline-reentrant",
        "warning",
        "reentrant checkpointing fails on a stage whose input needs no gradient (the embedding)",
        "set pipeline.use_reentrant to false",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/module.py",
        pipeline_reentrant,
    ),
    Rule(
        "ds-pipeline-seeds",
        "warning",
        "seed_layers crashes on Python 3.11 and later (random.seed is given a type it refuses)",
        "set it to false",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/module.py",
        pipeline_seeds,
    ),
    Rule(
        "ds-hpz",
        "error",
        "zero_hpz_partition_size {size}: {what}",
        "use the number of GPUs of one node",
        f"{ZERO_FOLDER}config.py (zero_hpz_partition_size); deepspeed/utils/groups.py",
        hpz,
    ),
    Rule(
        "ds-quantized-gradients",
        "error",
        "zero_quantized_gradients needs reduce_scatter",
        "set reduce_scatter to true",
        f"{ZERO_FOLDER}stage3.py",
        quantized_gradients,
    ),
    Rule(
        "ds-legacy-stage-1",
        "error",
        "legacy_stage1 is not supported any more; DeepSpeed stops",
        "take it out",
        ENGINE,
        old_stage_1,
    ),
    Rule(
        "ds-elastic-checkpoint",
        "warning",
        "elastic_checkpoint does nothing at stage 3",
        "use universal checkpointing",
        f"{ZERO_FOLDER}config.py (elastic_checkpoint_deprecated)",
        elastic_checkpoint,
    ),
    Rule(
        "ds-grad-norm",
        "error",
        "compute_grad_norm false needs {need}",
        "take it out",
        f"{ZERO_FOLDER}config.py (compute_grad_norm_valid); {ENGINE}",
        grad_norm,
    ),
    Rule(
        "ds-predivide",
        "error",
        "{name} is not supported with reduce_scatter at stages 2 and 3",
        "take it out, or set reduce_scatter to false",
        f"{ZERO_FOLDER}stage_1_and_2.py, {ZERO_FOLDER}stage3.py",
        predivide,
    ),
    Rule(
        "ds-summed-gradients",
        "error",
        "gradient_allreduce_op sum is refused with stage 3, ZenFlow and DeepCompile",
        "take it out",
        "DeepSpeed 0.19.8, deepspeed/runtime/config.py (_do_error_check)",
        summed_gradients,
    ),
    Rule(
        "ds-activation-checkpointing",
        "info",
        "the section only configures deepspeed.checkpointing; a model that does not call it, as"
        " Hugging Face models do not, keeps all activations",
        "turn checkpointing on in the model: --gradient_checkpointing under Hugging Face",
        "DeepSpeed 0.19.8, deepspeed/runtime/activation_checkpointing/checkpointing.py",
        activation_checkpointing,
    ),
    Rule(
        "ds-partitioned-activations",
        "warning",
        "partition_activations saves nothing without tensor parallelism",
        "set it to false",
        "DeepSpeed 0.19.8, deepspeed/runtime/activation_checkpointing/checkpointing.py",
        partitioned_activations,
    ),
    Rule(
        "ds-one-rank",
        "info",
        "stage {stage} over one process shards nothing and still pays for the buckets",
        "start one process per GPU, offload, or use stage 0",
        f"{ZERO_FOLDER}config.py (states are partitioned over the data-parallel ranks)",
        one_rank,
    ),
    Rule(
        "ds-degrees",
        "error",
        "{world} processes cannot be divided into model parts of {split}",
        "make the product of the degrees divide the number of processes",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/topology.py; deepspeed/utils/groups.py",
        degrees,
    ),
)
