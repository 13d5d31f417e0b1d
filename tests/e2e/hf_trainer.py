"""Train a scaled-down model with the Trainer and the files emitted for it, in one process.

torchrun --nproc-per-node 1 hf_trainer.py FOLDER OUTPUT.json

On a CPU Accelerate counts one process only, and TrainingArguments refuse bf16 unless told that
the device has it; use_cpu must not be given, DeepSpeed would be left out without a word.
"""

import json
import sys
from pathlib import Path

import torch
import transformers.training_args
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

# What the run changes: its length, and what a CPU lacks.
CHANGED = {"max_steps": 6, "warmup_steps": 0, "logging_steps": 1, "save_strategy": "no"}
ROWS, SEQ_LEN = 8, 64


def main() -> None:
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    transformers.training_args.is_torch_bf16_gpu_available = lambda: True
    given = json.loads((folder / "training_args.json").read_text())
    given["deepspeed"] = str(folder / given["deepspeed"])
    given["output_dir"] = str(output.parent / "checkpoints")
    given.pop("tf32")
    arguments = TrainingArguments(**{**given, **CHANGED})

    fields = json.loads((folder / "model_config_tiny.json").read_text())
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    tokens = (config.vocab_size * torch.rand(ROWS, SEQ_LEN) ** 4).long()
    data = [{"input_ids": row, "labels": row} for row in tokens]
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()

    engine = trainer.deepspeed
    report = {
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "engine": type(engine).__name__,
        "stage": int(engine.zero_optimization_stage()),
        "micro_batch": engine.train_micro_batch_size_per_gpu(),
        "grad_accum": engine.gradient_accumulation_steps(),
        "dtype": str(next(model.parameters()).dtype),
        "checkpointed": sum(getattr(m, "gradient_checkpointing", False) for m in model.modules()),
    }
    output.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
