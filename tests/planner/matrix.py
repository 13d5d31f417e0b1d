"""Sixty-odd jobs from a small model on one old card to 1T parameters on 4,096 GPUs."""

from __future__ import annotations

from typing import Any

Job = dict[str, Any]


def job(model: str, gpus: str, **fields: Any) -> Job:
    return {"model": model, "gpus": gpus, **fields}


ETHERNET = {"inter_bandwidth": "10Gb/s"}
TIGHT_HOST = {"host_memory": "128GB"}

JOBS: tuple[Job, ...] = (
    # one card
    job("125m", "1xT4", global_batch=32, seq_len=1024),
    job("gpt2-xl", "1xV100-16G", global_batch=32, seq_len=1024),
    job("1.3b", "1xA100-40G", global_batch=64),
    job("gpt3-1.3b", "1xRTX3090", global_batch=32, seq_len=2048),
    job("llama3.2-1b", "1xRTX4090", global_batch=64, optimizer="adam8bit"),
    job("qwen2.5-3b", "1xL40S", global_batch=32),
    job("7b", "1xA100-80G", global_batch=64),
    job("7b", "1xH200", global_batch=64, optimizer="adafactor"),
    job("8b", "1xH200", global_batch=64),
    job("gemma-2b", "1xRTX5090", global_batch=16, seq_len=2048),
    job("phi-3-mini", "1xA6000", global_batch=16),
    job("7b", "1xMI300X", global_batch=64),
    # a workstation, consumer cards
    job("7b", "2xRTX4090", global_batch=64),
    job("7b", "4xRTX3090", global_batch=64, **TIGHT_HOST),
    job("13b", "4xRTX4090", global_batch=64),
    job("8b", "8xRTX3090", global_batch=64, seq_len=2048),
    job("3b", "2xRTX3090", global_batch=32, optimizer="lion"),
    job("1.3b", "2x2xRTX4090", global_batch=64, **ETHERNET),
    job("7b", "4xA6000", global_batch=64),
    # one node, data parallel and ZeRO
    job("125m", "8xV100-16G", global_batch=256, seq_len=1024),
    job("1.3b", "8xV100-32G", global_batch=512, seq_len=2048),
    job("6.7b", "8xV100-32G", global_batch=128, seq_len=2048),
    job("7b", "8xA10G", global_batch=128),
    job("7b", "8xA100-40G", global_batch=128),
    job("13b", "8xA100-40G", global_batch=128),
    job("13b", "8xA100-80G"),
    job("13b", "8xA100-80G", stack="deepspeed", fix={"zero_stage": 2}),
    job("13b", "8xA100-80G", stack="deepspeed", fix={"zero_stage": 3}),
    job("30b", "8xA100-80G", stack="deepspeed"),
    job("70b", "8xA100-80G", stack="deepspeed"),
    job("70b", "8xH100", global_batch=256),
    job("70b", "8xH200", global_batch=256),
    job("70b", "8xB200", global_batch=256, seq_len=8192),
    job("70b", "8xMI300X", global_batch=256),
    job("70b", "8xRTX4090", global_batch=64),
    job("34b", "8xL40S", global_batch=64),
    job("mistral-7b-v0.1", "8xA100-80G", seq_len=8192, global_batch=128),
    job("qwen2.5-7b", "8xH100", seq_len=32768, global_batch=32),
    job("gemma2-9b", "8xA100-80G", global_batch=128),
    job("bloom-7b1", "8xA100-80G", global_batch=128, seq_len=2048),
    job("opt-30b", "8xA100-80G", global_batch=128, seq_len=2048),
    job("gpt-neox-20b", "8xA100-80G", global_batch=128, seq_len=2048),
    job("falcon-40b", "8xA100-80G", global_batch=64, seq_len=2048),
    job("7b", "8xA100-80G", optimizer="sgd"),
    job("7b", "8xA100-80G", optimizer="muon"),
    job("7b", "8xA100-80G", optimizer="momentum", grad_dtype="fp32"),
    job("7b", "8xA100-80G", precision="fp32"),
    job("7b", "8xA100-80G", precision="fp16", grad_dtype="fp32"),
    job("7b", "8xA100-80G", fix={"offload_optimizer": "cpu", "zero_stage": 2}, stack="deepspeed"),
    job("13b", "p4d.24xlarge", fix={"offload_optimizer": "nvme"}, stack="deepspeed"),
    # several nodes
    job("7b", "2x8xA100-80G", **ETHERNET),
    job("13b", "4x8xA100-80G", **ETHERNET),
    job("13b", "4xp4d.24xlarge"),
    job("20b", "4x8xV100-32G", seq_len=2048),
    job("70b", "4xp4de.24xlarge"),
    job("70b", "8x8xA100-80G", fix={"pp": 8, "tp": 1}, stack="deepspeed"),
    job("70b", "16x8xH100-80G", global_batch=1024),
    job("72b", "4xa3-highgpu-8g"),
    job("175b", "16x8xA100-80G", global_batch=1536, seq_len=2048),
    job("175b", "64x8xH100-80G", global_batch=1536, seq_len=2048),
    job("405b", "128x8xH100-80G", global_batch=1024, seq_len=8192),
    job("530b", "280x8xA100-80G", global_batch=2240, seq_len=2048),
    job("1t", "64x8xB200", global_batch=2048, seq_len=2048),
    job("1t", "512x8xA100-80G", global_batch=3072, seq_len=2048),
)
