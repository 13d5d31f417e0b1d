"""Optimizer and scheduler of a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.deepspeed_facts import DeepSpeedFacts
from planner.lint.deepspeed_sources import CONFIG, ENGINE
from planner.lint.deepspeed_words import OPTIMIZERS
from planner.lint.document import as_bool, as_number
from planner.lint.names import nearest
from planner.lint.rule import Hit, Rule, move_key, remove_key, set_key

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

# Parameters by optimizer: of FusedAdam, DeepSpeedCPUAdam and torch.optim.AdamW together, since
# the engine takes one of the three (DeepSpeed 0.19.8, runtime/engine.py, ops/adam, ops/lamb,
# ops/lion, ops/adagrad).
_ADAM = frozenset(
    [
        "lr",
        "betas",
        "eps",
        "weight_decay",
        "amsgrad",
        "bias_correction",
        "adam_w_mode",
        "adamw_mode",
        "torch_adam",
        "set_grad_none",
        "fp32_optimizer_states",
        "foreach",
        "maximize",
        "capturable",
        "differentiable",
        "fused",
        "decoupled_weight_decay",
    ]
)
_PARAMETERS: Mapping[str, frozenset[str]] = {
    "adam": _ADAM,
    "adamw": _ADAM,
    "lamb": _ADAM | {"eps_inside_sqrt", "max_coeff", "min_coeff"},
    "lion": frozenset({"lr", "betas", "weight_decay", "set_grad_none", "fp32_optimizer_states"}),
    "adagrad": frozenset({"lr", "eps", "weight_decay", "amsgrad", "fp32_optimizer_states"})
    | {"lr_decay", "initial_accumulator_value", "foreach", "maximize", "differentiable"},
}
_ALIASES = {"learning_rate": "lr", "epsilon": "eps", "adam_epsilon": "eps", "wd": "weight_decay"}


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


def unknown_parameter(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Keys of optimizer.params that the optimizer does not take."""
    kind = facts.optimizer_type or ""
    known = _PARAMETERS.get(kind.lower())
    plain = kind in _TORCH_OPTIMIZERS and kind.lower() not in OPTIMIZERS
    for name in facts.doc.section("optimizer", "params"):
        alias = _ALIASES.get(str(name))
        if name == "max_grad_norm" or (known is None and not (plain and alias)):
            continue
        if known is not None and name in known:
            continue
        path = ("optimizer", "params", str(name))
        close = alias or nearest(str(name), known or (), 0.7)
        patch = (move_key(path, (*path[:-1], close)),) if close else (remove_key(*path),)
        meant = f"write {close}" if close else "take it out"
        yield Hit(path, {"kind": kind, "name": name, "meant": meant}, patch)


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-unknown-optimizer",
        "error",
        "{name} is neither a DeepSpeed optimizer nor a class of torch.optim",
        "use one of " + ", ".join(OPTIMIZERS),
        f"{CONFIG} (DEEPSPEED_OPTIMIZERS); {ENGINE} (_configure_basic_optimizer)",
        unknown_optimizer,
    ),
    Rule(
        "ds-untested-optimizer",
        "error",
        "ZeRO refuses {name} unless it is told to take untested optimizers",
        "set zero_allow_untested_optimizer to true",
        f"{ENGINE} (_do_optimizer_sanity_check); deepspeed/runtime/zero/utils.py",
        untested_optimizer,
    ),
    Rule(
        "ds-client-optimizer",
        "error",
        "with optimizer offload DeepSpeed refuses the script's own {name}: it is no"
        " DeepSpeedCPUAdam",
        "make a DeepSpeedCPUAdam, put the optimizer in this file, or set"
        " zero_force_ds_cpu_optimizer to false",
        f"{ENGINE} (_configure_optimizer)",
        client_optimizer,
    ),
    Rule(
        "ds-max-grad-norm",
        "error",
        "max_grad_norm is no optimizer parameter; DeepSpeed stops",
        "use gradient_clipping at the top level",
        f"{ENGINE} (_configure_basic_optimizer)",
        max_grad_norm,
    ),
    Rule(
        "ds-lamb-loss-scale",
        "error",
        "Lamb needs dynamic loss scaling",
        "set loss_scale to 0",
        f"{ENGINE} (_do_sanity_check)",
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
        f"{ENGINE} (get_optimizer_configuration)",
        slow_cpu_adam,
    ),
    Rule(
        "ds-optimizer-parameter",
        "error",
        "{kind} takes no parameter {name}; DeepSpeed passes it on and stops",
        "{meant}",
        f"{ENGINE} (_configure_basic_optimizer); deepspeed/ops/adam, lamb, lion, adagrad",
        unknown_parameter,
    ),
)
