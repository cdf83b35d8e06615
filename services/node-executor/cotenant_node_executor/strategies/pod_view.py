"""A strategy's view of a placed pod: its amounts, its class, its exclusive CPUs, its groups.

In: the pod's manifest. Out: a `PodView`; pods with equal amounts and classes, such as replicas, share a `PodShape`. CPU is in
milli-CPU, memory in bytes. An unreadable annotation counts as absent and is named in `problem`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cotenant.api.objects.pod import Container, Pod, PodSpec, Resources
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import KubeQoS, QoSClass, kube_qos, qos_raw
from cotenant.model.by_identity import by_identity
from cotenant.model.names import (
    ANNOTATION_EXTENDED_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    MEMORY,
    MID_CPU,
    MID_MEMORY,
)
from cotenant.model.quantities import QuantityError, parse_value, resource_amount
from cotenant.model.values import Value
from cotenant_node_executor.strategies.allocation import resource_status
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE

ANNOTATION_CPU_QOS = "koordinator.sh/cpuQOS"
ANNOTATION_MEMORY_QOS = "koordinator.sh/memoryQOS"
REMEMBERED_SHAPES = 256
_CLASS_OF_KUBE = {
    KubeQoS.GUARANTEED: QoSClass.LSR.value,
    KubeQoS.BURSTABLE: QoSClass.LS.value,
    KubeQoS.BEST_EFFORT: QoSClass.BE.value,
}
_GUARANTEED, _BURSTABLE = KubeQoS.GUARANTEED, KubeQoS.BURSTABLE


class ContainerAmounts(Struct, frozen=True):
    """One container's requests and limits of batch resources, or of mid resources; None where it states none."""

    name: str
    request_cpu_milli: int | None = None
    limit_cpu_milli: int | None = None
    limit_memory_bytes: int | None = None
    request_memory_bytes: int | None = None


class ContainerShape(Struct, frozen=True, cache_hash=True):
    """A container's own amounts; None where it states none."""

    request_cpu_milli: int | None
    limit_cpu_milli: int | None
    limit_memory_bytes: int | None
    batch: ContainerAmounts | None
    request_memory_bytes: int | None = None
    mid: ContainerAmounts | None = None


class PodShape(Struct, frozen=True, cache_hash=True):
    """The inputs of a pod's values besides the policy; pods of one workload share one object."""

    qos: QoSClass
    kube_qos: KubeQoS
    containers: tuple[ContainerShape, ...]
    requested_milli: int
    """The sum of its containers' CPU requests."""
    holds_cpus: bool
    identity: str | None
    """The CPU identity that the pod's annotation requests."""
    request_memory_bytes: int
    """Of the whole pod, as Kubernetes counts it: with init containers."""
    memory_qos: str | None
    """The memory QoS that the pod's annotation requests."""

    @property
    def config_class(self) -> str:
        """See `config_class`."""
        return config_class(self.qos, self.kube_qos)


def config_class(qos: QoSClass, kubernetes: KubeQoS) -> str:
    """The class whose parts of the NodeSLO apply to a pod: that of its label (LSE has LSR's), else of its Kubernetes QoS."""
    if qos is QoSClass.NONE:
        return _CLASS_OF_KUBE[kubernetes]
    return QoSClass.LSR.value if qos is QoSClass.LSE else qos.value


class PodView(Value, frozen=True):
    """A strategy's view of a pod. `bound_cpus`: the exclusive CPUs that the scheduler allocated."""

    uid: str
    namespace: str
    name: str
    group: str
    groups: tuple[str, ...]
    """The pod's group, then its containers' groups."""
    shape: PodShape
    bound_cpus: frozenset[int]
    problem: str = ""
    """The error of an unreadable annotation, which counts as absent."""
    manifest: Pod = Pod()
    cpu_nodes: tuple[int, ...] = ()
    """The NUMA nodes that the scheduler gave it CPU of."""
    mid_cpu_milli: int = 0
    """The sum of its containers' requests of mid-cpu."""

    @property
    def qos(self) -> QoSClass:
        return self.shape.qos

    @property
    def labels(self) -> Mapping[str, str]:
        return self.manifest.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.manifest.metadata.annotations

    @property
    def priority(self) -> int | None:
        return self.manifest.spec.priority

    @property
    def kube_qos(self) -> KubeQoS:
        return self.shape.kube_qos


class _ExtendedSpec(Struct, frozen=True, rename="camel"):
    containers: dict[str, Resources] = {}


def pod_group(uid: str, qos: KubeQoS) -> str:
    """A pod's group below the root, in kubelet's layout."""
    if qos is _GUARANTEED:
        return f"pod{uid}"
    return f"{BURSTABLE if qos is _BURSTABLE else BESTEFFORT}/pod{uid}"


def pod_view(pod: Pod) -> PodView:
    """The view of a placed pod. Raises QuantityError on a quantity that admission would have refused."""
    annotations = pod.metadata.annotations
    kubernetes = kube_qos(pod)
    group = pod_group(pod.metadata.uid, kubernetes)
    containers = _stated(pod.spec)
    bound: frozenset[int] = frozenset()
    nodes: tuple[int, ...] = ()
    problems: list[str] = []
    if annotations:
        extended = _extended(annotations, problems)
        if extended:
            containers = tuple([_with_batch(*each, extended) for each in zip(pod.spec.containers, containers, strict=True)])
        bound, nodes = _allocated(annotations, problems)
    return PodView(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        group=group,
        groups=(group, *[f"{group}/{entry.name}" for entry in pod.spec.containers]),
        shape=_shape(
            qos_raw(pod),
            kubernetes,
            containers,
            bool(bound),
            annotations.get(ANNOTATION_CPU_QOS),
            pod_requests(pod).get(MEMORY, 0),
            annotations.get(ANNOTATION_MEMORY_QOS),
        ),
        bound_cpus=bound,
        problem="; ".join(problems),
        cpu_nodes=nodes,
        manifest=pod,
        mid_cpu_milli=_mid(pod.spec),
    )


@lru_cache(maxsize=REMEMBERED_SHAPES)
def _shape(
    qos: QoSClass,
    kubernetes: KubeQoS,
    containers: tuple[ContainerShape, ...],
    holds_cpus: bool,
    identity: str | None,
    request_memory_bytes: int,
    memory_qos: str | None,
) -> PodShape:
    return PodShape(
        qos=qos,
        kube_qos=kubernetes,
        containers=containers,
        requested_milli=sum([container.request_cpu_milli or 0 for container in containers]),
        holds_cpus=holds_cpus,
        identity=identity,
        request_memory_bytes=request_memory_bytes,
        memory_qos=memory_qos,
    )


@by_identity
def _stated(spec: PodSpec) -> tuple[ContainerShape, ...]:
    """The amounts in the containers' own specs."""
    return tuple([_container(container.name, container.resources) for container in spec.containers])


@by_identity
def _mid(spec: PodSpec) -> int:
    """The requests of mid-cpu in the containers' own specs."""
    stated = ({**each.resources.limits, **each.resources.requests}.get(MID_CPU, 0) for each in spec.containers)
    return sum([parse_value(quantity) for quantity in stated])


def _container(name: str, own: Resources) -> ContainerShape:
    return ContainerShape(
        request_cpu_milli=_amount({**own.limits, **own.requests}, CPU),
        limit_cpu_milli=_amount(own.limits, CPU),
        limit_memory_bytes=_amount(own.limits, MEMORY),
        batch=_batch(name, own),
        request_memory_bytes=_amount({**own.limits, **own.requests}, MEMORY),
        mid=_overcommitted(name, own, MID_CPU, MID_MEMORY),
    )


def _with_batch(container: Container, stated: ContainerShape, extended: Mapping[str, Resources]) -> ContainerShape:
    """A container with the batch amounts of the annotation, where its spec has none."""
    if stated.batch is not None or container.name not in extended:
        return stated
    return replace(stated, batch=_batch(container.name, extended[container.name]))


def _amount(quantities: Mapping[str, str | int | float], name: str) -> int | None:
    return resource_amount(name, quantities[name]) if name in quantities else None


def _batch(name: str, resources: Resources) -> ContainerAmounts | None:
    """Batch amounts in these resources; the pod's spec overrides the annotation."""
    return _overcommitted(name, resources, BATCH_CPU, BATCH_MEMORY)


def _overcommitted(name: str, resources: Resources, cpu: str, memory: str) -> ContainerAmounts | None:
    """The amounts of one tier's CPU and memory in these resources; None if there are none."""
    stated = {*resources.requests, *resources.limits}
    if not stated & {cpu, memory}:
        return None

    def value(quantities: Mapping[str, str | int | float], key: str) -> int | None:
        return parse_value(quantities[key]) if key in quantities else None

    return ContainerAmounts(
        name=name,
        request_cpu_milli=value({**resources.limits, **resources.requests}, cpu),
        limit_cpu_milli=value(resources.limits, cpu),
        limit_memory_bytes=value(resources.limits, memory),
        request_memory_bytes=value({**resources.limits, **resources.requests}, memory),
    )


def _extended(annotations: Mapping[str, str], problems: list[str]) -> dict[str, Resources]:
    text = annotations.get(ANNOTATION_EXTENDED_RESOURCE_SPEC)
    if text is None:
        return {}
    try:
        found = msgspec.json.decode(text, type=_ExtendedSpec).containers
        for name in sorted(found):
            _batch(name, found[name])
    except (msgspec.MsgspecError, QuantityError) as error:
        problems.append(f"annotation {ANNOTATION_EXTENDED_RESOURCE_SPEC}: {error}")
        return {}
    return found


def _allocated(annotations: Mapping[str, str], problems: list[str]) -> tuple[frozenset[int], tuple[int, ...]]:
    """The pod's own CPUs, and the NUMA nodes that it has CPU of."""
    try:
        status = resource_status(annotations)
        return frozenset(parse_cpu_list(status.cpuset)), status.cpu_nodes
    except ValueError as error:
        text = str(error)
        where = f"annotation {ANNOTATION_RESOURCE_STATUS}: "
        problems.append(text if text.startswith(where) else f"{where}{text}")
        return frozenset(), ()
