"""Batch sizes, precision, optimizer and scheduler of a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.deepspeed_facts import AUTO, BATCH_KEYS, DeepSpeedFacts
from planner.lint.deepspeed_keys import OPTIMIZERS, SCHEDULERS
from planner.lint.document import as_bool, as_int, as_number
from planner.lint.finding import Edit
from planner.lint.names import nearest
from planner.lint.rule import Hit, Rule, remove_key, set_key

_TRAIN, _MICRO, _ACCUM = BATCH_KEYS
_TORCH_OPTIMIZERS: tuple[str, ...] = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "SparseAdam",
    "Adamax",
)
_TORCH_OPTIMIZERS += ("ASGD", "LBFGS", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "Muon")
_RETIRED_OPTIMIZERS = ("onebitadam", "onebitlamb", "zerooneadam")
# Wrapped by ZeRO without a question (DeepSpeed 0.19.8, runtime/zero/utils.py).
_TESTED: tuple[str, ...] = (
    "adam",
    "adamw",
    "adagrad",
    "lion",
    "muon",
    "fusedadam",
    "deepspeedcpuadam",
)
_TESTED += ("deepspeedcpuadagrad", "deepspeedcpulion", "fusedlion", "muonwithauxadam")
_CPU_OPTIMIZERS = ("deepspeedcpuadam", "deepspeedcpulion", "zenflowcpuadam")


def batch_missing(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Neither the global nor the micro-batch size."""
    if facts.ctx.framework == "hf" and facts.ctx.inferred:
        return
    if facts.doc.has(_TRAIN) or facts.doc.has(_MICRO):
        return
    patch = (set_key(_MICRO, value=1),)
    if facts.ctx.hugging_face:
        patch = (set_key(_MICRO, value=AUTO),)
    path = (_ACCUM,) if facts.doc.has(_ACCUM) else ()
    severity = "error" if not facts.ctx.hugging_face else "warning"
    yield Hit(path, {}, patch, severity)  # type: ignore[arg-type]


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


def unknown_optimizer(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """An optimizer that neither DeepSpeed nor torch.optim has."""
    name = facts.optimizer_type
    if name is None or name.lower() in OPTIMIZERS or name in _TORCH_OPTIMIZERS:
        return
    if name.lower() in _RETIRED_OPTIMIZERS and facts.version < (0, 19, 6):
        return
    close = nearest(name, (*_TORCH_OPTIMIZERS, *OPTIMIZERS), 0.7)
    patch = (set_key("optimizer", "type", value=close),) if close else ()
    yield Hit(("optimizer", "type"), {"name": name}, patch)


def untested_optimizer(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """An optimizer ZeRO asks a confirmation for."""
    name = facts.optimizer_type or facts.ctx.client_optimizer
    allowed = as_bool(facts.doc.get("zero_allow_untested_optimizer"))
    if facts.stage == 0 or name is None or allowed:
        return
    if facts.ctx.hugging_face and facts.optimizer_type is None:
        return  # Hugging Face sets the switch itself
    bare = name.rsplit(".", 1)[-1]
    if bare.lower() in _TESTED:
        return
    if bare.lower() in OPTIMIZERS or bare in _TORCH_OPTIMIZERS or not facts.optimizer_type:
        path = ("optimizer", "type") if facts.optimizer_type else ()
        patch = (set_key("zero_allow_untested_optimizer", value=True),)
        yield Hit(path, {"name": bare}, patch)


def client_optimizer(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Optimizer offload with an optimizer the script makes itself."""
    name = facts.ctx.client_optimizer
    if name is None or facts.device("offload_optimizer") == "none" or facts.stage == 0:
        return
    if facts.ctx.hugging_face:
        return  # Accelerate puts a DeepSpeedCPUAdam in its place
    forced = facts.doc.get("zero_force_ds_cpu_optimizer", default=True)
    bare = name.strip().rsplit(".", 1)[-1].rsplit(" ", 1)[-1]
    if as_bool(forced) is False or bare.lower() in _CPU_OPTIMIZERS:
        return
    patch = (set_key("zero_force_ds_cpu_optimizer", value=False),)
    yield Hit(("zero_optimization", "offload_optimizer"), {"name": name}, patch)


def max_grad_norm(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Gradient clipping as an optimizer parameter."""
    path = ("optimizer", "params", "max_grad_norm")
    if facts.doc.has(*path):
        patch = [remove_key(*path)]
        if not facts.doc.has("gradient_clipping"):
            patch.insert(0, set_key("gradient_clipping", value=facts.doc.get(*path)))
        yield Hit(path, {}, tuple(patch))


def lamb_scale(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Lamb in fp16 needs dynamic loss scaling."""
    is_lamb = (facts.optimizer_type or "").lower() == "lamb"
    if is_lamb and facts.enabled("fp16") and as_number(facts.doc.get("fp16", "loss_scale")):
        yield Hit(("fp16", "loss_scale"), {}, (set_key("fp16", "loss_scale", value=0),))


def muon_reduce(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Muon at stage 3 needs whole gradients."""
    is_muon = (facts.optimizer_type or "").lower() == "muon"
    if is_muon and facts.stage == 3 and as_bool(facts.zero("reduce_scatter")) is not False:
        path = ("zero_optimization", "reduce_scatter")
        yield Hit(("optimizer", "type"), {}, (set_key(*path, value=False),))


def slow_cpu_adam(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """torch's Adam on the CPU."""
    path = ("optimizer", "params", "torch_adam")
    if as_bool(facts.doc.get(*path)) and facts.device("offload_optimizer") != "none":
        yield Hit(path, {}, (remove_key(*path),))


def unknown_scheduler(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A scheduler DeepSpeed does not have."""
    name = facts.doc.get("scheduler", "type")
    torch_like = isinstance(name, str) and name.endswith("LR") and name not in SCHEDULERS
    if isinstance(name, str) and name not in SCHEDULERS:
        close = nearest(name, SCHEDULERS, 0.6)
        patch = (set_key("scheduler", "type", value=close),) if close else ()
        values = {"name": name, "known": ", ".join(SCHEDULERS)}
        yield Hit(("scheduler", "type"), values, patch, "info" if torch_like else "error")


def warmup_steps(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """No warm-up steps: refused since 0.19.6."""
    path = ("scheduler", "params", "warmup_num_steps")
    steps = as_number(facts.doc.get(*path))
    if steps is not None and steps <= 0:
        severity = "error" if facts.version >= (0, 19, 6) else "info"
        yield Hit(path, {"steps": steps}, (set_key(*path, value=1),), severity)  # type: ignore[arg-type]


def total_steps(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A decay over no steps."""
    path = ("scheduler", "params", "total_num_steps")
    steps = as_number(facts.doc.get(*path))
    warmup = as_number(facts.doc.get("scheduler", "params", "warmup_num_steps")) or 0
    if steps is not None and steps <= max(0, warmup):
        yield Hit(path, {"steps": steps, "warmup": warmup})


def flat_scheduler(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A scheduler in the file takes the place of the one on the command line."""
    kind = facts.doc.get("scheduler", "type")
    if not isinstance(kind, str) or kind not in SCHEDULERS or not facts.ctx.hugging_face:
        return
    asked = facts.ctx.flag("lr_scheduler_type")
    shape = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
    if kind == "WarmupLR" or (isinstance(asked, str) and shape.get(kind, kind) not in asked):
        wrong = isinstance(asked, str) and shape.get(kind, kind) not in asked
        values = {"kind": kind, "shape": shape.get(kind, kind)}
        severity = "warning" if wrong else "info"
        yield Hit(("scheduler", "type"), values, (remove_key("scheduler"),), severity)  # type: ignore[arg-type]


_CONFIG = "DeepSpeed 0.19.8, deepspeed/runtime/config.py"
_ENGINE = "DeepSpeed 0.19.8, deepspeed/runtime/engine.py"
_PRECISION = "DeepSpeed 0.19.8, deepspeed/runtime/precision_config.py"
_LR = "DeepSpeed 0.19.8, deepspeed/runtime/lr_schedules.py"
_HF = "transformers 5.24.0, src/transformers/integrations/deepspeed.py"

RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-batch-missing",
        "error",
        "neither train_batch_size nor train_micro_batch_size_per_gpu is given; accumulation alone"
        " does not define the batch",
        "give train_micro_batch_size_per_gpu",
        f"{_CONFIG} (_set_batch_related_parameters)",
        batch_missing,
    ),
    Rule(
        "ds-batch-product",
        "error",
        "train_batch_size {train} is not micro-batch {micro} x accumulation {accum} x {ranks}"
        " data-parallel ranks",
        "{fix}",
        f"{_CONFIG} (_batch_assertion)",
        batch_product,
    ),
    Rule(
        "ds-batch-autotp",
        "warning",
        "with tensor parallel {tp} the batch check counts every process as a data rank, so the"
        " global batch is not the one that runs",
        "leave train_batch_size out; keep micro-batch and accumulation",
        f"{_CONFIG} (DeepSpeedConfig.__init__)",
        batch_autotp,
    ),
    Rule(
        "ds-fp16-and-bf16",
        "error",
        "fp16 and bf16 are both on; DeepSpeed stops",
        "turn one off",
        f"{_CONFIG} (_initialize_params)",
        both_halves,
    ),
    Rule(
        "ds-no-half-precision",
        "warning",
        "half precision is not on: unless the model itself is cast, weights, gathers and"
        " activations are fp32, twice the memory and traffic",
        "turn {wanted} on, or state fp32 with data_types.grad_accum_dtype",
        f"{_CONFIG} (_initialize_params)",
        no_half,
    ),
    Rule(
        "ds-half-missing",
        "warning",
        "the file has no {name} block, so --{name} on the command line does not reach the engine",
        'add "{name}": {{"enabled": "auto"}}',
        f"{_HF} (fill_match returns when the section is absent)",
        half_missing,
    ),
    Rule(
        "ds-half-unsupported",
        "error",
        "{name} is on, but {gpu} has no {name}",
        "use {other}; for fp16 keep the loss scale dynamic",
        f"{_ENGINE} (_do_sanity_check); the GPU's datasheet",
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
        f"{_CONFIG} (_do_error_check); deepspeed/runtime/base_optimizer.py",
        master_weights,
    ),
    Rule(
        "ds-accumulation-dtype",
        "error",
        "fp32 gradient accumulation beside a half-precision model is not implemented without ZeRO",
        "use stage 1 or higher, or leave grad_accum_dtype out",
        f"{_ENGINE} (_do_optimizer_sanity_check)",
        accumulation_dtype,
    ),
    Rule(
        "ds-param-dtype",
        "error",
        "data_types.param_dtype is {given}, but the precision blocks say {mode}",
        "write {mode}, or leave it out",
        f"{_ENGINE} (_assert_valid_mixed_precision_config)",
        param_dtype,
    ),
    Rule(
        "ds-unknown-optimizer",
        "error",
        "{name} is neither a DeepSpeed optimizer nor a class of torch.optim",
        "use one of " + ", ".join(OPTIMIZERS),
        f"{_CONFIG} (DEEPSPEED_OPTIMIZERS); {_ENGINE} (_configure_basic_optimizer)",
        unknown_optimizer,
    ),
    Rule(
        "ds-untested-optimizer",
        "error",
        "ZeRO refuses {name} unless it is told to take untested optimizers",
        "set zero_allow_untested_optimizer to true",
        f"{_ENGINE} (_do_optimizer_sanity_check); deepspeed/runtime/zero/utils.py",
        untested_optimizer,
    ),
    Rule(
        "ds-client-optimizer",
        "error",
        "with optimizer offload DeepSpeed refuses the script's own {name}: it is no"
        " DeepSpeedCPUAdam",
        "make a DeepSpeedCPUAdam, put the optimizer in this file, or set"
        " zero_force_ds_cpu_optimizer to false",
        f"{_ENGINE} (_configure_optimizer)",
        client_optimizer,
    ),
    Rule(
        "ds-max-grad-norm",
        "error",
        "max_grad_norm is no optimizer parameter; DeepSpeed stops",
        "use gradient_clipping at the top level",
        f"{_ENGINE} (_configure_basic_optimizer)",
        max_grad_norm,
    ),
    Rule(
        "ds-lamb-loss-scale",
        "error",
        "Lamb needs dynamic loss scaling",
        "set loss_scale to 0",
        f"{_ENGINE} (_do_sanity_check)",
        lamb_scale,
    ),
    Rule(
        "ds-muon-reduce-scatter",
        "error",
        "Muon at stage 3 needs reduce_scatter off",
        "set reduce_scatter to false",
        "DeepSpeed 0.19.8, deepspeed/runtime/zero/stage3.py",
        muon_reduce,
    ),
    Rule(
        "ds-torch-adam-offload",
        "info",
        "torch_adam runs the offloaded step with PyTorch's own kernels, several times slower than"
        " DeepSpeedCPUAdam",
        "take torch_adam out",
        f"{_ENGINE} (get_optimizer_configuration)",
        slow_cpu_adam,
    ),
    Rule(
        "ds-unknown-scheduler",
        "error",
        "{name} is no scheduler of DeepSpeed ({known}); a class of torch.optim.lr_scheduler would"
        " do",
        "use one of {known}",
        _LR,
        unknown_scheduler,
    ),
    Rule(
        "ds-warmup-steps",
        "error",
        "warmup_num_steps is {steps}; DeepSpeed refuses it since 0.19.6",
        "use 1 for no warm-up",
        _LR,
        warmup_steps,
    ),
    Rule(
        "ds-total-steps",
        "error",
        "total_num_steps {steps} leaves nothing to decay after {warmup} warm-up steps",
        "give the number of optimizer steps",
        _LR,
        total_steps,
    ),
    Rule(
        "ds-scheduler-overrides",
        "info",
        "{kind} in the file decides the learning rate ({shape} after warm-up); --lr_scheduler_type"
        " is not used",
        "take the scheduler section out to use the trainer's",
        f"{_HF} (deepspeed_optim_sched)",
        flat_scheduler,
    ),
)
