"""Peak memory of a transformers model under FSDP2, by torch's tracker on fake tensors.

fsdp_memory.py CONFIG.json WORLD SEQ_LEN none|full 2|3: prints one JSON object, bytes by class.
Stage 2 keeps layers gathered from their forward to their backward.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights


def main() -> None:
    fields = json.loads(Path(sys.argv[1]).read_text())
    world, seq_len, granularity = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    frees = sys.argv[5] == "3"
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    mesh = init_device_mesh("cpu", (world,))  # made outside the fake mode
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cpu"), no_init_weights():
            model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        if granularity == "full":
            options = {"use_reentrant": False}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=frees)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        tokens = torch.zeros(1, seq_len, dtype=torch.long)

        # The first step makes the optimizer's states and is not tracked: sharding propagation
        # runs each operator on fake tensors of the global shape, which would be counted.
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((tokens,))
        with tracker:
            model(input_ids=tokens, labels=tokens).loss.backward()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    print("PEAK" + json.dumps({str(getattr(k, "value", k)): v for k, v in peak.items()}))


if __name__ == "__main__":
    main()
