"""What is known of one node: the last fact of each kind, with the event that it came from.

In: events. Out: the pure formulas' inputs. Each slot holds the newest message of one subject, so that repeats and a
different order between subjects change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cotenant.api.objects.node import Node
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import QoSClass, priority_default, qos_raw
from cotenant.domain.reservation import Reservation, parse_reservation
from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed, Usage
from cotenant.events.placements import Placement
from cotenant.events.resources import NodeResources, NodeSLORendered
from cotenant.events.runs import ExecutorStatus
from cotenant.events.yarn import YarnNode
from cotenant.log.contract import LOG
from cotenant.model.bounds import saturated
from cotenant.model.names import ANNOTATION_RESOURCE_STATUS
from cotenant.model.quantities import QuantityError, resource_amount
from cotenant.model.tiers import PriorityClass
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, of_mapping
from cotenant_batch_resource_calculator.formulas.batch import BatchStrategy, MeasuredUsage, PodNeed
from cotenant_batch_resource_calculator.formulas.evaluation import Evaluation, NodeFigures, NodeMeasurement


class _ZoneAllocation(msgspec.Struct, frozen=True):
    node: int


class _ResourceStatus(msgspec.Struct, frozen=True, rename="camel"):
    numa_node_resources: list[_ZoneAllocation] = []


_RESOURCE_STATUS = msgspec.json.Decoder(_ResourceStatus)


class PlacedPod(msgspec.Struct, eq=False, gc=False):
    """A pod that was placed on the node. Its manifest is read when the formulas first ask, and then not kept."""

    uid: str
    sequence: int
    _need: Placement | PodNeed

    @property
    def ref(self) -> str:
        """How events name its placement as their cause."""
        return f"{LOG}:{self.sequence}"

    @property
    def need(self) -> PodNeed:
        """What the formulas read of the pod."""
        if isinstance(self._need, Placement):
            self._need = placed_need(self._need)
        return self._need


class Situation(msgspec.Struct, frozen=True):
    """What holds for the node's event besides its figures, whatever is measured. `notes` are texts for a person, in order;
    `base` is the strategy as JSON before what the node itself says.
    """

    strategy: ColocationStrategy
    policies: BatchStrategy
    base: msgspec.Raw
    cluster_enable: bool
    config: str
    foreign: Amounts
    ratio: float = 1.0
    reason: str = ""
    degraded: bool = False
    notes: tuple[str, ...] = ()


class Standing(msgspec.Struct, frozen=True):
    """What the node's resources event should say, as long as nothing is folded for it. A cache: it changes no result.

    `news`: worth an event at once. `differs`: worth one when the last is older than `refresh_seconds`. `withdrawal` is
    the one part that the passing of time alone changes. `calculated`: by the formula, which reads the pods.
    """

    payload: NodeResources
    strategy: ColocationStrategy
    withdrawal: str
    news: bool
    differs: bool
    refresh_seconds: int
    calculated: bool


class NodeState:
    """All that is folded for one node. Plain slots; only `core` writes them.

    `unreadable` says what is wrong with the node object, where it cannot be read as one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.node_ref = ""
        self.executor: ExecutorStatus | None = None
        self.executor_ref = ""
        self.metric: NodeMetricComputed | None = None
        self.metric_ref = ""
        self.yarn: YarnNode | None = None
        self.yarn_ref = ""
        self.zones: dict[str, Amounts] = {}
        self.zones_ref = ""
        self.placed: dict[str, PlacedPod] = {}
        self.ended: dict[str, str] = {}
        """The uids of pods that have ended for good, as their runs say, by `namespace/name`."""
        self.resources: Event | None = None
        self.slo: Event | None = None
        self.unreadable = ""
        self.situation: Situation | None = None
        self.evaluation: Evaluation | None = None
        self.standing: Standing | None = None
        self.rendered: NodeSLORendered | None = None

    def changed(self) -> None:
        """Forget what was computed from the state."""
        self.situation = None
        self.metric_changed()

    def metric_changed(self) -> None:
        """Forget what was computed from the metric."""
        self.evaluation = None
        self.standing = None

    def pods_changed(self) -> bool:
        """Forget what was computed from the pods; tell whether what the node's event should say may be another now."""
        self.evaluation = None
        standing = self.standing
        if standing is not None and not standing.calculated:
            return False
        self.standing = None
        return True

    @property
    def empty(self) -> bool:
        """Nothing is known of the node any more."""
        facts = (self.node, self.executor, self.metric, self.yarn, self.resources, self.slo)
        return not (any(fact is not None for fact in facts) or self.zones or self.placed or self.ended)

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
        """Labels of the object with those that the executor reports laid over."""
        declared = self.node.metadata.labels if self.node is not None else {}
        return {**declared, **self.executor.labels} if self.executor is not None else declared

    def reservation(self) -> Reservation:
        """What the node's annotation reserves."""
        return parse_reservation(self.annotations)

    def figures(self) -> NodeFigures:
        """Return capacity and allocatable: what the executor reports, else what the object declares. Raises QuantityError."""
        capacity: dict[str, int] = {}
        allocatable: dict[str, int] = {}
        if self.node is not None:
            status = self.node.status
            capacity = {name: resource_amount(name, quantity) for name, quantity in status.capacity.items()}
            allocatable = {name: resource_amount(name, quantity) for name, quantity in status.allocatable.items()}
        if self.executor is not None:
            capacity |= self.executor.capacity
            allocatable |= self.executor.allocatable
        return NodeFigures(capacity, allocatable, self.reservation())

    def measurement(self) -> NodeMeasurement | None:
        """Return the node's metric as the formulas read it."""
        metric = self.metric
        if metric is None:
            return None
        return NodeMeasurement(
            update_time=metric.update_time,
            node_usage=amounts(metric.node_usage),
            system_usage=amounts(metric.system_usage),
            pods=tuple(MeasuredUsage(f"{pod.namespace}/{pod.name}", amounts(pod.usage), pod.priority) for pod in metric.pods),
            host_applications=tuple(
                MeasuredUsage(host.name, amounts(host.usage), host.priority) for host in metric.host_applications
            ),
            prod_reclaimable=amounts(metric.prod_reclaimable) if metric.prod_reclaimable is not None else ZERO,
        )

    def pods(self) -> list[PodNeed]:
        """Return the pods that run or will run on the node, by name: placed, and not ended by the executor's report."""
        alive = []
        for key in sorted(self.placed):
            placed = self.placed[key]
            if self.ended.get(key) != placed.uid:
                alive.append(placed.need)
        return alive


def amounts(usage: Usage) -> Amounts:
    """Return a usage as the formulas count it."""
    return Amounts(usage.cpu_milli, usage.memory_bytes)


def usage(figures: Amounts) -> Usage:
    """Return the formulas' amounts as events carry them: within the bounds of amounts."""
    return Usage(cpu_milli=max(saturated(figures.cpu), 0), memory_bytes=max(saturated(figures.memory), 0))


def need_of(pod: Pod, key: str) -> PodNeed:
    """Return what the formulas read of a pod. Raises QuantityError."""
    return PodNeed(
        key=key,
        tier=priority_default(pod),
        exclusive=qos_raw(pod) is QoSClass.LSE,
        request=of_mapping(pod_requests(pod)),
        zones=tuple(zones_of(pod)),
    )


def zones_of(pod: Pod) -> Iterable[int]:
    """Return the NUMA ids that the scheduler gave the pod; none where the annotation is absent or cannot be read."""
    text = pod.metadata.annotations.get(ANNOTATION_RESOURCE_STATUS)
    if text is None:
        return ()
    try:
        return tuple(zone.node for zone in _RESOURCE_STATUS.decode(text).numa_node_resources)
    except msgspec.DecodeError:
        return ()


def placed_need(placement: Placement) -> PodNeed:
    """Return what the formulas read of a placed pod. One whose manifest cannot be read counts as a prod pod with the requests
    that it was placed on."""
    key = f"{placement.namespace}/{placement.name}"
    try:
        return need_of(decode_pod(placement.pod), key)
    except (msgspec.DecodeError, QuantityError):
        return PodNeed(key, PriorityClass.PROD, False, of_mapping(placement.requests))
