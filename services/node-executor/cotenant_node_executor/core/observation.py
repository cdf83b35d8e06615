"""What the executor sees of its own machine in one cycle: the local facts that a core is given beside the log's.

In: nothing. Out: one frozen struct that the shell fills (from the kernel and the runtime, or from the simulation) and the
core reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cotenant_node_executor.runtime.interface import ContainerState
from cotenant_node_executor.sampling.snapshot import Snapshot
from cotenant_node_executor.targets.interface import Knob


class Observation(Struct, frozen=True, gc=False):
    """`states`: containers by pod uid, also of orphaned pods. `groups`: control groups below the root.

    `current`: files whose value strategies start from.
    """

    snapshot: Snapshot | None
    states: Mapping[str, Mapping[str, ContainerState]]
    groups: frozenset[str]
    current: Mapping[tuple[str, Knob], str]
    identity_sysctl: int | None = None
