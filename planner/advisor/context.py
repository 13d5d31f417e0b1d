"""Who reads a file, on what hardware, beside which other files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.advisor.readers import Reading
from planner.lint import Context, Device
from planner.lint.deepspeed_facts import AUTO
from planner.lint.deepspeed_words import PIPELINE_DEGREE_KEYS, TENSOR_DEGREE_KEYS
from planner.lint.document import Document, as_int, walk
from planner.lint.names import names

if TYPE_CHECKING:
    from hardware_db import Cluster
from planner.advisor.options import Options, hidden_size_of, layer_class_of


def context_of(reading: Reading, options: Options, cluster: Cluster | None) -> Context:
    """Who reads a file, on what, beside what."""
    doc = reading.document
    partners = (*options.partners, *(p for p in reading.partners if _new(p, options)))
    trainer = options.arguments
    if doc.kind in ("trainer", "llamafactory", "axolotl"):
        known = doc.kind != "trainer" or _known_flags(doc) or trainer is not None
        trainer = _merged(trainer_view(doc), trainer) if known else None
    elif trainer is None:
        flags = next(
            (p for p in partners if p.kind in ("trainer", "llamafactory", "axolotl")), None
        )
        trainer = trainer_view(flags) if flags is not None else None
    world = _world(reading, partners, cluster)
    framework = options.context or infer(doc, partners, options)
    variables = reading.launch.environment if reading.launch is not None else None
    return Context(
        framework=framework,
        inferred=options.context is None,
        deepspeed_version=options.deepspeed_version,
        client_optimizer=options.client_optimizer,
        trainer=trainer,
        partners=partners,
        world=world,
        device=_device(cluster) if cluster is not None else None,
        hidden_size=hidden_size_of(options.model) if options.model else None,
        layer_class=layer_class_of(options.model) if options.model else None,
        environment=variables,
    )


def _new(partner: Document, options: Options) -> bool:
    return all(p.kind != partner.kind for p in options.partners)


def _merged(doc: Document, arguments: Document | None) -> Document:
    if arguments is None:
        return doc
    return replace(doc, data={**arguments.data, **doc.data})


_AXOLOTL = {
    "micro_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
    "adam_beta1": "adam_beta1",
    "adam_beta2": "adam_beta2",
    "adam_epsilon": "adam_epsilon",
    "warmup_steps": "warmup_steps",
    "warmup_ratio": "warmup_ratio",
    "lr_scheduler": "lr_scheduler_type",
    "bf16": "bf16",
    "fp16": "fp16",
    "optimizer": "optim",
}


def trainer_view(doc: Document) -> Document:
    """A file's settings under the names of the Hugging Face trainer."""
    if doc.kind == "trainer":
        return doc
    if doc.kind == "llamafactory":
        data = dict(doc.data)
        if data.get("pure_bf16"):
            data.setdefault("bf16", True)
        return replace(doc, data=data)
    data = {new: doc.get(old) for old, new in _AXOLOTL.items() if doc.get(old) is not None}
    return replace(doc, data=data)


def infer(doc: Document, partners: Sequence[Document], options: Options) -> str:
    """The framework that most likely reads a file."""
    if doc.kind == "plan":
        return "plain"
    if doc.kind == "megatron" or any(p.kind == "megatron" for p in partners):
        return "megatron"
    if any(p.kind == "plan" for p in partners):
        return "plain"
    if doc.kind == "trainer" and doc.has("deepspeed_config") and not _known_flags(doc):
        return "plain"  # deepspeed.add_config_arguments, the script makes its own engine
    if doc.kind in ("trainer", "llamafactory", "axolotl"):
        return "hf"
    if doc.kind == "accelerate":
        return "hf" if options.arguments is not None else "accelerate"
    if any(doc.has(key) for key in (*PIPELINE_DEGREE_KEYS, *TENSOR_DEGREE_KEYS)):
        return "megatron"
    kinds = {p.kind for p in partners}
    if options.arguments is not None or kinds & {"trainer", "llamafactory", "axolotl"}:
        return "hf"
    if "accelerate" in kinds:
        return "accelerate"
    if options.client_optimizer is not None:
        return "plain"
    return "hf" if any(value == AUTO for _, value in walk(doc.data)) else "plain"


def _known_flags(doc: Document) -> bool:
    """Whether a list has flags of the trainer, besides those any script may have."""
    return bool(doc.data.keys() & names("trainer") - {"deepspeed", "local_rank", "seed"})


def _world(reading: Reading, partners: Sequence[Document], cluster: Cluster | None) -> int | None:
    if cluster is not None:
        return cluster.gpus
    if reading.launch is not None and reading.launch.world is not None:
        return reading.launch.world
    for doc in (reading.document, *partners):
        count = as_int(doc.get("num_processes")) if doc.kind == "accelerate" else None
        if count is not None and count > 0:
            return count
    return None


def _device(cluster: Cluster) -> Device:
    gpu = cluster.node.gpu
    return Device(
        name=gpu.name,
        supports=frozenset(gpu.supports),
        memory_bytes=float(gpu.memory),
        gpus_per_node=cluster.gpus_per_node,
        architecture=gpu.arch,
        flash=bool(set(gpu.flash) & {"FA2", "FA3"}),
        linked=not cluster.node.topology.startswith("PCIe"),
    )
