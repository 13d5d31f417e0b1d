"""Run a bundle's train.py --tiny and count the bytes of the tensors that stay alive.

torchrun --nproc-per-node 2 census.py FOLDER [train.py's arguments]

Each rank writes one JSON object to $CENSUS_OUT.RANK: its parameters and live bytes by dtype.
"""

import gc
import json
import os
import sys
from pathlib import Path

FLOATING = ("float32", "bfloat16", "float16", "uint8")


def live_tensors(torch) -> dict[str, int]:
    """Bytes of all distinct floating-point storages, by dtype.

    Three-dimensional tensors are activations, which a pipeline engine keeps until the next step.
    """
    gc.collect()
    seen, total = set(), dict.fromkeys(FLOATING, 0)
    for item in gc.get_objects():
        try:
            if not isinstance(item, torch.Tensor):
                continue
            storage, name = item.untyped_storage(), str(item.dtype).removeprefix("torch.")
            activation = item.dim() == 3 and not isinstance(item, torch.nn.Parameter)
        except Exception:  # objects under construction, weak proxies
            continue
        if item.device.type == "meta" or activation:
            continue
        if name in total and storage.nbytes() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total[name] += storage.nbytes()
    return total


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(folder))
    import torch
    import train

    engine = train.main(sys.argv[2:])
    own = sum(getattr(p, "ds_numel", p.numel()) for p in engine.module.parameters())
    rank = torch.distributed.get_rank()
    report = {"rank": rank, "parameters": own, "bytes": live_tensors(torch)}
    report["wrapper"] = type(engine.optimizer).__name__
    shared = getattr(engine.module, "tied_modules", {})  # of a pipeline's first and last stage
    report["tied"] = [float(p.double().sum()) for p in shared.parameters()] if shared else []
    Path(f"{os.environ['CENSUS_OUT']}.{rank}").write_text(json.dumps(report))
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads now and then abort a process that is shutting down


if __name__ == "__main__":
    main()
