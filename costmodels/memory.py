"""Device and host memory of a configuration, as the solver reads it."""

from __future__ import annotations

from costmodels.buffers import buffers, fixed_bytes
from costmodels.configuration import Configuration
from costmodels.costs import Affine, MemoryCosts
from costmodels.host import host_costs, nvme_costs
from costmodels.memory_phases import phases
from costmodels.states import step_apart


def memory_costs(configuration: Configuration) -> MemoryCosts:
    """Bytes of every phase of the step on every stage, and on the host.

    Parameters
    ----------
    configuration : Configuration
        One configuration, or arrays of them of shape (n, 1).

    Returns
    -------
    MemoryCosts
        Affine in the decisions of a stage; arrays broadcast to (n, pp). [byte]

    Raises
    ------
    ValueError
        If the stack does not have the optimizer or cross-entropy asked for.

    Notes
    -----
    Valid for 1F1B and interleaved 1F1B. Kernel workspaces and what the driver holds are in
    ``fixed``, fragmentation in ``allocator_factor``.
    """
    return MemoryCosts(
        phases=phases(configuration),
        allocator_factor=configuration.stack.memory.allocator_factor,
        fixed=fixed_bytes(configuration),
        host=host_costs(configuration),
        nvme=nvme_costs(configuration),
        step_apart=_step_apart(configuration),
        varied_factor=configuration.stack.memory.varied_factor,
    )


def _step_apart(c: Configuration) -> Affine | None:
    """Blocks of the step beyond its peak, less buffers that exist at its time and before. [byte]"""
    size = step_apart(c)
    return None if size is None else size.raised(-buffers(c).step)
