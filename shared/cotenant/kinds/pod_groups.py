"""scheduling.sigs.k8s.io/v1alpha1 PodGroup = document + status.

In: the document and the scheduler's last `podgroups.<namespace>.<name>` event of that object. Out: status, as Koordinator's
controller writes it. Validation: a minimum that is no negative number, annotations of gangs that can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.objects.pod_group import PodGroup, decode_pod_group
from cotenant.api.overlay import Overlay
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.times import rfc3339
from cotenant.api.validation.fields import FieldError, invalid, not_supported
from cotenant.domain.gangs import (
    ANNOTATION_GANG_GROUPS,
    ANNOTATION_GANG_MATCH_POLICY,
    ANNOTATION_GANG_MODE,
    GangError,
    MatchPolicy,
    Mode,
    parse_groups,
)
from cotenant.domain.network_topology import ANNOTATION_TOPOLOGY_SPEC, TopologyError, gather_rules
from cotenant.events.envelope import Event
from cotenant.events.gangs import PodGroupStatus

POD_GROUPS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup", True, ("pg", "pgs"))


def compose_pod_group(snapshot: Snapshot) -> Overlay:
    """Return what the scheduler publishes of the PodGroup."""
    for event in snapshot.parts.values():
        data = event.data
        if event.tombstone or not isinstance(data, PodGroupStatus):
            continue
        status = {"phase": raw(data.phase or "Pending")}
        counts = {"scheduled": data.scheduled, "running": data.running, "succeeded": data.succeeded, "failed": data.failed}
        status |= {name: raw(count) for name, count in counts.items() if count}
        if data.occupied_by:
            status["occupiedBy"] = raw(data.occupied_by)
        if data.schedule_start_time is not None:
            status["scheduleStartTime"] = raw(rfc3339(data.schedule_start_time))
        return Overlay(status=status)
    return Overlay()


def _of_status(event: Event) -> tuple[str, str]:
    data = event.data
    assert isinstance(data, PodGroupStatus)
    return data.namespace, data.name


def pod_group_errors(group: PodGroup) -> list[FieldError]:
    """Values that the scheduler could not use, or would silently replace by the default."""
    found: list[FieldError] = []
    if group.spec.min_member < 0:
        found.append(invalid("spec.minMember", group.spec.min_member, "must be greater than or equal to 0"))
    timeout = group.spec.schedule_timeout_seconds
    if timeout is not None and timeout < 0:
        found.append(invalid("spec.scheduleTimeoutSeconds", timeout, "must be greater than or equal to 0"))
    annotations = group.metadata.annotations
    for name, known in ((ANNOTATION_GANG_MODE, Mode), (ANNOTATION_GANG_MATCH_POLICY, MatchPolicy)):
        if name in annotations and annotations[name] not in {one.value for one in known}:
            found.append(not_supported(f"metadata.annotations[{name}]", annotations[name], [one.value for one in known]))
    if ANNOTATION_GANG_GROUPS in annotations:
        try:
            parse_groups(annotations[ANNOTATION_GANG_GROUPS])
        except GangError as error:
            place = f"metadata.annotations[{ANNOTATION_GANG_GROUPS}]"
            found.append(invalid(place, annotations[ANNOTATION_GANG_GROUPS], str(error)))
    try:
        gather_rules(annotations.get(ANNOTATION_TOPOLOGY_SPEC, ""))
    except TopologyError as error:
        place = f"metadata.annotations[{ANNOTATION_TOPOLOGY_SPEC}]"
        found.append(invalid(place, annotations[ANNOTATION_TOPOLOGY_SPEC], str(error)))
    return found


class _Spec(View, frozen=True, kw_only=True):
    min_member: int = 0


class _Status(View, frozen=True, kw_only=True):
    phase: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    status = shown.status
    return (
        snapshot.address.name,
        status.phase or "Pending",
        shown.spec.min_member,
        status.scheduled,
        status.running,
        status.succeeded,
        status.failed,
        age(shown.metadata.creation_timestamp, now),
    )


DEFINITION = KindDefinition(
    POD_GROUPS,
    decode=decode_pod_group,
    compose=compose_pod_group,
    parts={PodGroupStatus: _of_status},
    errors=lambda group, _: pod_group_errors(group),
    layout=Layout(
        (
            NAME,
            Column("Phase"),
            Column("MinMember", "integer"),
            Column("Scheduled", "integer"),
            Column("Running", "integer"),
            Column("Succeeded", "integer"),
            Column("Failed", "integer"),
            AGE,
        ),
        _cells,
    ),
    has_status=True,
)
"""Koordinator's PodGroup; `spec.minResources` is carried, as the gang's rules do not read it."""
