"""The folded state of one node: the last message of each subject, with its event.

In: events. Out: the formulas' inputs. Each slot holds the newest message of one subject, so that repeated deliveries and the
order between subjects change nothing.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.node import Node
from cotenant.domain.node import NodeSources
from cotenant.domain.reservation import NodeReservation, kubelet_reserved, parse_reservation
from cotenant.events.envelope import Event
from cotenant.events.node.metrics import Usage
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.topology import CpuBasicInfo, MachineTopology
from cotenant.events.node.yarn import YarnNode
from cotenant.model.bounds import saturated
from cotenant.model.names import LABEL_NUMA_RESERVATION
from cotenant.model.quantities import QuantityError
from cotenant.model.values import Value
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy
from cotenant_batch_resource_calculator.config.risk import RiskBudget
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, of_mapping
from cotenant_batch_resource_calculator.formulas.batch import BatchStrategy, MeasuredUsage, PodNeed
from cotenant_batch_resource_calculator.formulas.devices import DeviceTotals
from cotenant_batch_resource_calculator.formulas.evaluation import (
    CalculatedResources,
    NodeAmounts,
    NodeDemand,
    NodeMeasurement,
    demand_of,
)
from cotenant_batch_resource_calculator.formulas.normalization import parse_basic_info
from cotenant_batch_resource_calculator.metric_view import ReadMetric
from cotenant_batch_resource_calculator.placed_pods import PlacedPod
from cotenant_batch_resource_calculator.topology import DeclaredTopology, machine_zones

_NO_USAGE = Usage()


class HardwareFields(Value, frozen=True):
    """The parts of the event that follow from the node's CPUs and devices, whether it offers anything or not."""

    cpu_normalization: str = ""
    amplification: dict[str, float] = {}
    devices: DeviceTotals = DeviceTotals()


class NodeSettings(Value, frozen=True):
    """The parts of the node's event that do not depend on measurements. `notes`: texts for the message, in order; `base`: the
    strategy as JSON, without the node's own annotation and labels; `ratio`: of batch-cpu; `group`: the nodes whose hours a
    risk budget counts together.
    """

    strategy: ColocationStrategy
    policies: BatchStrategy
    base: msgspec.Raw
    cluster_enable: bool
    config: str
    foreign: Amounts
    ratio: float = 1.0
    shape: HardwareFields = HardwareFields()
    budget: RiskBudget | None = None
    group: str = ""
    reason: str = ""
    degraded: bool = False
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class Standing(Value, frozen=True):
    """The node's desired resources event, valid until the next event of the node is folded; a cache.

    `news`: publish at once. `differs`: publish once the last event is older than `refresh_seconds`. `withdrawal`: the only
    part that changes with time alone. `calculated`: by the formula, which reads the pods. `chooses`: a margin is chosen from
    other nodes' hours, so it is decided again each time until it is published.
    """

    payload: NodeResources
    strategy: ColocationStrategy
    withdrawal: str
    news: bool
    differs: bool
    refresh_seconds: int
    calculated: bool
    chooses: bool = False


class NodeState:
    """The folded state of one node. Plain slots; only `core` writes them.

    `unreadable`: the error of an unreadable node object.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.node_ref = ""
        self.executor: ExecutorStatus | None = None
        self.executor_ref = ""
        self.metric: ReadMetric | None = None
        self.metric_ref = ""
        self.yarn: YarnNode | None = None
        self.yarn_ref = ""
        self.declared = DeclaredTopology()
        """Of its NodeResourceTopology object."""
        self.declared_ref = ""
        self.machine: MachineTopology | None = None
        self.machine_ref = ""
        self.devices = DeviceTotals()
        self.devices_ref = ""
        self.placed: dict[str, PlacedPod] = {}
        self.ended: dict[str, str] = {}
        """The uids of pods that have ended for good, from their runs, by `namespace/name`."""
        self.resources: Event | None = None
        self.slo: Event | None = None
        self.unreadable = ""
        self.situation: NodeSettings | None = None
        self.evaluation: CalculatedResources | None = None
        self._demand: NodeDemand | None = None
        self._pods: tuple[PodNeed, ...] | None = None
        self.standing: Standing | None = None
        self.rendered: NodeSLORendered | None = None
        self.settled_slo: NodeSLORendered | None = None
        """The rendered SLO that needs no event: the last one has the same content."""
        self._figures: NodeAmounts | None = None
        self._zones: dict[str, Amounts] | None = None

    def changed(self) -> None:
        """Drop everything computed from the state."""
        self._figures = self._zones = None
        self.configuration_changed()

    def configuration_changed(self) -> None:
        """Drop everything that follows from the configuration."""
        self.situation = None
        self.evaluation = None
        self.standing = None

    def published_as_decided(self, data: NodeResources) -> bool:
        """Return whether the folded event is the desired one: then it stays so, and nothing is recomputed."""
        standing = self.standing
        if standing is None or (standing.payload is not data and standing.payload != data):
            return False
        self.standing = msgspec.structs.replace(standing, news=False, differs=False)
        return True

    @property
    def settled(self) -> bool:
        """Whether nothing follows from the node once its resources event is stored."""
        standing = self.standing
        if self.node is None or standing is None or standing.chooses:
            return False
        return self.rendered is not None and self.settled_slo is self.rendered

    def slo_published(self, event: Event | None) -> None:
        """Take the node's own last SLO event, None: it has ended. What was rendered stays if the event carries it."""
        self.slo, self.settled_slo = event, None
        if event is None or event.data is not self.rendered:
            self.rendered = None

    def metric_changed(self) -> None:
        """Drop everything computed from the metric."""
        self._demand = None
        self.evaluation = None
        self.standing = None

    def pods_changed(self) -> bool:
        """Drop everything computed from the pods; return whether the node's desired event may have changed."""
        self._demand = self._pods = None
        self.evaluation = None
        standing = self.standing
        if standing is not None and not standing.calculated:
            return False
        self.standing = None
        return True

    @property
    def empty(self) -> bool:
        """Whether no message of the node is left."""
        facts = (self.node, self.executor, self.metric, self.yarn, self.machine, self.resources, self.slo)
        refs = (self.declared_ref, self.devices_ref)
        return not (any(fact is not None for fact in facts) or any(refs) or self.placed or self.ended)

    @property
    def published(self) -> NodeResources | None:
        """The node's own last resources event."""
        return self.resources.data if self.resources is not None and isinstance(self.resources.data, NodeResources) else None

    @property
    def published_slo(self) -> NodeSLORendered | None:
        """The node's own last SLO event."""
        return self.slo.data if self.slo is not None and isinstance(self.slo.data, NodeSLORendered) else None

    @property
    def annotations(self) -> dict[str, str]:
        """The node object's annotations."""
        return self.node.metadata.annotations if self.node is not None else {}

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels as every service sees them; without those of its devices, which this service adds itself."""
        return NodeSources(self.node, self.executor).labels()

    def reservation(self) -> NodeReservation:
        """The reservation in the node's annotation."""
        return parse_reservation(self.annotations)

    def figures(self) -> NodeAmounts:
        """Return capacity and allocatable as every service derives them, never amplified; none before there is an object.
        Raises QuantityError."""
        if self._figures is None:
            sources = NodeSources(self.node, self.executor)
            self._figures = NodeAmounts(sources.capacity(), sources.unamplified(), self.reservation())
        return self._figures

    def measurement(self) -> NodeMeasurement | None:
        """Return the node's metric in the formulas' form."""
        metric = self.metric
        if metric is None:
            return None
        return NodeMeasurement(
            update_time=metric.update_time,
            node_usage=amounts(metric.node_usage) if metric.node_usage != _NO_USAGE else None,
            system_usage=amounts(metric.system_usage),
            pods=tuple(MeasuredUsage(f"{pod.namespace}/{pod.name}", amounts(pod.usage), pod.priority) for pod in metric.pods),
            host_applications=tuple(
                MeasuredUsage(host.name, amounts(host.usage), host.priority) for host in metric.host_applications
            ),
            prod_reclaimable=amounts(metric.prod_reclaimable) if metric.prod_reclaimable is not None else ZERO,
            prod_peak_cpu=metric.prod_peak.cpu_milli if metric.prod_peak is not None else None,
        )

    def demand(self) -> NodeDemand | None:
        """Return the node's metric and pods, summed up; None without a metric."""
        if self._demand is None and (measurement := self.measurement()) is not None:
            self._demand = demand_of(measurement, self.pods())
        return self._demand

    def zones(self) -> dict[str, Amounts]:
        """Return the NUMA zones' capacities by name, in the order of their numbers."""
        if self._zones is None:
            self._zones = self.declared.zones or self._machine_zones()
        return self._zones

    def _machine_zones(self) -> dict[str, Amounts]:
        if self.machine is None:
            return {}
        reserved = ZERO
        if self.labels.get(LABEL_NUMA_RESERVATION) == "true":
            try:
                node = self.figures()
            except QuantityError:
                return {}
            reserved = of_mapping(kubelet_reserved(node.capacity, node.allocatable))
        return machine_zones(self.machine, reserved)

    def cpu_info(self) -> CpuBasicInfo | None:
        """Return the node's CPU information: from its NodeResourceTopology, else from its executor. Raises RatioError."""
        declared = parse_basic_info(self.declared.annotations)
        if declared is not None:
            return declared
        return self.machine.cpu if self.machine is not None and self.machine.cpu.cpu_model else None

    def pods(self) -> tuple[PodNeed, ...]:
        """Return the pods that run or will run on the node, by name: placed, and not reported as ended by the executor."""
        if self._pods is None:
            ended, placed = self.ended, sorted(self.placed.items())
            self._pods = tuple([pod.need for key, pod in placed if ended.get(key) != pod.uid])
        return self._pods


def amounts(usage: Usage) -> Amounts:
    """Return a usage in the formulas' units."""
    return Amounts(usage.cpu_milli, usage.memory_bytes)


def usage(figures: Amounts) -> Usage:
    """Return the formulas' amounts for an event, saturated at the bounds of amounts."""
    return Usage(cpu_milli=max(saturated(figures.cpu), 0), memory_bytes=max(saturated(figures.memory), 0))
