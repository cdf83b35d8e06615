"""A node as every service sees it: what its object declares, its executor reports and the resource calculator offers.

In: the Node object and the last executor report, resources and condition events of that node. Out: labels, taints, amounts.

    offered     = the object's allocatable (its capacity where it declares none), overlaid by the executor's report, overlaid by
                  the totals of the node's devices, by batch and mid resources; cpu and memory amplified by the calculator's
                  ratios; deprecated names read as the new ones; 110 pods where no number is stated
    raw         = cpu and memory of that before the calculator amplifies them: what the machine has
    allocatable = offered less the reservation annotation: what pods may be placed on
    capacity for load = allocatable with the raw amounts in the place of amplified ones: of the calculator's amplification, else
                  those of `node.koordinator.sh/raw-allocatable` (a node that another control plane amplifies)
    labels      = those of the node's devices, the executor's, overlaid by the object's
    taints      = the object's, the executor's, those of the condition; each once

A node exists once its object is there: without one it has no labels, no taints and offers nothing, whatever else is known.
Amounts are integers: cpu, batch-cpu and mid-cpu in milli-CPUs, memory in bytes, everything else in pieces. The gateway shows
`offered` (an API client that writes an allocatable back must not subtract the reservation twice); services that place pods or
compare load read `allocatable`. Sources: kubelet defaults of a node's status; Koordinator node reservation and amplification.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.node import Node, Taint
from cotenant.domain.amplification import AMPLIFIED, AmplificationError, amplified, parse_ratios, parse_raw
from cotenant.domain.reservation import parse_reservation, trim_allocatable
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, RESOURCE_PODS
from cotenant.model.quantities import Scalar, resource_amount
from cotenant.model.tiers import RENAMED_RESOURCES

DEFAULT_PODS = 110
"""Pods on a node that does not state a number (the kubelet's default)."""


def estimate_node_allocatable(
    allocatable: Mapping[str, Scalar], annotations: Mapping[str, str]
) -> Mapping[str, Scalar]:
    """Return allocatable with the raw (not amplified) values of the annotation in place; a bad one counts as none."""
    try:
        raw = parse_raw(annotations)
    except AmplificationError:
        return allocatable
    return {**allocatable, **raw} if raw else allocatable


def overcommitted_amounts(resources: NodeResources) -> dict[str, int]:
    """Return the batch and mid resources of a node; 0 of each while they are withdrawn."""
    if resources.withdrawn:
        return {BATCH_CPU: 0, BATCH_MEMORY: 0, MID_CPU: 0, MID_MEMORY: 0}
    return {
        BATCH_CPU: resources.batch_cpu_milli,
        BATCH_MEMORY: resources.batch_memory_bytes,
        MID_CPU: resources.mid_cpu_milli,
        MID_MEMORY: resources.mid_memory_bytes,
    }


class NodeSources(msgspec.Struct, frozen=True):
    """The sources of one node, each None while it is unknown: the fold from which everything else is derived."""

    node: Node | None = None
    executor: ExecutorStatus | None = None
    resources: NodeResources | None = None
    condition: NodeCondition | None = None

    def labels(self) -> dict[str, str]:
        """Return the node's labels."""
        if self.node is None:
            return {}
        of_devices = self.resources.device_labels if self.resources is not None else {}
        reported = self.executor.labels if self.executor is not None else {}
        return {**of_devices, **reported, **self.node.metadata.labels}

    def taints(self) -> tuple[Taint, ...]:
        """Return the node's taints, each once."""
        if self.node is None:
            return ()
        reported = self.executor.taints if self.executor is not None else ()
        of_condition = self.condition.taints if self.condition is not None else ()
        added = (Taint(key=key, value=value, effect=effect) for key, value, effect in (*reported, *of_condition))
        return tuple(dict.fromkeys((*self.node.spec.taints, *added)))

    def unschedulable(self) -> bool:
        """Return whether the node is cordoned."""
        return self.node is not None and self.node.spec.unschedulable

    def capacity(self) -> dict[str, int]:
        """Return the machine's capacity: the object's, overlaid by the executor's report. Raises QuantityError."""
        if self.node is None:
            return {}
        found = {name: resource_amount(name, quantity) for name, quantity in self.node.status.capacity.items()}
        if self.executor is not None:
            found.update(self.executor.capacity)
        return found

    def machine(self) -> dict[str, int]:
        """Return what the machine offers by itself, its devices included: nothing that the calculator amplified, nothing
        overcommitted. Raises QuantityError."""
        return self._machine(raw=self.amplifies)

    def unamplified(self) -> dict[str, int]:
        """Return the machine's own offer, without any amplification. Raises QuantityError."""
        return self._machine(raw=True)

    def _machine(self, *, raw: bool) -> dict[str, int]:
        """`raw`: whether the annotation's raw amounts stand in for those that the object declares."""
        if self.node is None:
            return {}
        declared: Mapping[str, Scalar] = self.node.status.allocatable or self.node.status.capacity
        if raw:
            declared = estimate_node_allocatable(declared, self.node.metadata.annotations)
        found = {name: resource_amount(name, quantity) for name, quantity in declared.items()}
        if self.resources is not None:
            found.update(self.resources.devices)
        if self.executor is not None:
            found.update(self.executor.allocatable)
        for old, new in RENAMED_RESOURCES.items():
            if old in found:
                found.setdefault(new, found[old])
        found.setdefault(RESOURCE_PODS, DEFAULT_PODS)
        return found

    def amplification(self) -> dict[str, float]:
        """Return by how much its allocatable is amplified, by resource: by the calculator, else as its annotation says."""
        if self.node is None:
            return {}
        if self.resources is not None and self.resources.amplification:
            return self.resources.amplification
        try:
            return parse_ratios(self.node.metadata.annotations)
        except AmplificationError:
            return {}

    @property
    def amplifies(self) -> bool:
        """Whether the calculator amplifies this node."""
        return self.resources is not None and bool(self.resources.amplification)

    def offered(self) -> dict[str, int]:
        """Return what the node offers before its reservation is taken off. Raises QuantityError."""
        offered = self.machine()
        if self.resources is not None and self.node is not None:
            offered.update(amplified(offered, self.resources.amplification))
            offered.update(overcommitted_amounts(self.resources))
        return offered

    def allocatable(self) -> dict[str, int]:
        """Return what pods may request of the node in total. Raises QuantityError."""
        if self.node is None:
            return {}
        allocatable, _ = trim_allocatable(self.offered(), parse_reservation(self.node.metadata.annotations))
        return allocatable

    def raw_allocatable(self) -> dict[str, int]:
        """Return the raw amounts of an amplified node; none of a node without amplification. Raises QuantityError."""
        if self.node is None:
            return {}
        if self.amplifies:
            return {name: amount for name, amount in self.machine().items() if name in AMPLIFIED}
        raw = estimate_node_allocatable({}, self.node.metadata.annotations)
        return {name: resource_amount(name, quantity) for name, quantity in raw.items()}

    def capacity_for_load(self, allocatable: Mapping[str, int]) -> dict[str, int]:
        """Return the amounts of which load percentages are taken, given the node's `allocatable`. Raises QuantityError."""
        return {**allocatable, **self.raw_allocatable()}
