"""What a target cannot say. An emitter refuses; it never drops a choice."""

from __future__ import annotations

from planner.plan import Plan


def require(holds: bool, target: str, reason: str) -> None:
    """Raise ``target: reason`` unless ``holds``.

    Raises
    ------
    ValueError
        If ``holds`` is false.
    """
    if not holds:
        raise ValueError(f"{target} cannot express this plan: {reason}")


def one_recompute(plan: Plan, target: str) -> str:
    """The one granularity all layers have.

    Raises
    ------
    ValueError
        If layers differ.
    """
    used = [name for name, count in plan.recompute_layers.items() if count]
    counts = ", ".join(f"{count} layers {name}" for name, count in plan.recompute_layers.items())
    require(len(used) <= 1, target, f"it recomputes all layers alike, not {counts}")
    return used[0] if used else "none"


def whole_offload(plan: Plan, target: str) -> None:
    """Refuse an optimizer that is offloaded for some layers only."""
    away = sum(stage.offloaded_layers for stage in plan.stages)
    layers = sum(stage.layers for stage in plan.stages)
    require(
        plan.offload_optimizer == "none" or away in (0, layers),
        target,
        f"the optimizer of {away} of {layers} layers is offloaded; it moves all or nothing",
    )
