"""core/v1 Pod = document + placement + waiting + run.

In: the pod's document and the last placement, waiting and run events that carry its uid. Out: `spec.nodeName` and the
status as kubelet and kube-scheduler would write it: phase, conditions (PodScheduled with its reason, DisruptionTarget, a
resize that is not finished), nominatedNodeName, containerStatuses, startTime, qosClass. Times are those of the events.
Annotations as Koordinator's scheduler writes them: which reservation a pod uses, and who uses a pod that acts as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from cotenant.api.definitions import KindDefinition, Subresource
from cotenant.api.kinds import Kind
from cotenant.api.objects.pod import Pod, PodSpec, decode_pod
from cotenant.api.overlay import Overlay
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.times import parse_rfc3339, rfc3339
from cotenant.domain.qos import KubeQoS, kube_qos
from cotenant.domain.reservations.names import ANNOTATION_ALLOCATED, ANNOTATION_CURRENT_OWNER
from cotenant.events.allocations import ReservationUsed
from cotenant.events.envelope import Event
from cotenant.events.migrations import PREEMPTION, TAINT_EVICTION
from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus, reports_stop
from cotenant.events.placements import Placement, PlacementPhase, Waiting, condition_message
from cotenant.kinds.pod_columns import LAYOUT
from cotenant.kinds.pod_resizing import Given, given_resources, observed_generation, resize_condition
from cotenant.model.by_identity import by_identity
from cotenant.model.names import ANNOTATION_EVICTED_BY
from cotenant.model.quantities import QuantityError

PODS = Kind("", "v1", "pods", "Pod", True, ("po",))

DISRUPTION = "DisruptionTarget"
_PHASES = {
    RunPhase.PENDING: "Pending",
    RunPhase.RUNNING: "Running",
    RunPhase.SUCCEEDED: "Succeeded",
    RunPhase.FAILED: "Failed",
    RunPhase.EVICTED: "Failed",
}


def live_placement(snapshot: Snapshot) -> Event | None:
    """Return the newest placement of this pod that has not ended."""
    return _newest(snapshot, Placement, lambda placement: placement.phase is not PlacementPhase.GONE)


def newest_run(snapshot: Snapshot) -> Event | None:
    """Return the newest run report of this pod; of one that is being deleted also the report that it was stopped."""
    found = _newest(snapshot, RunStatus)
    if found is None and snapshot.stored is not None and snapshot.stored.meta.deletion_timestamp is not None:
        stops = (event for event in snapshot.parts.values() if reports_stop(event))
        found = max(stops, key=lambda event: event.sequence, default=None)
    return found


def waiting_reason(snapshot: Snapshot) -> Event | None:
    """Return why this pod waits; None if it does not."""
    return _newest(snapshot, Waiting)


def _newest(snapshot: Snapshot, payload: type, wanted: object = None) -> Event | None:
    found: Event | None = None
    for event in snapshot.parts.values():
        if event.tombstone or not isinstance(event.data, payload):
            continue
        if callable(wanted) and not wanted(event.data):
            continue
        if found is None or event.sequence > found.sequence:
            found = event
    return found


def compose_pod(snapshot: Snapshot) -> Overlay:
    """Return what placement, waiting and run add to the pod."""
    if snapshot.stored is None:
        return Overlay()
    placed = waits = ran = None
    if snapshot.parts:
        placed, waits, ran = live_placement(snapshot), waiting_reason(snapshot), newest_run(snapshot)
    spec: dict[str, msgspec.Raw] = {}
    pod = snapshot.pod
    fields = {
        "spec.nodeName": pod.spec.node_name,
        "spec.schedulerName": pod.spec.scheduler_name,
        "spec.restartPolicy": pod.spec.restart_policy,
        "status.nominatedNodeName": "",
    }
    node, annotations = "", {}
    if placed is not None and isinstance(placed.data, Placement):
        node = placed.data.node
        spec["nodeName"] = raw(node)
        fields["spec.nodeName"] = node
        if placed.data.allocation is not None and placed.data.allocation.reservation is not None:
            annotations = _of_reservations(placed.data, placed.data.allocation.reservation)
    status: dict[str, msgspec.Raw] = {}
    phase = pod.status.phase or "Pending"
    conditions = [_scheduled(snapshot, placed, waits)]
    if pod.metadata.deletion_timestamp is not None and (by := pod.metadata.annotations.get(ANNOTATION_EVICTED_BY)):
        conditions.append(_disrupted(pod, by))
    if placed is None and waits is not None and isinstance(waits.data, Waiting) and waits.data.nomination is not None:
        status["nominatedNodeName"] = raw(waits.data.nomination.node)
        fields["status.nominatedNodeName"] = waits.data.nomination.node
    if ran is not None and isinstance(ran.data, RunStatus):
        run = ran.data
        phase = _phase(run)
        placement = placed.data if placed is not None and isinstance(placed.data, Placement) else None
        of_node = placement if placement is not None and placement.node == run.node else None
        given: Mapping[str, Given] = {}
        if of_node is not None and run.containers:
            current = of_node.object_sequence == snapshot.stored.sequence
            given = given_resources(pod, of_node, run, current=current)
            if observed := observed_generation(pod, of_node, run, current=current):
                status["observedGeneration"] = raw(observed)
            resizes = resize_condition(of_node, run)
            if resizes is not None:
                since = resizes.status.since
                conditions.append(_condition(resizes.kind, True, since, resizes.reason, resizes.status.message))
        status |= _run_status(run, given)
        conditions += _run_conditions(run, ran.time)
        if run.message:
            status["message"] = raw(run.message)
        if run.phase is RunPhase.EVICTED:
            conditions.append(_condition(DISRUPTION, True, ran.time, "TerminationByKubelet", run.message))
        reason = run.reason or ("Evicted" if run.phase is RunPhase.EVICTED else "")
        if reason:
            status["reason"] = raw(reason)
    status = {"phase": raw(phase), **status}
    if not pod.status.qos_class:
        status["qosClass"] = raw(_qos_class(pod.spec))
    fields["status.phase"] = phase
    return Overlay(annotations=annotations, spec=spec, status=status, conditions=tuple(conditions), fields=fields)


def _of_reservations(placed: Placement, used: ReservationUsed) -> dict[str, str]:
    if used.uid != placed.uid:
        _, _, name = used.name.rpartition("/")
        return {ANNOTATION_ALLOCATED: _text({"name": name, "uid": used.uid})}
    owner = placed.used_by
    if owner is None:
        return {}
    return {ANNOTATION_CURRENT_OWNER: _text({"namespace": owner.namespace, "name": owner.name, "uid": owner.uid})}


def _text(members: dict[str, str]) -> str:
    return msgspec.json.encode(members).decode()


@by_identity
def _qos_class(spec: PodSpec) -> str:
    """BestEffort where quantities cannot be read."""
    try:
        return kube_qos(Pod(spec=spec)).value
    except QuantityError:
        return KubeQoS.BEST_EFFORT.value


def _scheduled(snapshot: Snapshot, placed: Event | None, waits: Event | None) -> dict[str, str]:
    if placed is not None or snapshot.pod.spec.node_name:
        since = placed.data.bound_at if placed is not None and isinstance(placed.data, Placement) else None
        since = since or (placed.time if placed is not None else None)
        return _condition("PodScheduled", True, since)
    if waits is not None and isinstance(waits.data, Waiting):
        return _condition("PodScheduled", False, waits.time, "Unschedulable", condition_message(waits.data))
    stored = snapshot.stored
    return _condition("PodScheduled", False, stored.time if stored else None, "Pending", "not looked at yet")


def _disrupted(pod: Pod, by: str) -> dict[str, str]:
    """The condition of a pod that was evicted. `by`: who asked for it. Source of reasons and texts: Kubernetes."""
    reason, message = {
        PREEMPTION: ("PreemptionByScheduler", f"{pod.spec.scheduler_name}: preempting to accommodate a higher priority pod"),
        TAINT_EVICTION: ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
    }.get(by, ("EvictionByEvictionAPI", "Eviction API: evicting"))
    end = parse_rfc3339(pod.metadata.deletion_timestamp)
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return _condition(DISRUPTION, True, None if end is None else end - grace, reason, message)


def _condition(kind: str, holds: bool, since: datetime | None, reason: str = "", message: str = "") -> dict[str, str]:
    condition = {"type": kind, "status": "True" if holds else "False"}
    if since is not None:
        condition["lastTransitionTime"] = rfc3339(since)
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _phase(run: RunStatus) -> str:
    if run.phase in _PHASES:
        return _PHASES[run.phase]
    # Stopped on order: the exit codes of the containers decide, as with kubelet for a deleted pod.
    failed = any(container.exit_code not in (0, None) for container in run.containers)
    return "Failed" if failed else "Succeeded"


def _run_conditions(run: RunStatus, time: datetime | None) -> list[dict[str, str]]:
    ready = run.ready
    reason = ""
    if not ready:
        reason = "PodCompleted" if run.phase is RunPhase.SUCCEEDED else "ContainersNotReady"
    return [
        _condition("Initialized", True, run.started_at or time),
        _condition("ContainersReady", ready, time, reason),
        _condition("Ready", ready, time, reason),
    ]


def _run_status(run: RunStatus, given: Mapping[str, Given]) -> dict[str, msgspec.Raw]:
    status: dict[str, msgspec.Raw] = {}
    if run.started_at is not None:
        status["startTime"] = raw(rfc3339(run.started_at))
    if run.containers:
        status["containerStatuses"] = raw(
            [_container_status(container, given.get(container.name)) for container in run.containers]
        )
    return status


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str
    ready: bool
    restart_count: int
    started: bool
    state: dict[str, dict[str, str | int]]
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    allocated_resources: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    resources: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def _container_status(container: ContainerRun, given: Given | None) -> _ContainerStatus:
    detail: dict[str, str | int] = {}
    if container.state == "terminated":
        detail["exitCode"] = container.exit_code if container.exit_code is not None else 0
        detail["reason"] = container.reason or ("Completed" if not container.exit_code else "Error")
        if container.finished_at is not None:
            detail["finishedAt"] = rfc3339(container.finished_at)
    elif container.reason:
        detail["reason"] = container.reason
    if container.state != "waiting" and container.started_at is not None:
        detail["startedAt"] = rfc3339(container.started_at)
    if container.message:
        detail["message"] = container.message
    if container.state == "waiting" and "reason" not in detail:
        detail["reason"] = "ContainerCreating"
    return _ContainerStatus(
        name=container.name,
        ready=container.ready,
        restart_count=container.restarts,
        started=container.state == "running",
        state={container.state: detail},
        container_id=f"process://{container.pid}" if container.pid else "",
        allocated_resources=msgspec.UNSET if given is None or given.allocated is None else given.allocated,
        resources=msgspec.UNSET if given is None else given.resources,
    )


def _pod_of(event: Event) -> tuple[str, str]:
    """A fact about a pod names it."""
    fact = event.data
    assert isinstance(fact, (Placement, Waiting, RunStatus))
    return fact.namespace, fact.name


DEFINITION = KindDefinition(
    PODS,
    decode=decode_pod,
    decode_when_folded=True,
    compose=compose_pod,
    compose_document_alone=True,
    parts={Placement: _pod_of, Waiting: _pod_of, RunStatus: _pod_of},
    parts_carry_uid=True,
    layout=LAYOUT,
    field_labels=frozenset(
        {
            "spec.nodeName",
            "spec.schedulerName",
            "spec.restartPolicy",
            "status.phase",
            "status.nominatedNodeName",
        }
    ),
    has_status=True,
    categories=("all",),
    subresources=(
        Subresource("log", "Pod", ("get",)),
        Subresource("resize", "Pod", ("get", "patch", "update")),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
    ),
)
