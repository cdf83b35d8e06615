"""Promise 27: pods are resized within what their node has, and what is counted covers what they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cotenant.api.objects.pod import decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.resizing import Stated, larger, pod_with_resources
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement
from cotenant.events.resizes import ResizeState
from cotenant.model.subjects import executor_subject, placement_subject, resources_subject, run_subject
from cotenant_scheduler.cycle.endings.endings import NAMED_BY_POD
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import TRACKED, LogView

_ADMITTED = frozenset({ResizeState.IN_PROGRESS, ResizeState.DONE})


def admitted_resizes_fit(view: LogView, event: Event) -> Wrong:
    """When a node reports that it has admitted more for a pod, all its pods together have no more than it offered at any moment
    since the resize was stored: the executor decides on one of these."""
    data = event.data
    if event.tombstone or not isinstance(data, RunStatus) or data.resize is None or data.resize.state not in _ADMITTED:
        return
    placed = view.placed[data.node].get((data.namespace, data.name))
    before = view.before(event)
    reported = before.data.resize if before is not None and isinstance(before.data, RunStatus) else None
    if placed is None or not isinstance(placed.data, Placement) or placed.data.uid != data.uid or placed.data.resize is None:
        return
    known = reported is not None and reported.admitted == data.resize.admitted
    if known or data.resize.sequence != placed.data.resize.sequence:
        return
    had = _with(placed.data, reported.admitted if reported is not None and reported.admitted else placed.data.resize.admitted)
    has = _with(placed.data, data.resize.admitted)
    grows = [name for name in TRACKED if has.get(name, 0) > had.get(name, 0)]
    offered = _offered(view, data.node, data.resize.sequence, event.sequence) if grows else {}
    used: Counter[str] = Counter()
    for placement in view.held(data.node, event.sequence) if grows else ():
        if (data.node, placement.uid) in view.stopped:
            continue
        if placement.reason != NAMED_BY_POD or run_subject(data.node, placement.namespace, placement.name) in view.last:
            used.update(admitted(view, placement))
    for name in grows:
        if used[name] > offered.get(name, 0):
            yield (
                event.subject,
                f"{event.ref} admits {has[name]} {name} for {data.namespace}/{data.name}: {used[name]} are admitted on "
                f"{data.node}, which offered at most {offered.get(name, 0)} since LOG:{data.resize.sequence}",
            )


def what_is_counted_covers_what_is_admitted(view: LogView, event: Event) -> Wrong:
    """A placement never counts less of cpu and memory than the pod has: by the node's last report on a resize, or, before the
    first, by what the placement says that the node admitted."""
    data = event.data
    if event.tombstone or not isinstance(data, Placement | RunStatus):
        return
    report = view.last.get(run_subject(data.node, data.namespace, data.name))
    placed = view.last.get(placement_subject(data.node, data.namespace, data.name))
    if report is None or placed is None or not isinstance(report.data, RunStatus) or not isinstance(placed.data, Placement):
        return
    run, placement = report.data, placed.data
    if run.uid != placement.uid or run.phase.terminal or placement.resize is None:
        return
    held = placement.resize.admitted
    if run.resize is not None:
        held = larger(run.resize.admitted, run.resize.applied) if run.resize.applied else run.resize.admitted
    for name, amount in _with(placement, held).items():
        counted = placement.requests.get(name, 0)
        if counted < amount:
            yield event.subject, f"{data.namespace}/{data.name} has {amount} {name} on {data.node}, and counts {counted}"


def admitted(view: LogView, placement: Placement) -> Mapping[str, int]:
    """What the node has admitted a pod with, by its last report."""
    if placement.resize is None:
        return placement.requests
    event = view.last.get(run_subject(placement.node, placement.namespace, placement.name))
    run = event.data if event is not None and isinstance(event.data, RunStatus) else None
    reported = run.resize.admitted if run is not None and run.uid == placement.uid and run.resize is not None else ()
    return _with(placement, reported or placement.resize.admitted)


def was_resized(view: LogView, placement: Placement) -> bool:
    """Whether the pod of a placement is being resized, or was."""
    event = view.last.get(run_subject(placement.node, placement.namespace, placement.name))
    run = event.data if event is not None and isinstance(event.data, RunStatus) else None
    return placement.resize is not None or (run is not None and run.uid == placement.uid and run.resize is not None)


def _with(placement: Placement, resources: Stated) -> dict[str, int]:
    return pod_requests(pod_with_resources(decode_pod(placement.pod), resources))


def _offered(view: LogView, node: str, since: int, until: int) -> dict[str, int]:
    """The most that a node offered of each resource between two sequences."""
    moments = {since, until}
    for subject in (executor_subject(node), resources_subject(node)):
        moments.update(event.sequence for event in view.versions[subject] if since < event.sequence < until)
    most: dict[str, int] = {}
    for moment in sorted(moments):
        for name, amount in view.offer(node, moment).items():
            most[name] = max(most.get(name, 0), amount)
    return most
