"""A pod's allocation on its node, from the annotation `scheduling.koordinator.sh/resource-status`.

In: a pod's annotations. Out: its own CPUs as text, and the NUMA nodes that it has CPU of.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cotenant.model.names import ANNOTATION_RESOURCE_STATUS, BATCH_CPU, CPU
from cotenant.model.quantities import QuantityError, Scalar, parse_nanos
from cotenant_node_executor.strategies.sections import annotation_as


class NumaAllocation(Struct, frozen=True):
    """A pod's allocation on one NUMA node."""

    node: int = 0
    resources: dict[str, Scalar] = {}

    @property
    def has_cpu(self) -> bool:
        """Whether it includes CPU; an unreadable quantity counts as none."""
        try:
            return any(parse_nanos(self.resources.get(name, 0)) > 0 for name in (CPU, BATCH_CPU))
        except QuantityError:
            return False


class ResourceStatus(Struct, frozen=True, rename="camel"):
    """The annotation. `cpuset`: a CPU list as the scheduler wrote it."""

    cpuset: str = ""
    numa_node_resources: tuple[NumaAllocation, ...] = ()

    @property
    def cpu_nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that the pod has CPU of, in the order of the annotation."""
        return tuple([share.node for share in self.numa_node_resources if share.has_cpu])


_NOTHING = ResourceStatus()


def resource_status(annotations: Mapping[str, str]) -> ResourceStatus:
    """A pod's allocation. Raises ValueError on an unreadable annotation."""
    text = annotations.get(ANNOTATION_RESOURCE_STATUS)
    if text is None:
        return _NOTHING
    return annotation_as(ANNOTATION_RESOURCE_STATUS, text, ResourceStatus)


def holds_cpus(annotations: Mapping[str, str]) -> bool:
    """Whether a pod has CPUs of its own; an unreadable annotation gives it none."""
    try:
        return bool(resource_status(annotations).cpuset)
    except ValueError:
        return False
