"""A job with every name looked up: what the search, the reports and the emitters read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodels.architecture import Architecture
from costmodels.stack import Stack, load_stack
from hardware_db import Cluster, parse_gpus
from hardware_db.units import parse_rate, parse_size
from planner.catalogue import resolve_model
from planner.spec import DEFAULT_GLOBAL_BATCH, DEFAULT_SEQ_LEN, JobSpec


def _capacity(text: str) -> float:
    """Bytes of NVMe; 0 for none."""
    return 0.0 if text.strip() == "0" else parse_size(text)


OVERRIDES = {
    "intra_bandwidth": parse_rate,
    "inter_bandwidth": parse_rate,
    "host_memory": parse_size,
    "nvme": _capacity,
    "memory_limit": parse_size,
}
FILES = ("profile", "hardware")  # fields that name files
AUTO_STACKS = ("deepspeed", "megatron-deepspeed")  # both write a deepspeed_config.json


@dataclass(frozen=True, slots=True)
class Job:
    """A resolved job.

    ``global_batch`` is in sequences. ``precisions`` are the ones the search may choose from, best
    first. ``notes`` says, in the order decided, what names and defaults stand for. ``model_file``
    is the path a model outside the catalogue was read from.
    """

    spec: JobSpec
    architecture: Architecture
    cluster: Cluster
    seq_len: int
    global_batch: int
    stacks: tuple[Stack, ...]
    precisions: tuple[str, ...]
    notes: tuple[str, ...]
    model_file: str = ""

    @property
    def echo(self) -> Mapping[str, object]:
        """The job as decided, defaults included, for the output.

        :func:`echoed_fields` makes a job of it again.
        """
        spec = self.spec
        asked = {
            "fix": {k: list(v) for k, v in spec.fix.items()},
            "min": dict(spec.min),
            "max": dict(spec.max),
            "forbid": {k: list(v) for k, v in spec.forbid.items()},
        }
        return {
            "model": self.architecture.name,
            "gpus": self.cluster.spec,
            "gpu": self.cluster.node.gpu.id,
            "node": self.cluster.node.id,
            "nodes": self.cluster.nodes,
            "gpus_per_node": self.cluster.gpus_per_node,
            "seq_len": self.seq_len,
            "global_batch": self.global_batch,
            "global_tokens": self.global_batch * self.seq_len,
            "optimizer": spec.optimizer,
            "precision": spec.precision,
            "stack": spec.stack,
            "grad_dtype": spec.grad_dtype,
            "dropout": spec.dropout,
            "cross_entropy": spec.cross_entropy,
            "tuning": spec.tuning,
            "priority": spec.priority,
            "allow_idle": spec.allow_idle,
            "accept_tight": spec.accept_tight,
            **({"model_file": self.model_file} if self.model_file else {}),
            **{k: str(v) for k in FILES if (v := getattr(spec, k)) is not None},
            **self._overrides,
            **{k: v for k, v in asked.items() if v},
        }

    @property
    def _overrides(self) -> dict[str, str]:
        """The user's figures of the hardware, as given; the host memory found where detected."""
        given = {name: getattr(self.spec, name) for name in OVERRIDES}
        if self.spec.gpus.strip().lower() == "auto":
            given["host_memory"] = f"{self.cluster.node.host_memory:.0f}B"
        return {name: text for name, text in given.items() if text is not None}


def echoed_fields(echo: Mapping[str, object]) -> dict[str, object]:
    """The fields of a :class:`JobSpec` that decide the job an echo describes.

    >>> echoed_fields({"model": "mine", "model_file": "mine.yaml", "gpu": "a100"})
    {'model': 'mine.yaml'}
    """
    names = (name for name in JobSpec.model_fields if name != "global_tokens")
    fields = {name: echo[name] for name in names if name in echo}  # global_batch says it too
    if "model_file" in echo:
        fields["model"] = echo["model_file"]
    return fields


def resolve(spec: JobSpec) -> Job:
    """Look up the model, the hardware and the defaults of a job.

    Raises
    ------
    ValueError
        One line: what is wrong, and what would be accepted.
    """
    model = resolve_model(spec.model)
    cluster = _cluster(spec)
    notes = [model.note] if model.note else []
    seq_len, note = _seq_len(spec, model.architecture)
    notes += [note] if note else []
    global_batch, note = _global_batch(spec, seq_len)
    notes += [note] if note else []
    names = AUTO_STACKS if spec.stack == "auto" else (spec.stack,)
    stacks, told = _stacks(spec, names, cluster.node.gpu.id)
    notes += told
    return Job(
        spec=spec,
        architecture=model.architecture,
        cluster=cluster,
        seq_len=seq_len,
        global_batch=global_batch,
        stacks=stacks,
        precisions=_precisions(spec, cluster),
        notes=tuple(notes),
        model_file="" if model.how == "catalogue" else spec.model,
    )


def _stacks(spec: JobSpec, names: tuple[str, ...], gpu: str) -> tuple[tuple[Stack, ...], list[str]]:
    """The stacks with the constants of the job's profile, and what it has for each."""
    stacks = tuple(load_stack(name) for name in names)
    if spec.profile is None:
        return stacks, []
    from planner.calibrate.profile import apply_profile, load_profile, profile_note

    profile = load_profile(spec.profile)
    notes = [profile_note(name, profile, gpu, spec.profile.name) for name in names]
    return tuple(apply_profile(stack, profile, gpu) for stack in stacks), notes


def _cluster(spec: JobSpec) -> Cluster:
    cluster = parse_gpus(spec.gpus, extra=spec.hardware)
    overrides = {}
    for name, parse in OVERRIDES.items():
        text = getattr(spec, name)
        if text is None:
            continue
        try:
            overrides[name] = parse(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return cluster.with_overrides(**overrides) if overrides else cluster


def _seq_len(spec: JobSpec, architecture: Architecture) -> tuple[int, str]:
    longest = architecture.max_seq_len
    if spec.seq_len is None:
        seq_len = min(DEFAULT_SEQ_LEN, longest) if longest else DEFAULT_SEQ_LEN
        return seq_len, f"sequence length {seq_len} (default)"
    if longest and spec.seq_len > longest and architecture.positional == "learned":
        raise ValueError(
            f"seq_len {spec.seq_len}: {architecture.name} has learned positions up to {longest}"
        )
    if longest and spec.seq_len > longest:
        return spec.seq_len, f"sequence length {spec.seq_len} is above the model's {longest}"
    return spec.seq_len, ""


def _global_batch(spec: JobSpec, seq_len: int) -> tuple[int, str]:
    if spec.global_batch is not None:
        return spec.global_batch, ""
    if spec.global_tokens is None:
        return DEFAULT_GLOBAL_BATCH, f"global batch {DEFAULT_GLOBAL_BATCH} sequences (default)"
    sequences, rest = divmod(spec.global_tokens, seq_len)
    if rest or not sequences:
        near = max(1, round(spec.global_tokens / seq_len)) * seq_len
        raise ValueError(
            f"global_tokens {spec.global_tokens} is not a multiple of the sequence length"
            f" {seq_len}; the nearest that is: {near}"
        )
    return sequences, f"global batch {sequences} sequences of {seq_len} tokens"


def _precisions(spec: JobSpec, cluster: Cluster) -> tuple[str, ...]:
    """Precisions to search: the asked one, or the cheapest safe one the GPU has.

    ``auto`` never means fp8: it changes the numerics of the run, so it must be asked for.
    """
    gpu = cluster.node.gpu
    if spec.precision == "auto" and "precision" in spec.fix:
        wanted = tuple(str(v) for v in spec.fix["precision"])
    elif spec.precision == "auto":
        ranked = ("bf16", "fp16", "tf32", "fp32")
        demand = spec.constraint("precision")
        wanted = tuple(p for p in ranked if p in gpu.supports and demand.accepts(p))[:1]
        if not wanted:
            raise ValueError(f"{demand}: leaves no precision that {gpu.name} supports")
    else:
        wanted = (spec.precision,)
    for name in wanted:
        if name not in gpu.supports:
            raise ValueError(
                f"precision={name}: {gpu.name} does not support it; expected one of"
                f" {', '.join(sorted(gpu.supports))}"
            )
    return wanted
