"""The columns of pods. Source of the STATUS word: kubectl's printPod."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout, wide
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.snapshots import Snapshot
from cotenant.model.names import LABEL_QOS_CLASS


class _State(View, frozen=True, kw_only=True):
    reason: str = ""
    exit_code: int = 0


class _ContainerStatus(View, frozen=True, kw_only=True):
    ready: bool = False
    restart_count: int = 0
    state: dict[str, _State] = {}


class _Container(View, frozen=True, kw_only=True):
    name: str = ""


class _Spec(View, frozen=True, kw_only=True):
    containers: list[_Container] = []
    node_name: str = ""
    priority_class_name: str = ""


class _Status(View, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: list[_ContainerStatus] = []


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)


def _status_word(shown: _Shown) -> str:
    """Return the STATUS word: the phase, or a more specific reason."""
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


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    statuses = shown.status.container_statuses
    ready = sum(1 for container in statuses if container.ready)
    return (
        snapshot.address.name,
        f"{ready}/{len(shown.spec.containers)}",
        _status_word(shown),
        str(sum(container.restart_count for container in statuses)),
        age(shown.metadata.creation_timestamp, now),
        shown.status.pod_ip or "<none>",
        shown.spec.node_name or "<none>",
        snapshot.labels.get(LABEL_QOS_CLASS, "<none>"),
        shown.spec.priority_class_name or "<none>",
    )


LAYOUT = Layout(
    (
        NAME,
        Column("Ready"),
        Column("Status"),
        Column("Restarts"),
        AGE,
        *wide("IP", "Node", "QoS", "Priority Class"),
    ),
    _cells,
)
