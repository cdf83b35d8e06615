"""The columns of nodes. Source of the STATUS words: kubectl's printNode."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout, wide
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.snapshots import Snapshot
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY

CONDITION_ZONE_DISRUPTED = "ZoneDisrupted"
ANNOTATION_UNMEASURED = "cotenant.io/unmeasured"
"""What the node's machine cannot measure, with the reasons, as JSON."""


class _Condition(View, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""


class _Address(View, frozen=True, kw_only=True):
    type: str = ""
    address: str = ""


class _NodeInfo(View, frozen=True, kw_only=True):
    kubelet_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""


class _Spec(View, frozen=True, kw_only=True):
    unschedulable: bool = False


class _Status(View, frozen=True, kw_only=True):
    conditions: list[_Condition] = []
    addresses: list[_Address] = []
    node_info: _NodeInfo = _NodeInfo()
    allocatable: dict[str, str | int | float] = {}


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    ready = next((item.status for item in shown.status.conditions if item.type == "Ready"), "Unknown")
    words = [{"True": "Ready", "False": "NotReady"}.get(ready, "NotReady" if ready == "Unknown" else "Unknown")]
    if any(item.type == CONDITION_ZONE_DISRUPTED for item in shown.status.conditions):
        words.append(CONDITION_ZONE_DISRUPTED)
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
        *(str(shown.status.allocatable.get(name, "<none>")) for name in (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)),
        _unmeasured(shown.metadata.annotations.get(ANNOTATION_UNMEASURED)),
    )


def _unmeasured(annotation: str | None) -> str:
    """Return the names of an annotation that anyone may have written."""
    if annotation is None:
        return "<none>"
    try:
        return ",".join(sorted(msgspec.json.decode(annotation, type=dict[str, str]))) or "<none>"
    except msgspec.DecodeError:
        return "<unknown>"


LAYOUT = Layout(
    (
        NAME,
        Column("Status"),
        Column("Roles"),
        AGE,
        Column("Version"),
        *wide("Internal-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        *wide("Batch-CPU", "Batch-Memory", "Mid-CPU", "Mid-Memory", "Unmeasured"),
    ),
    _cells,
)
"""What `kubectl get nodes` prints."""
