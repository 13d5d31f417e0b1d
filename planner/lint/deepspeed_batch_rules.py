"""Batch sizes of a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.deepspeed_facts import AUTO, BATCH_KEYS, DeepSpeedFacts
from planner.lint.deepspeed_sources import CONFIG
from planner.lint.finding import Edit
from planner.lint.rule import Hit, Rule, remove_key, set_key

_TRAIN, _MICRO, _ACCUM = BATCH_KEYS


def batch_missing(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Neither the global nor the micro-batch size."""
    if facts.doc.has(_TRAIN) or facts.doc.has(_MICRO):
        return
    patch = (set_key(_MICRO, value=1),)
    if facts.ctx.hugging_face:
        patch = (set_key(_MICRO, value=AUTO),)
    path = (_ACCUM,) if facts.doc.has(_ACCUM) else ()
    yield Hit(path, {}, patch)


def batch_product(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """train = micro x accumulation x ranks, when enough is known to tell."""
    train, micro, accum = (facts.batch(key) for key in BATCH_KEYS)
    ranks = facts.data_ranks
    if train is None or train < 1 or (micro or 1) < 1 or (accum or 1) < 1:
        return
    given = [k for k in BATCH_KEYS if facts.doc.has(k)]
    unknown = [k for k in given if facts.batch(k) is None]
    if unknown:
        return
    micro_, accum_ = micro or 1, accum or 1
    if ranks is None:
        if train % (micro_ * accum_):
            yield Hit((_TRAIN,), _numbers(train, micro, accum, "any number of"))
        return
    if micro is not None and accum is not None:
        if train != micro * accum * ranks:
            yield Hit((_TRAIN,), _numbers(train, micro, accum, ranks), _solve(train, micro, ranks))
    elif train % (micro_ * accum_ * ranks):
        yield Hit((_TRAIN,), _numbers(train, micro, accum, ranks))


def _numbers(train: int, micro: int | None, accum: int | None, ranks: object) -> dict[str, object]:
    return {
        "train": train,
        "micro": "?" if micro is None else micro,
        "accum": "?" if accum is None else accum,
        "ranks": ranks,
        "fix": _advice(train, micro, ranks),
    }


def _advice(train: int, micro: int | None, ranks: object) -> str:
    if isinstance(ranks, int):
        step = ranks * (micro or 1)
        if train % step == 0:
            return f"set {_ACCUM} to {train // step}, or leave one of the three out"
        near = max(step, round(train / step) * step)
        return f"no whole number solves it; the nearest {_TRAIN} that works is {near}"
    return "leave one of the three out, so that it is inferred"


def _solve(train: int, micro: int, ranks: int) -> tuple[Edit, ...]:
    """Keep the global batch where some accumulation reaches it, else drop the global batch."""
    if train % (micro * ranks) == 0:
        return (set_key(_ACCUM, value=train // (micro * ranks)),)
    return (remove_key(_TRAIN),)


def batch_autotp(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A global batch with AutoTP: the check counts tensor-parallel ranks as data ranks."""
    if facts.autotp and facts.doc.has(_TRAIN) and facts.doc.get(_TRAIN) != AUTO:
        yield Hit((_TRAIN,), {"tp": facts.tp}, (remove_key(_TRAIN),))


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-batch-missing",
        "error",
        "neither train_batch_size nor train_micro_batch_size_per_gpu is given; accumulation alone"
        " does not define the batch",
        "give train_micro_batch_size_per_gpu",
        f"{CONFIG} (_set_batch_related_parameters)",
        batch_missing,
    ),
    Rule(
        "ds-batch-product",
        "error",
        "train_batch_size {train} is not micro-batch {micro} x accumulation {accum} x {ranks}"
        " data-parallel ranks",
        "{fix}",
        f"{CONFIG} (_batch_assertion)",
        batch_product,
    ),
    Rule(
        "ds-batch-autotp",
        "warning",
        "with tensor parallel {tp} the batch check counts every process as a data rank, so the"
        " global batch is not the one that runs",
        "leave train_batch_size out; keep micro-batch and accumulation",
        f"{CONFIG} (DeepSpeedConfig.__init__)",
        batch_autotp,
    ),
)
