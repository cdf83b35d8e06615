"""Promises 1 and 2: no node is overcommitted beyond its offer, no pod is placed twice."""

from __future__ import annotations

from collections import Counter

from cotenant.events.envelope import Event
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.subjects import executor_subject
from cotenant_scheduler.cycle.endings.endings import NAMED_BY_POD
from cotenant_verification.bench.audit.acting import counted_twice
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import TRACKED, LogView
from cotenant_verification.checks.records import CommitSeen


def new_placements(view: LogView, seen: CommitSeen) -> list[Event]:
    """The placements of a commit that give a pod a node. One that an earlier commit gave, and that this one stores again at the
    same moment because the object has changed, is not new. Pods that name a node in spec.nodeName bypass the filters, as in
    Kubernetes: they are not checked here, and count for later commits."""
    return [
        event
        for event in seen.events
        if isinstance(event.data, Placement)
        and not event.tombstone
        and event.data.phase is PlacementPhase.BOUND
        and event.data.bound_at == seen.commit.now
        and not placed_unasked(seen, event.data)
        and not _is_stored_again(view.before(event), event.data)
    ]


def _is_stored_again(before: Event | None, placement: Placement) -> bool:
    """Whether the message before, if any, gave the same pod the same place."""
    stood = before.data if before is not None and not before.tombstone else None
    return (
        isinstance(stood, Placement)
        and stood.phase is PlacementPhase.BOUND
        and (stood.uid, stood.bound_at) == (placement.uid, placement.bound_at)
    )


def placed_unasked(seen: CommitSeen, placement: Placement) -> bool:
    """Whether the placement is one of this commit's for a pod that names its node."""
    return placement.reason == NAMED_BY_POD and placement.bound_at == seen.commit.now


def no_node_is_over_allocated(view: LogView, seen: CommitSeen) -> Wrong:
    """No commit places more on a node than it offered in the state decided on, in any resource that the new pods request. The
    node's offer and the pods that have ended there are as of the commit's `folded`; the scheduler's own placements up to the
    commit itself."""
    if seen.service != "scheduler":
        return
    fresh: dict[str, set[str]] = {}
    for event in new_placements(view, seen):
        assert isinstance(event.data, Placement)
        fresh.setdefault(event.data.node, {RESOURCE_PODS}).update(event.data.requests)
    for node, asked in sorted(fresh.items()):
        offered = view.offer(node, seen.commit.folded)
        used: Counter[str] = Counter()
        for placement in view.held(node, seen.commit.folded):
            if placed_unasked(seen, placement):
                continue
            used.update(placement.requests)
            used[RESOURCE_PODS] += 1
        used.subtract(counted_twice(view.held(node, seen.commit.folded)))
        for resource in TRACKED:
            if resource in asked and used[resource] > offered.get(resource, 0):
                yield (
                    executor_subject(node),
                    f"{seen.record.ref} places {used[resource]} {resource} on node {node}, which offered "
                    f"{offered.get(resource, 0)} at LOG:{seen.commit.folded}",
                )


def nobody_is_placed_twice(view: LogView, event: Event) -> Wrong:
    """A pod holds a place on at most one node at any moment."""
    data = event.data
    if isinstance(data, Placement) and not event.tombstone and len(view.places[data.uid]) > 1:
        yield event.subject, f"pod {data.namespace}/{data.name} ({data.uid}) is placed on {sorted(view.places[data.uid])}"


def places_of_ended_pods_are_released(moment: Moment) -> Wrong:
    """In the idle phase, every placement belongs to a pod that exists and is not being deleted."""
    for node, held in sorted(moment.view.placed.items()):
        for (namespace, name), event in sorted(held.items()):
            assert isinstance(event.data, Placement)
            pod = moment.view.pods.get((namespace, name))
            if pod is None or pod.metadata.uid != event.data.uid:
                yield event.subject, f"node {node} still has a placement of {namespace}/{name}, which has ended"
            elif pod.metadata.deletion_timestamp is not None:
                yield event.subject, f"{namespace}/{name} is being deleted and still placed on {node}"
