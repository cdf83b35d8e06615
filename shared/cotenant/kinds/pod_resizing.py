"""What a pod's status says of its resources: allocated ones, those in force, and a resize that is not finished.

In: the pod, its placement, its node's report. Out: `allocatedResources` and `resources` of each container, the conditions
PodResizePending (Deferred, Infeasible) and PodResizeInProgress, and `observedGeneration`. Source: Kubernetes, kubelet's status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from cotenant.api.objects.pod import Pod, PodSpec, decode_pod
from cotenant.api.splices import raw
from cotenant.domain.resizing import pod_with_resources
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement
from cotenant.events.resizes import ResizeState, ResizeStatus
from cotenant.model.by_identity import by_identity

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_REASONS = {ResizeState.DEFERRED: "Deferred", ResizeState.INFEASIBLE: "Infeasible"}


class Given(NamedTuple):
    """A container's resources as JSON; None where it has none."""

    allocated: msgspec.Raw | None
    resources: msgspec.Raw


def given_resources(pod: Pod, placed: Placement, run: RunStatus, *, current: bool) -> Mapping[str, Given]:
    """Return the containers' resources by name. `current`: the placement has the manifest of the object."""
    if not current:
        try:
            pod = decode_pod(placed.pod)
        except msgspec.DecodeError:
            return {}
    if placed.resize is None:
        return _given(pod.spec)
    report = run.resize
    if report is None or not report.admitted:
        return _given(pod_with_resources(pod, placed.resize.admitted).spec)
    admitted = _given(pod_with_resources(pod, report.admitted).spec)
    if not report.applied:
        return admitted
    applied = _given(pod_with_resources(pod, report.applied).spec)
    return {name: Given(admitted[name].allocated, applied[name].resources) for name in admitted}


def observed_generation(pod: Pod, placed: Placement, run: RunStatus, *, current: bool) -> int:
    """Return the generation of the pod that its node acts on: that of the placement's manifest. 0 while it asks for a resize
    that the node has not looked at. `current`: the placement has the manifest of the object."""
    if placed.resize is not None and (run.resize is None or run.resize.sequence != placed.resize.sequence):
        return 0
    if not current:
        try:
            pod = decode_pod(placed.pod)
        except msgspec.DecodeError:
            return 0
    return pod.metadata.generation


@by_identity
def _given(spec: PodSpec) -> Mapping[str, Given]:
    found: dict[str, Given] = {}
    for container in spec.containers:
        own = container.resources
        requests = {**own.limits, **own.requests}
        shown = {name: amounts for name, amounts in (("limits", own.limits), ("requests", requests)) if amounts}
        found[container.name] = Given(raw(requests) if requests else None, raw(shown))
    return found


class ResizeCondition(NamedTuple):
    """A condition that holds."""

    kind: str
    reason: str
    status: ResizeStatus


def resize_condition(placed: Placement, run: RunStatus) -> ResizeCondition | None:
    """Return the condition of a resize that the node has looked at and not finished."""
    status = run.resize
    if placed.resize is None or status is None or status.sequence != placed.resize.sequence:
        return None
    if status.state in _REASONS:
        return ResizeCondition(PENDING, _REASONS[status.state], status)
    if status.state is ResizeState.IN_PROGRESS:
        return ResizeCondition(IN_PROGRESS, "Error" if status.message else "", status)
    return None
