"""Offload to the CPU and to NVMe in a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.deepspeed_facts import AUTO, DeepSpeedFacts
from planner.lint.deepspeed_sources import ZERO, ZERO_FOLDER
from planner.lint.document import Path, as_bool, as_number
from planner.lint.rule import Hit, Rule, remove_key, set_key

LARGE_PREFETCH = 200_000_000  # elements; four times the default


def offload_param_stage(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Parameter offload below stage 3."""
    device = facts.device("offload_param")
    if device != "none" and facts.stage < 3:
        path = (ZERO, "offload_param")
        yield Hit(path, {"device": device, "stage": facts.stage}, (remove_key(*path),))


def offload_optimizer_stage(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Optimizer offload without ZeRO."""
    if facts.device("offload_optimizer") != "none" and facts.stage == 0:
        path = (ZERO, "offload_optimizer")
        yield Hit(path, {}, (set_key(ZERO, "stage", value=2),))


def nvme_stage(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """NVMe below stage 3 is CPU memory."""
    if facts.device("offload_optimizer") == "nvme" and facts.stage in (1, 2):
        path = (ZERO, "offload_optimizer", "device")
        yield Hit(path, {"stage": facts.stage}, (set_key(*path, value="cpu"),))


def nvme_path(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """NVMe without a path."""
    for which in ("offload_optimizer", "offload_param"):
        if facts.device(which) != "nvme" or facts.stage < 3:
            continue
        if not facts.doc.get(ZERO, which, "nvme_path"):
            yield Hit((ZERO, which, "device"), {"which": which})


def nvme_aio(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """NVMe needs libaio and gains from an aio section."""
    for which in ("offload_optimizer", "offload_param"):
        if facts.device(which) == "nvme" and facts.stage == 3 and not facts.doc.has("aio"):
            yield Hit((ZERO, which, "device"), {})
            return


def offload_idle(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """An offload section that offloads nothing."""
    for which in ("offload_optimizer", "offload_param"):
        section = facts.doc.get(ZERO, which)
        if not isinstance(section, Mapping) or facts.device(which) != "none" or not section:
            continue
        if "device" not in section:
            patch = (set_key(ZERO, which, "device", value="cpu"),)
            yield Hit((ZERO, which), {"which": which}, patch, "warning")
        elif section["device"] == "none" and len(section) > 1:
            yield Hit((ZERO, which, "device"), {"which": which}, (remove_key(ZERO, which),))


def partial_offload(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """ratio, super_offload: stage 3 only."""
    where = (ZERO, "offload_optimizer")
    ratio = as_number(facts.doc.get(*where, "ratio"))
    if facts.stage < 3 and ratio is not None and ratio < 1:
        path: Path = (*where, "ratio")
        yield Hit(path, {"name": "ratio below 1", "what": "stops"}, (remove_key(*path),), "error")
    if facts.stage < 3 and as_bool(facts.doc.get(*where, "super_offload")):
        path = (*where, "super_offload")
        values = {"name": "super_offload", "what": "does not use it"}
        yield Hit(path, values, (remove_key(*path),))


def ratio_granularity(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A ratio is rounded to whole sub-groups."""
    where = (ZERO, "offload_optimizer")
    ratio = as_number(facts.doc.get(*where, "ratio"))
    group = facts.zero_count("sub_group_size")
    partial = facts.stage == 3 and ratio is not None and ratio < 1
    if partial and group is not None and group >= 1_000_000_000:
        yield Hit((*where, "ratio"), {"ratio": ratio, "group": group})


def host_memory(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """What offload costs in host RAM and time."""
    if facts.stage and facts.device("offload_optimizer") == "cpu":
        both = facts.stage == 3 and facts.device("offload_param") == "cpu"
        values = {"bytes": "16 to 18" if both else "12 to 16"}
        yield Hit((ZERO, "offload_optimizer"), values)


def prefetch_offload(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Large prefetch beside offload."""
    path, size = facts.zero_path("prefetch_bucket_size"), facts.zero_count("prefetch_bucket_size")
    offloaded = facts.device("offload_param") != "none"
    if facts.stage == 3 and offloaded and size is not None and size > LARGE_PREFETCH:
        values = {"size": size, "gib": f"{size * 2 / 2**30:.1f}"}
        patch = set_key(*path, value=AUTO if facts.ctx.hugging_face else 50_000_000)
        yield Hit(path, values, (patch,))


def pin_memory(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Offload through pageable memory."""
    for which in ("offload_optimizer", "offload_param"):
        section = facts.doc.section(ZERO, which)
        pinned = as_bool(section.get("pin_memory", facts.version >= (0, 19, 5)))
        if facts.device(which) != "none" and pinned is False:
            path = (ZERO, which, "pin_memory")
            yield Hit(path, {"which": which}, (set_key(*path, value=True),))


def zenflow(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """ZenFlow's own rules."""
    where = (ZERO, "zenflow")
    section = facts.doc.get(*where)
    if not isinstance(section, Mapping):
        return
    if facts.device("offload_optimizer") == "none":
        values = {"what": "does nothing without optimizer offload to the CPU"}
        patch = (set_key(ZERO, "offload_optimizer", "device", value="cpu"),)
        yield Hit(where, values, patch, "warning")
    strategy, select = section.get("select_strategy", AUTO), section.get("select_interval", AUTO)
    update = section.get("update_interval", AUTO)
    path = (*where, "select_interval")
    if strategy == AUTO and select != AUTO:
        values = {"what": "takes no select_interval with the automatic strategy"}
        yield Hit(path, values, (remove_key(*path),))
    elif strategy in ("step", "epoch"):
        if select == AUTO:
            yield Hit(where, {"what": f"needs a select_interval with strategy {strategy}"})
        elif (
            strategy == "step"
            and isinstance(update, int)
            and isinstance(select, int)
            and select < update
        ):
            values = {"what": "needs select_interval of at least update_interval"}
            yield Hit(path, values, (set_key(*path, value=update),))
    ratio = as_number(section.get("topk_ratio"))
    if ratio is not None and ratio in (0, 1):
        values = {"what": "needs a topk_ratio between 0 and 1"}
        yield Hit((*where, "topk_ratio"), values)


_OFFLOAD = f"{ZERO_FOLDER}offload_config.py"


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-offload-param-stage",
        "warning",
        "parameter offload to {device} works at stage 3 only; at stage {stage} the parameters stay"
        " on the GPU",
        "use stage 3, or take the section out",
        f"{ZERO_FOLDER}config.py (offload_param: valid only with stage 3); runtime/engine.py",
        offload_param_stage,
    ),
    Rule(
        "ds-offload-stage-0",
        "warning",
        "optimizer offload needs ZeRO; at stage 0 nothing is offloaded",
        "use stage 1, 2 or 3",
        f"{ZERO_FOLDER}config.py (offload_optimizer: valid for stage 1, 2, 3)",
        offload_optimizer_stage,
    ),
    Rule(
        "ds-nvme-stage",
        "warning",
        "at stage {stage} the optimizer goes to CPU memory; NVMe is used at stage 3 only",
        "write cpu, or use stage 3",
        f"{ZERO_FOLDER}stage_1_and_2.py (cpu_offload covers both devices)",
        nvme_stage,
    ),
    Rule(
        "ds-nvme-path",
        "error",
        "{which} goes to NVMe but no nvme_path is given",
        "give nvme_path, a folder on the local drive",
        f"{ZERO_FOLDER}partition_parameters.py; {ZERO_FOLDER}stage3.py",
        nvme_path,
    ),
    Rule(
        "ds-nvme-aio",
        "info",
        "NVMe offload needs libaio, and the default aio section (1 MiB blocks, depth 8) is seldom"
        " the drive's best",
        "measure the drive with ds_io and add an aio section",
        "DeepSpeed 0.19.8, deepspeed/runtime/swap_tensor/constants.py",
        nvme_aio,
    ),
    Rule(
        "ds-offload-idle",
        "info",
        "{which} has device none: nothing is offloaded and its other keys are idle",
        "give device cpu, or take the section out",
        f"{_OFFLOAD} (device defaults to none)",
        offload_idle,
    ),
    Rule(
        "ds-partial-offload-stage",
        "warning",
        "{name} is for stage 3; DeepSpeed {what} below",
        "use stage 3, or take it out",
        f"{ZERO_FOLDER}config.py (offload_ratio_check); {_OFFLOAD}",
        partial_offload,
    ),
    Rule(
        "ds-ratio-granularity",
        "info",
        "ratio {ratio} is rounded to whole groups of {group} elements; with few groups everything"
        " stays on the CPU",
        "lower sub_group_size, to 1e8 say",
        f"{ZERO_FOLDER}stage3.py (int((1 - ratio) * number of sub-groups))",
        ratio_granularity,
    ),
    Rule(
        "ds-offload-cost",
        "info",
        "the offloaded step needs about {bytes} bytes of host RAM per parameter, over all ranks of"
        " the node's share, and is slower than on the GPU",
        "offload only if the GPU cannot hold the states",
        f"{ZERO_FOLDER}stage_1_and_2.py, stage3.py (fp32 master, two states, gradients)",
        host_memory,
    ),
    Rule(
        "ds-prefetch-offload",
        "warning",
        "a prefetch of {size} elements keeps {gib} GiB of parameters on the GPU ahead of use, which"
        " defeats the offload on small cards",
        "use 5e7, or auto under Hugging Face",
        f"{ZERO_FOLDER}config.py (stage3_prefetch_bucket_size)",
        prefetch_offload,
    ),
    Rule(
        "ds-pin-memory",
        "info",
        "{which} without pinned memory: copies run at a fraction of the PCIe rate and do not"
        " overlap",
        "set pin_memory to true unless host RAM is short",
        f"{_OFFLOAD} (pin_memory)",
        pin_memory,
    ),
    Rule(
        "ds-zenflow",
        "error",
        "ZenFlow {what}",
        "correct the section",
        "DeepSpeed 0.19.8, deepspeed/runtime/zenflow/zenflow_config.py (validate_fields)",
        zenflow,
    ),
)
