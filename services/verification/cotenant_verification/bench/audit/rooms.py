"""Constraints of a single node on a pod, by plain rules: room, cordon, selectors, taints, host ports, load.

In: typed pods and nodes, and the events about a node. Out: why a pod cannot be there, empty if it can. Part of the
independent check: it shares no code with the scheduler, only the typed views, quantities and the names of tiers and
resources. Sources: Kubernetes' documented rules; Koordinator's load-aware scheduling with its default thresholds (cpu 65 %,
memory 95 %), factors (85, 70), estimates for pods without requests (250m, 200 MiB) and expiry (180 s).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction

import msgspec

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement
from cotenant.api.objects.node import Node
from cotenant.api.objects.pod import NodeSelectorTerm, Pod, PodAffinityTerm, PodSpec
from cotenant.api.objects.pod_resources import pod_limits, pod_requests
from cotenant.domain.qos import priority_default
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.placements import Placement
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY, RESOURCE_PODS
from cotenant.model.quantities import resource_amount
from cotenant.model.tiers import PriorityClass
from cotenant_verification.bench.audit.acting import counted_twice, used_by

THRESHOLDS = {CPU: 65, MEMORY: 95}
FACTORS = {CPU: 85, MEMORY: 70}
UNASKED = {CPU: 250, MEMORY: 200 << 20}
EXPIRES = timedelta(seconds=180)
LENT = {
    PriorityClass.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    PriorityClass.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
}
"""The resources that pods of a tier request instead of the machine's own."""


LabelItems = tuple[tuple[str, str], ...]
"""Labels in the order of their names."""


class PodRequirements(msgspec.Struct, frozen=True):
    """What pods of one template require."""

    pod: Pod
    labels: LabelItems
    keeps_away: tuple[tuple[bytes, PodAffinityTerm], ...]
    """The terms of its required anti-affinity, each as JSON and typed."""
    requests: dict[str, int]
    estimate: dict[str, int]
    ports: tuple[tuple[str, int, str], ...]
    quota: str


def need_of(pod: Pod, quota: str) -> PodRequirements:
    """Read a pod. Raises ValueError for what the check does not support."""
    spec = pod.spec
    daemon = any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    if spec.init_containers or spec.host_network or daemon:
        raise ValueError(f"the check does not support all constraints of pod {pod.metadata.name}")
    requests, limits = pod_requests(pod), pod_limits(pod)
    tier = priority_default(pod)
    estimate = {}
    for name, factor in FACTORS.items():
        real = LENT.get(tier, {}).get(name, name)
        asked = max(requests.get(real, 0), limits.get(real, 0))
        if tier is PriorityClass.FREE:
            estimate[name] = 0
        elif not asked:
            estimate[name] = 0 if tier is PriorityClass.MID else UNASKED[name]
        else:
            expected = int(Fraction(asked * factor, 100) + Fraction(1, 2))
            estimate[name] = min(expected, limits[real]) if limits.get(real) else expected
    ports = tuple(
        (port.protocol, port.host_port, port.host_ip or "0.0.0.0")
        for c in spec.containers
        for port in c.ports
        if port.host_port
    )
    return PodRequirements(
        pod=pod,
        labels=tuple(sorted(pod.metadata.labels.items())),
        keeps_away=tuple((msgspec.json.encode(term), term) for term in required(pod, apart=True)),
        requests={name: amount for name, amount in requests.items() if amount} | {RESOURCE_PODS: 1},
        estimate=estimate,
        ports=ports,
        quota=quota,
    )


def required(pod: Pod, *, apart: bool) -> list[PodAffinityTerm]:
    """The terms of a pod's required affinity, or of its anti-affinity, about the labels that it has."""
    affinity = pod.spec.affinity
    side = (affinity.pod_anti_affinity if apart else affinity.pod_affinity) if affinity else None
    return [_own_term(term, pod.metadata.labels) for term in side.required] if side else []


def _own_term(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    selector = keyed(term.label_selector, term.match_label_keys, "In", labels)
    return msgspec.structs.replace(term, label_selector=keyed(selector, term.mismatch_label_keys, "NotIn", labels))


def keyed(
    selector: LabelSelector | None, keys: Sequence[str], operator: str, labels: Mapping[str, str]
) -> LabelSelector | None:
    """A selector that also demands the pod's own values of some labels (In), or others (NotIn), where it has them."""
    own = [LabelSelectorRequirement(key=key, operator=operator, values=[labels[key]]) for key in keys if key in labels]
    if selector is None or not own:
        return selector
    return msgspec.structs.replace(selector, match_expressions=[*selector.match_expressions, *own])


class Facts:
    """The last message of each kind about a node (of those that a decision had folded)."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.executor: ExecutorStatus | None = None
        self.resources: NodeResources | None = None
        self.condition: NodeCondition | None = None
        self.metric: NodeMetricComputed | None = None
        self._capacity: dict[str, int] | None = None

    def say(self, data: Node | ExecutorStatus | NodeResources | NodeCondition | NodeMetricComputed) -> None:
        """Take a message about the node."""
        self._capacity = None
        match data:
            case Node():
                self.node = data
            case ExecutorStatus():
                self.executor = data
            case NodeResources():
                self.resources = data
            case NodeCondition():
                self.condition = data
            case _:
                self.metric = data

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the executor, overlaid by the object's."""
        return {**(self.executor.labels if self.executor else {}), **self.node.metadata.labels}

    def allocatable(self) -> dict[str, int]:
        """The object's allocatable, overlaid by the executor's and by batch and mid resources."""
        if self._capacity is not None:
            return self._capacity
        found = {name: resource_amount(name, quantity) for name, quantity in self.node.status.allocatable.items()}
        found.update(self.executor.allocatable if self.executor else {})
        found.setdefault(RESOURCE_PODS, 110)
        if self.resources is not None:
            for tier, cpu, memory in (
                (PriorityClass.BATCH, self.resources.batch_cpu_milli, self.resources.batch_memory_bytes),
                (PriorityClass.MID, self.resources.mid_cpu_milli, self.resources.mid_memory_bytes),
            ):
                found[LENT[tier][CPU]], found[LENT[tier][MEMORY]] = cpu, memory
        self._capacity = found
        return found

    def taints(self) -> list[tuple[str, str, str]]:
        """Key, value, effect: of the object, the executor and the condition."""
        reported = (*(self.executor.taints if self.executor else ()), *(self.condition.taints if self.condition else ()))
        return [*((taint.key, taint.value, taint.effect) for taint in self.node.spec.taints), *reported]


class NodeRoom:
    """The pods on one node."""

    def __init__(self) -> None:
        self.pods: dict[str, tuple[PodRequirements, Placement]] = {}
        self.taken: Counter[str] = Counter()
        self._estimates: Counter[str] = Counter()
        self._acting = 0
        """Pods that act as reservations."""

    def add(self, name: str, need: PodRequirements, placement: Placement) -> None:
        """Add a pod that is placed here."""
        self.pods[name] = (need, placement)
        self.taken.update(need.requests)
        self._estimates.update(need.estimate)
        self._acting += used_by(placement) == placement.uid

    def remove(self, name: str) -> PodRequirements:
        """Remove a pod; return what it required."""
        need, placement = self.pods.pop(name)
        self._acting -= used_by(placement) == placement.uid
        self.taken.subtract(need.requests)
        self._estimates.subtract(need.estimate)
        return need

    def refusal(self, need: PodRequirements, facts: Facts, now: datetime, placement: Placement | None = None) -> str:
        """Return why the node refuses the pod now, looking at this node alone; empty if it does not. `placement`: the pod's,
        which names the reservation that it uses."""
        capacity = facts.allocatable()
        twice = self._counted_twice(placement)
        for name, amount in need.requests.items():
            free = capacity.get(name, 0) - self.taken[name] + twice[name]
            if amount > free:
                return f"{name} short by {amount - free}"
        spec = need.pod.spec
        if facts.node.spec.unschedulable and not tolerated(spec, ("node.kubernetes.io/unschedulable", "", "NoSchedule")):
            return "cordoned"
        if not selects_node(need.pod, facts):
            return "node selector or affinity"
        for taint in facts.taints():
            if taint[2] != "PreferNoSchedule" and not tolerated(spec, taint):
                return f"taint {taint[0]}"
        taken = [port for other, _ in self.pods.values() for port in other.ports] if need.ports else []
        for port in need.ports:
            if any(port[:2] == other[:2] and (port[2] == other[2] or "0.0.0.0" in (port[2], other[2])) for other in taken):
                return f"host port {port[1]} taken"
        return self._overloaded(need, facts.metric, capacity, now)

    def _counted_twice(self, placement: Placement | None) -> Counter[str]:
        if not self._acting:
            return Counter()
        return counted_twice([*(there for _, there in self.pods.values()), *([placement] if placement else [])])

    def _overloaded(
        self, need: PodRequirements, metric: NodeMetricComputed | None, capacity: dict[str, int], now: datetime
    ) -> str:
        if metric is None or metric.update_time is None:
            return ""
        if metric.unknown_since is not None or now >= metric.update_time + EXPIRES:
            return "metric expired"
        reported = {(pod.namespace, pod.name): pod.usage for pod in metric.pods}
        known_from = metric.update_time - timedelta(seconds=metric.report_interval_seconds)
        for name, threshold in THRESHOLDS.items():
            used = metric.node_usage.cpu_milli if name == CPU else metric.node_usage.memory_bytes
            # In addition to the measured usage: pods that the report cannot include yet.
            used += 0 if reported else self._estimates[name]
            for other, placement in self.pods.values() if reported else ():
                usage = reported.get((placement.namespace, placement.name))
                if usage is None:
                    used += other.estimate[name]
                elif placement.bound_at is not None and placement.bound_at > known_from:
                    used += max(0, other.estimate[name] - (usage.cpu_milli if name == CPU else usage.memory_bytes))
            percent = Fraction(100 * (used + need.estimate[name]), capacity[name])
            if int(percent + Fraction(1, 2)) > threshold:
                return f"{name} usage {float(percent):.1f}% > {threshold}%"
        return ""


def tolerated(spec: PodSpec, taint: tuple[str, str, str]) -> bool:
    """Whether one of the pod's tolerations covers a taint."""
    key, value, effect = taint
    for toleration in spec.tolerations:
        if toleration.effect not in ("", effect) or toleration.key not in ("", key):
            continue
        if toleration.operator == "Exists" or (toleration.key == key and toleration.value == value):
            return True
    return False


def holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Whether one expression holds for labels. Raises ValueError for an operator that the check does not support."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(f"the check does not support operator {requirement.operator}")


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects labels; a missing one selects nothing."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(requirement, labels) for requirement in selector.match_expressions
    )


def selects_node(pod: Pod, facts: Facts) -> bool:
    """Whether the pod's node selector and required node affinity hold."""
    labels = facts.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms: Sequence[NodeSelectorTerm] = affinity.required.node_selector_terms if affinity and affinity.required else ()
    if affinity is None or affinity.required is None:
        return True
    name = {"metadata.name": facts.node.metadata.name}
    return any(
        (term.match_expressions or term.match_fields)
        and all(holds(requirement, labels) for requirement in term.match_expressions)
        and all(holds(requirement, name) for requirement in term.match_fields)
        for term in terms
    )
