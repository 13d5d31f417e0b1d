"""Users' reports of runs that fitted or ran out of memory, as configurations to judge.

The table itself is not part of the project; its columns are source, model, gpu, n_gpus,
framework, tuning, precision, optimizer, zero_stage_or_fsdp, offload, act_ckpt, attention,
seq_len, micro_batch, grad_accum, tp, pp, outcome and notes.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path

from costmodels.architecture import Architecture
from costmodels.stack import Stack, load_stack
from costmodels.step import even_layers
from planner.catalogue import resolve_model
from planner.estimating import choice_of
from planner.evaluate import evaluate
from planner.job import Job, resolve
from planner.plan import Plan, Predicted, Stage
from planner.spec import make_spec
from planner.validate.kinds import changed

ADAPTERS = re.compile(r"lora|qlora|peft|frozen", re.IGNORECASE)


def _network(name: str, **fields: object) -> Architecture:
    base: dict[str, object] = {
        "name": name,
        "family": "gpt2",
        "gated_mlp": False,
        "activation": "gelu",
        "norm": "layernorm",
        "norms_per_layer": 2,
        "tied_embeddings": True,
        "bias": "all",
        "positional": "learned",
        "max_seq_len": 8192,
        "norm_bias": True,
    }
    base |= fields
    heads, hidden = int(str(base["heads"])), int(str(base["hidden"]))
    base.setdefault("kv_heads", heads)
    base.setdefault("head_dim", hidden // heads)
    base.setdefault("ffn", 4 * hidden)
    return Architecture(**base)  # type: ignore[arg-type]


_BLOOM = {"family": "bloom", "positional": "alibi", "vocab": 250880, "embedding_norm": True}
_MPT = {"family": "mpt", "positional": "alibi", "vocab": 50432, "bias": "none", "norm_bias": False}
_GATED = {"gated_mlp": True, "activation": "silu", "positional": "rope", "tied_embeddings": False}
_GPT = {"vocab": 250880, "family": "bloom", "positional": "alibi", "embedding_norm": True}

# Shapes of models outside the catalogue, from their config.json or paper.
SHAPES: dict[str, Architecture] = {
    "BLOOM-560M": _network("bloom-560m", layers=24, hidden=1024, heads=16, **_BLOOM),
    "BLOOM-1.1B": _network("bloom-1b1", layers=24, hidden=1536, heads=16, **_BLOOM),
    "MPT-13B": _network("mpt-13b", layers=40, hidden=5120, heads=40, **_MPT),
    "MPT-70B": _network("mpt-70b", layers=80, hidden=8192, heads=64, **_MPT),
    "SantaCoder-1.1B": _network(
        "santacoder", layers=24, hidden=2048, heads=16, kv_heads=1, vocab=49280
    ),
    "StableLM-3B": _network(
        "stablelm-3b",
        layers=32,
        hidden=2560,
        heads=32,
        ffn=6912,
        vocab=50304,
        bias="none",
        **_GATED,
    ),
    "Llama-2-34B": _network(
        "llama2-34b",
        family="llama",
        layers=48,
        hidden=8192,
        heads=64,
        kv_heads=8,
        ffn=22016,
        vocab=32000,
        norm="rmsnorm",
        bias="none",
        norm_bias=False,
        **_GATED,
    ),
    "Qwen-1.8B": _network(
        "qwen-1.8b",
        family="llama",
        layers=24,
        hidden=2048,
        heads=16,
        ffn=5504,
        vocab=151936,
        norm="rmsnorm",
        bias="qkv",
        norm_bias=False,
        **_GATED,
    ),
    "Qwen-7B": _network(
        "qwen-7b",
        family="llama",
        layers=32,
        hidden=4096,
        heads=32,
        ffn=11008,
        vocab=151936,
        norm="rmsnorm",
        bias="qkv",
        norm_bias=False,
        **_GATED,
    ),
    # encoder and decoder taken together as one decoder of the same width and parameters
    "FLAN-T5-XXL": _network(
        "flan-t5-xxl",
        family="llama",
        layers=56,
        hidden=4096,
        heads=64,
        ffn=10240,
        vocab=32128,
        norm="rmsnorm",
        bias="none",
        norm_bias=False,
        **_GATED,
    ),
    "GPT 20B, vocab 250k": _network("gpt-20b", layers=44, hidden=6144, heads=48, **_GPT),
    "GPT 200B, vocab 250k": _network("gpt-200b", layers=80, hidden=14336, heads=64, **_GPT),
    "GPT 194B, vocab 250k": _network("gpt-194b", layers=78, hidden=14336, heads=64, **_GPT),
    "GPT 181B, vocab 250k": _network("gpt-181b", layers=72, hidden=14336, heads=64, **_GPT),
    "GPT 52B": _network("gpt-52b", layers=64, hidden=8192, heads=64, vocab=51200),
    "Mixtral-8x7B": resolve_model("mixtral-8x7b").architecture,
}
NAMES = {
    "Vicuna-7B": "llama-7b",
    "LLaMA-7B": "llama-7b",
    "Vicuna-13B": "llama-13b",
    "Llama-3-8B": "llama3-8b",
    "Llama-3.1-8B": "llama3.1-8b",
    "Mistral-7B": "mistral-7b-v0.1",
    "Phi-2": "phi-2",
    "BLOOM-176B": "bloom-176b",
}
# Cards as the reports write them; a Titan RTX is judged by another card of its memory.
CARDS = {"A100": "A100-80G", "A6000-48G": "RTXA6000", "TITAN RTX-24G": "RTX3090"}


@dataclass(frozen=True)
class Judged:
    """A row and what is predicted for it."""

    id: str
    ran: bool
    predicted: Predicted

    @property
    def says_fits(self) -> bool:
        """The point estimate's answer, GPU and host RAM."""
        point = self.predicted.peak_memory_bytes <= self.predicted.memory_limit_bytes
        return point and all(line.fits for line in self.predicted.host)

    @property
    def impossible(self) -> bool:
        """Whether even the low end of the interval is above the limit."""
        return self.predicted.verdict == "does not fit"


def rows(path: Path) -> list[dict[str, str]]:
    """All rows of the table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def usable(row: dict[str, str]) -> bool:
    """A full run that states model, GPU, count, method, length and batch, and how it ended."""
    method = row["zero_stage_or_fsdp"] or row["tp"] or row["n_gpus"] == "1"
    return bool(
        not ADAPTERS.search(row["tuning"])
        and row["outcome"] in ("fits", "oom", "slow")
        and row["model"] in {*SHAPES, *NAMES, *_catalogued(row["model"])}
        and row["gpu"]
        and not row["gpu"].startswith("(")
        and row["n_gpus"]
        and method
        and length(row)
        and row["micro_batch"].isdigit()
    )


def _catalogued(name: str) -> set[str]:
    try:
        resolve_model(name)
    except ValueError:
        return set()
    return {name}


def length(row: dict[str, str]) -> int:
    """Tokens of a sequence; a sum is a sum, a cap counts as the length."""
    numbers = re.findall(r"\d+", row["seq_len"].split("(")[0])
    return sum(map(int, numbers)) if "+" in row["seq_len"] else int(numbers[0]) if numbers else 0


def _stage(row: dict[str, str]) -> int:
    text = row["zero_stage_or_fsdp"].lower()
    found = re.search(r"zero-?(\d)", text)
    if found:
        return int(found.group(1))
    return 2 if "grad_op" in text else 3 if "fsdp" in text or "hsdp" in text else 0


def _stack(row: dict[str, str]) -> Stack:
    """The training stack that comes nearest to a row's framework."""
    framework, precision = row["framework"].lower(), row["precision"].lower()
    pure = "pure" in precision or "true" in precision
    if "megatron" in framework:
        return load_stack("megatron-deepspeed")
    if "composer" in framework:
        stack = load_stack("fsdp1")
    elif "fsdp" in framework or "titan" in framework or "fsdp" in row["zero_stage_or_fsdp"].lower():
        stack = load_stack("fsdp2")
    elif "deepspeed" in framework and _stage(row):
        return load_stack("deepspeed")
    else:
        stack = load_stack("hf")
        if not pure:  # autocast: weights, gradients and moments stay in fp32
            four = dict.fromkeys(("bf16", "fp16"), 4)
            whole = {"weights": four, "gradients": four, "moment_factor": 1.0}
            return changed(stack, {}, whole)
    if pure and "composer" not in framework:
        none = dict.fromkeys(("bf16", "fp16"), 0)
        two = dict.fromkeys(("bf16", "fp16"), 2)
        return changed(
            stack,
            {},
            {"weights": two, "master": none, "gradients": two, "moment_factor": 0.5},
        )
    return stack


def _job(row: dict[str, str]) -> Job:
    gpus = int(re.findall(r"\d+", row["n_gpus"])[0])
    name = CARDS.get(row["gpu"], row["gpu"])
    nodes = max(1, gpus // 8)
    text = f"{nodes}x8x{name}" if gpus > 8 and gpus % 8 == 0 else f"{gpus}x{name}"
    model = NAMES.get(row["model"], row["model"])
    known = row["model"] not in SHAPES
    fields = {
        "model": model if known else "llama3-8b",
        "gpus": text,
        "seq_len": length(row),
        "global_batch": 1,
        "optimizer": "adamw",
    }
    job = resolve(make_spec(fields))
    return job if known else replace(job, architecture=SHAPES[row["model"]])


def judge_row(row: dict[str, str]) -> Judged:
    """Predict one row."""
    job, stack = _job(row), _stack(row)
    tp, pp = int(row["tp"] or 1), int(row["pp"] or 1)
    dp = max(1, job.cluster.gpus // (tp * pp))
    accum = int(row["grad_accum"]) if row["grad_accum"].isdigit() else 1
    accum = max(accum, pp)
    half = "fp16" if "fp16" in row["precision"] else "fp8" if "fp8" in row["precision"] else "bf16"
    half = half if half in job.cluster.node.gpu.supports else "fp16"
    flash = "eager" not in row["attention"] and bool(row["attention"] or "megatron" in stack.name)
    recompute = "full" if row["act_ckpt"] == "yes" else "none"
    layers = tuple(int(n) for n in even_layers(job.architecture.layers, pp))
    offload = row["offload"]
    optimizer = "cpu" if "cpu" in offload and ("optim" in offload or offload == "cpu") else "none"
    parameters = "cpu" if "param" in offload or offload == "cpu" else "none"
    plan = Plan(
        stack=stack.name,
        gpus=dp * tp * pp,
        dp=dp,
        tp=tp,
        pp=pp,
        cp=1,
        ep=1,
        micro_batch=int(row["micro_batch"]),
        grad_accum=accum,
        virtual_stages=1,
        zero_stage=_stage(row),
        precision=half,
        attention="flash" if flash and job.cluster.node.gpu.flash else "efficient",
        recompute=recompute,
        sequence_parallel=False,
        offload_optimizer=optimizer,
        offload_parameters=parameters if _stage(row) == 3 else "none",
        stages=tuple(
            Stage(
                stage=i,
                first_layer=sum(layers[:i]),
                layers=count,
                recompute={recompute: count},
                offloaded_layers=count if optimizer != "none" else 0,
                embedding=i == 0,
                head=i == pp - 1,
                time_s=0.0,
                peak_memory_bytes=0,
            )
            for i, count in enumerate(layers)
        ),
    )
    choice = choice_of(job, plan)
    choice = replace(choice, shapes=replace(choice.shapes, stack=stack))
    _, predicted = evaluate(job, choice)
    return Judged(row["id"], row["outcome"] != "oom", predicted)
