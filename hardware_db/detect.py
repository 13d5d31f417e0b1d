"""``--gpus auto``: the GPUs of this machine, as nvidia-smi lists them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hardware_db.cluster import Cluster
from hardware_db.load import Catalog, catalog
from hardware_db.names import candidates, normalise
from hardware_db.parse import cluster_of
from hardware_db.units import to_si

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_PATIENCE = 10  # [s]; an idle driver answers within one or two
_NAME_THEM = "name the GPUs, as in 8xA100-80G"


def detect(
    run: Callable[[tuple[str, ...]], str] | None = None,
    host_memory: float | None = None,
    extra: Path | None = None,
) -> Cluster:
    """This machine as a cluster of one node.

    Parameters
    ----------
    run : callable, optional
        Runs a command and returns what it prints; by default a subprocess.
    host_memory : float, optional
        Of this machine; by default what the system reports. [byte]
    extra : Path, optional
        A YAML file with further GPUs and nodes.

    Raises
    ------
    ValueError
        If nvidia-smi is missing or fails, lists nothing, or lists unequal or unknown GPUs.
    """
    listed = _parse((run or _run)(QUERY))
    names = sorted({name for name, _ in listed})
    if len(names) > 1:
        raise ValueError(
            f"--gpus auto needs equal GPUs, nvidia-smi lists {' and '.join(names)}: "
            "name the ones to use, as in 8xA100-80G"
        )
    known = catalog(extra)
    gpu = known.gpu(_identify(names[0], min(memory for _, memory in listed), known))
    nodes = known.nodes_of(gpu)
    count = len(listed)
    largest = max(nodes, key=lambda node: node.gpus)
    node = next((node for node in nodes if node.gpus >= count), largest)
    node = replace(node, gpus=max(node.gpus, count))
    cluster = cluster_of(node, 1, count, reference=True)
    return cluster.with_overrides(host_memory=host_memory or _host_memory())


def _parse(output: str) -> list[tuple[str, float]]:
    """(name, bytes) a line of nvidia-smi's CSV."""
    rows = []
    for line in filter(None, (line.strip() for line in output.splitlines())):
        name, _, memory = line.rpartition(",")
        try:
            rows.append((name.strip(), to_si(float(memory), "MiB")))
        except ValueError:
            raise ValueError(f"--gpus auto: cannot read nvidia-smi's line {line!r}") from None
    if not rows:
        raise ValueError("--gpus auto: nvidia-smi lists no GPU; name them, as in 8xA100-80G")
    return rows


def _identify(name: str, memory: float, known: Catalog) -> str:
    """Id of the GPU of that name; of several the user's own, then the nearest in memory."""
    own = {i for i in known.own_gpus if normalise(name) in map(normalise, known.gpus[i])}
    fits = own or candidates(name, known.gpus)
    if not fits:
        known.find(name)  # raises, with the nearest names
        raise ValueError(f"--gpus auto: {name!r} is a node, not a GPU")
    return min(sorted(fits), key=lambda i: abs(known.gpu(i).memory - memory))


def _run(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_PATIENCE
        )
    except FileNotFoundError:
        raise ValueError(f"--gpus auto needs nvidia-smi, which is not here: {_NAME_THEM}") from None
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"--gpus auto: nvidia-smi gave no answer in {_PATIENCE} s: {_NAME_THEM}"
        ) from None
    except subprocess.CalledProcessError as error:
        said = " ".join(f"{error.stderr} {error.stdout}".split()) or "it says nothing"
        raise ValueError(
            f"--gpus auto: nvidia-smi failed with exit status {error.returncode} ({said[:200]}): "
            f"{_NAME_THEM}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "its output is not text"
        raise ValueError(f"--gpus auto: cannot run nvidia-smi ({said}): {_NAME_THEM}") from None
    return done.stdout


def _host_memory() -> float:
    return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
