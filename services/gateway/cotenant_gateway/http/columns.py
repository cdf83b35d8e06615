"""The columns that `kubectl get` prints, per kind.

In: a composed object. Out: the cells of its row. Columns with priority 1 are shown with `-o wide` only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.domain.quota.names import LABEL_PARENT
from cotenant.model.names import LABEL_QOS_CLASS
from cotenant_gateway.http.ages import age
from cotenant_gateway.read_model.snapshots import Snapshot

Cell = str | int | bool | None


class Column(msgspec.Struct, frozen=True):
    """meta/v1 TableColumnDefinition."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Layout(msgspec.Struct, frozen=True):
    """Columns of a kind and how their cells are filled."""

    columns: tuple[Column, ...]
    cells: Callable[[Snapshot, datetime], Sequence[Cell]]


_NAME = Column("Name", format="name")
_AGE = Column("Age")


class _State(View, frozen=True, kw_only=True):
    reason: str = ""
    exit_code: int = 0


class _ContainerStatus(View, frozen=True, kw_only=True):
    ready: bool = False
    restart_count: int = 0
    state: dict[str, _State] = {}


class _Condition(View, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""


class _Address(View, frozen=True, kw_only=True):
    type: str = ""
    address: str = ""


class _Involved(View, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class _PodRef(View, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""


class _NodeInfo(View, frozen=True, kw_only=True):
    kubelet_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""


class _Resources(View, frozen=True, kw_only=True):
    resources: dict[str, str] = {}


class _Usage(View, frozen=True, kw_only=True):
    node_usage: _Resources = _Resources()


class _Spec(View, frozen=True, kw_only=True):
    containers: list[_Involved] = []
    node_name: str = ""
    priority_class_name: str = ""
    unschedulable: bool = False
    min: dict[str, str | int | float] = {}
    max: dict[str, str | int | float] = {}
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    pod_ref: _PodRef = _PodRef()
    ttl: str = ""
    mode: str = ""


class _StatusView(View, frozen=True, kw_only=True):
    phase: str = ""
    status: str = ""
    reason: str = ""
    node_name: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: list[_ContainerStatus] = []
    conditions: list[_Condition] = []
    addresses: list[_Address] = []
    node_info: _NodeInfo = _NodeInfo()
    allocatable: dict[str, str | int | float] = {}
    disruptions_allowed: int = 0
    used: dict[str, str | int | float] = {}
    node_metric: _Usage = _Usage()
    update_time: str = ""


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _StatusView = _StatusView()


class _ShownEvent(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: _Involved = _Involved()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 1
    last_timestamp: str | None = None


class _ShownClass(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    data: dict[str, msgspec.Raw] = {}


_SHOWN = msgspec.json.Decoder(_Shown)
_EVENT = msgspec.json.Decoder(_ShownEvent)
_CLASS = msgspec.json.Decoder(_ShownClass)


def _plain(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    head = msgspec.json.decode(snapshot.document, type=_HeadOnly)
    return snapshot.address.name, age(head.metadata.creation_timestamp, now)


class _HeadOnly(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


def pod_status(shown: _Shown) -> str:
    """Return the STATUS word: phase, or what says more about it. Source: kubectl's printPod."""
    if shown.metadata.deletion_timestamp is not None:
        return "Terminating"
    word = shown.status.reason or shown.status.phase or "Pending"
    for container in reversed(shown.status.container_statuses):
        for state, detail in container.state.items():
            if state == "waiting" and detail.reason:
                word = detail.reason
            elif state == "terminated" and shown.status.phase != "Running":
                word = shown.status.reason or detail.reason or f"ExitCode:{detail.exit_code}"
    return word


def _pod(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    statuses = shown.status.container_statuses
    ready = sum(1 for container in statuses if container.ready)
    return (
        snapshot.address.name,
        f"{ready}/{len(shown.spec.containers)}",
        pod_status(shown),
        str(sum(container.restart_count for container in statuses)),
        age(shown.metadata.creation_timestamp, now),
        shown.status.pod_ip or "<none>",
        shown.spec.node_name or "<none>",
        snapshot.labels.get(LABEL_QOS_CLASS, "<none>"),
        shown.spec.priority_class_name or "<none>",
    )


def _node(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    ready = next((item.status for item in shown.status.conditions if item.type == "Ready"), "Unknown")
    words = [{"True": "Ready", "False": "NotReady"}.get(ready, "NotReady" if ready == "Unknown" else "Unknown")]
    if shown.spec.unschedulable:
        words.append("SchedulingDisabled")
    if shown.metadata.annotations.get("cotenant.io/sandbox") == "true":
        words.append("Sandboxed")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in shown.metadata.labels if key.startswith(prefix))
    info = shown.status.node_info
    address = next((item.address for item in shown.status.addresses if item.type == "InternalIP"), "<none>")
    return (
        snapshot.address.name,
        ",".join(words),
        ",".join(roles) or "<none>",
        age(shown.metadata.creation_timestamp, now),
        info.kubelet_version,
        address,
        info.os_image or "<unknown>",
        info.kernel_version or "<unknown>",
        info.container_runtime_version or "<unknown>",
        str(shown.status.allocatable.get("kubernetes.io/batch-cpu", "<none>")),
        str(shown.status.allocatable.get("kubernetes.io/batch-memory", "<none>")),
    )


def _amounts(amounts: dict[str, str | int | float]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items())) or "<none>"


def _quota(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    return (
        snapshot.address.name,
        shown.metadata.labels.get(LABEL_PARENT, "<none>"),
        _amounts(shown.spec.min),
        _amounts(shown.spec.max),
        _amounts(shown.status.used),
        age(shown.metadata.creation_timestamp, now),
        shown.metadata.annotations.get("quota.scheduling.koordinator.sh/runtime", "<none>"),
    )


def _metric(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    usage = shown.status.node_metric.node_usage.resources
    unknown = shown.metadata.annotations.get("cotenant.io/unknown-since")
    return (
        snapshot.address.name,
        usage.get("cpu", "<unknown>"),
        usage.get("memory", "<unknown>"),
        age(shown.status.update_time, now),
        f"Unknown since {age(unknown, now)}" if unknown else "Known",
    )


def _migration(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    return (
        snapshot.address.name,
        shown.status.phase or "Pending",
        shown.status.status,
        age(shown.metadata.creation_timestamp, now),
        shown.spec.pod_ref.namespace,
        shown.spec.pod_ref.name,
        shown.spec.ttl,
        shown.status.reason,
    )


def _budget(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    minimum, maximum = shown.spec.min_available, shown.spec.max_unavailable
    return (
        snapshot.address.name,
        "N/A" if minimum is None else str(minimum),
        "N/A" if maximum is None else str(maximum),
        shown.status.disruptions_allowed,
        age(shown.metadata.creation_timestamp, now),
    )


def _namespace(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    phase = "Terminating" if shown.metadata.deletion_timestamp else shown.status.phase or "Active"
    return snapshot.address.name, phase, age(shown.metadata.creation_timestamp, now)


def _event(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _EVENT.decode(snapshot.document)
    involved = f"{shown.involved_object.kind.lower()}/{shown.involved_object.name}"
    return (
        age(shown.last_timestamp or shown.metadata.creation_timestamp, now),
        shown.type,
        shown.reason,
        involved,
        shown.message.strip(),
        shown.count,
        snapshot.address.name,
    )


def _priority_class(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _CLASS.decode(snapshot.document)
    made = age(shown.metadata.creation_timestamp, now)
    return snapshot.address.name, shown.value, shown.global_default, made, shown.preemption_policy


def _runtime_class(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _CLASS.decode(snapshot.document)
    return snapshot.address.name, shown.handler, age(shown.metadata.creation_timestamp, now)


def _config_map(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _CLASS.decode(snapshot.document)
    return snapshot.address.name, str(len(shown.data)), age(shown.metadata.creation_timestamp, now)


def _wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


PLAIN = Layout((_NAME, _AGE), _plain)

LAYOUTS: dict[str, Layout] = {
    "pods": Layout(
        (
            _NAME,
            Column("Ready"),
            Column("Status"),
            Column("Restarts"),
            _AGE,
            *_wide("IP", "Node", "QoS", "Priority Class"),
        ),
        _pod,
    ),
    "nodes": Layout(
        (
            _NAME,
            Column("Status"),
            Column("Roles"),
            _AGE,
            Column("Version"),
            *_wide("Internal-IP", "OS-Image", "Kernel-Version", "Container-Runtime", "Batch-CPU", "Batch-Memory"),
        ),
        _node,
    ),
    "elasticquotas": Layout(
        (_NAME, Column("Parent"), Column("Min"), Column("Max"), Column("Used"), _AGE, *_wide("Runtime")), _quota
    ),
    "nodemetrics": Layout((_NAME, Column("CPU"), Column("Memory"), Column("Updated"), Column("State")), _metric),
    "podmigrationjobs": Layout(
        (
            _NAME,
            Column("Phase"),
            Column("Status"),
            _AGE,
            Column("PodNamespace"),
            Column("Pod"),
            Column("TTL"),
            *_wide("Reason"),
        ),
        _migration,
    ),
    "poddisruptionbudgets": Layout(
        (_NAME, Column("Min Available"), Column("Max Unavailable"), Column("Allowed Disruptions", "integer"), _AGE), _budget
    ),
    "namespaces": Layout((_NAME, Column("Status"), _AGE), _namespace),
    "events": Layout(
        (
            Column("Last Seen"),
            Column("Type"),
            Column("Reason"),
            Column("Object"),
            Column("Message"),
            Column("Count", "integer", priority=1),
            Column("Name", format="name", priority=1),
        ),
        _event,
    ),
    "priorityclasses": Layout(
        (_NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), _AGE, Column("PreemptionPolicy")),
        _priority_class,
    ),
    "runtimeclasses": Layout((_NAME, Column("Handler"), _AGE), _runtime_class),
    "configmaps": Layout((_NAME, Column("Data"), _AGE), _config_map),
}
