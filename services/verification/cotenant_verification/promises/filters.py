"""Promises 1 and 12: every filter holds for each placement when it is decided, and no pod waits that passes every filter.

The filters are those of the bench's independent check, which shares no code with the scheduler: room in every resource, cordon,
node selector and affinity, taints, host ports, load, affinity and anti-affinity on both sides and over namespaces, hard spread;
and scheduling gates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.quota.membership import is_preemptible
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.subjects import node_subject, pod_subject, waiting_subject
from cotenant_verification.bench.audit.rooms import need_of
from cotenant_verification.checks.filters import Filters
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.needs import gates_of
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.gangs import in_gang
from cotenant_verification.promises.placements import new_placements
from cotenant_verification.promises.quotas import published, used_by, way_up

PodKey = tuple[str, str]
"""Namespace and name."""
Used = Callable[[str, int], Mapping[str, Counter[str]]]
"""The usage of each quota of a tree, as known at a sequence."""
JUST_NOW = timedelta(seconds=10)
"""More recent changes may not have been decided on yet."""


def placements_pass_every_filter(view: LogView, seen: CommitSeen) -> Wrong:
    """No filter refuses a new placement in the state decided on: the messages about nodes and namespaces up to the commit's
    `folded`, the scheduler's own placements before it, and those before it in the commit. Pods that name a node are exempt."""
    if seen.service != "scheduler":
        return
    fresh = new_placements(view, seen)
    if not fresh:
        return
    filters = Filters(view, view.needs, seen.commit.folded, placements_before(view, seen))
    for event in fresh:
        placement = event.data
        assert isinstance(placement, Placement)
        name = f"{placement.namespace}/{placement.name}"
        if gates_of(placement.pod):
            yield event.subject, f"{event.ref} places {name}, which has scheduling gates"
        need = view.needs.placed(placement)
        refusal = filters.judge(need, seen.commit.now, placement)(placement.node)
        if refusal:
            yield event.subject, f"{event.ref} places {name} on node {placement.node}, which refuses it: {refusal}"
        filters.add(need, placement)


def placements_before(view: LogView, seen: CommitSeen) -> dict[str, list[Placement]]:
    """Node to the placements that held a place before a commit."""
    held: dict[str, Mapping[PodKey, Event]] = dict(view.placed)
    for event in seen.events:
        data = event.data
        if not isinstance(data, Placement):
            continue
        there = {key: known for key, known in held.get(data.node, {}).items() if key != (data.namespace, data.name)}
        before = view.before(event)
        stood = before.data if before is not None and not before.tombstone else None
        if before is not None and isinstance(stood, Placement) and stood.phase is not PlacementPhase.GONE:
            there[data.namespace, data.name] = before
        held[data.node] = there
    return {node: placements_of(there) for node, there in held.items()}


def placements_of(there: Mapping[PodKey, Event]) -> list[Placement]:
    """The placements that events state."""
    return [event.data for event in there.values() if isinstance(event.data, Placement)]


def no_waiting_pod_fits(moment: Moment) -> Wrong:
    """In the idle phase, every pod without a placement has a waiting event, and every node or its quota refuses it; a gated pod
    has that reason, and no other does. Nodes with a nominated pod or reserved room, and nodes that
    have just changed, are left out."""
    view = moment.view
    present, earlier, changed, left = now_and_before(moment)
    promised = nodes_with_rooms(view)
    held = cache(lambda folded: view.charges.held(folded, view.charges.published()))
    used = cache(lambda tree, folded: used_by(held(folded), tree, published(view, tree, folded)))
    for (namespace, name), head in sorted(view.pods.items()):
        uid = head.metadata.uid
        if view.places[uid] or head.metadata.deletion_timestamp is not None or uid in view.ended_at:
            continue
        subject = pod_subject(namespace, name)
        event = view.last.get(waiting_subject(namespace, name))
        if event is None or not isinstance(event.data, Waiting):
            yield subject, f"{namespace}/{name} ({uid}) has no placement and no waiting reason"
            continue
        codes = {reason.code for reason in event.data.reasons}
        stored = view.last[subject].data
        assert isinstance(stored, ObjectStored)
        gated = bool(gates_of(stored.object))
        if gated != ("gated" in codes) and moment.now - (view.last[subject].time or moment.now) > JUST_NOW:
            yield subject, f"{namespace}/{name} has {'a' if gated else 'no'} scheduling gate, but waits for {sorted(codes)}"
        pod = view.pod(namespace, name)
        if gated:
            moment.counts["waiting for a gate"] += 1
            continue
        if pod.spec.node_name:
            moment.counts["waiting for a node by name"] += 1
            declared = view.last.get(node_subject(pod.spec.node_name))
            if declared is not None and moment.now - (declared.time or moment.now) > JUST_NOW and "predecessor" not in codes:
                yield subject, f"{namespace}/{name} names node {pod.spec.node_name}, which exists, and is not placed"
            continue
        if "predecessor" in codes:
            moment.counts["waiting for its predecessor"] += 1
            continue
        if in_gang(stored.object):
            moment.counts["waiting for its gang"] += 1
            continue
        if ANNOTATION_AFFINITY in pod.metadata.annotations:
            moment.counts["waiting for a reservation"] += 1
            continue
        if pod.metadata.labels.get(LABEL_QUOTA) and left:
            moment.counts["waiting while others move"] += 1
            continue
        if not all(admitted(view, pod, used, folded) for folded in (present.folded, earlier.folded)):
            moment.counts["waiting for its quota"] += 1
            continue
        need = need_of(pod, "")
        now, before = present.judge(need, moment.now), earlier.judge(need, moment.now - JUST_NOW)
        related = bool(pod.spec.affinity or pod.spec.topology_spread_constraints)
        if related and changed:
            moment.counts["waiting while others move"] += 1
            continue
        moment.counts["waiting refused by every node"] += 1
        for node in sorted(present.facts.keys() - promised - changed):
            if not now(node) and not before(node):
                yield subject, f"{namespace}/{name} waits ({event.data.message}) although no filter of node {node} refuses it"


def now_and_before(moment: Moment) -> tuple[Filters, Filters, set[str], bool]:
    """The filters as of now and of JUST_NOW ago, with the pods placed now; nodes where pods arrived, left or ended since;
    whether any left."""
    view, since = moment.view, moment.now - JUST_NOW
    changed: set[str] = set()
    left = False
    folded = view.log[-1].sequence
    for event in reversed(view.log):
        if event.time is not None and event.time < since:
            break
        folded = event.sequence
        if isinstance(event.data, Placement | RunStatus):
            changed.add(event.data.node)
            left = left or event.tombstone
    placed = {node: placements_of(there) for node, there in view.placed.items()}
    present = Filters(view, view.needs, view.log[-1].sequence, placed)
    return present, Filters(view, view.needs, folded, placed), changed, left


def nodes_with_rooms(view: LogView) -> set[str]:
    """Return the nodes with a nominated pod, with room that is reserved for the queue's head, or with a reservation."""
    reserved = {node for node, shares in view.shares.items() if shares}
    return reserved.union(*(rooms_of(waiting) for waiting in view.kept_rooms.values()))


def rooms_of(waiting: Waiting) -> Iterator[str]:
    """The nodes with room that is kept for a waiting pod."""
    return (room.node for room in (waiting.nomination, waiting.hold) if room is not None)


def admitted(view: LogView, pod: Pod, used_by_quota: Used, folded: int) -> bool:
    """Return whether the pod's quota and its ancestors have room, for one that is not preemptible within the quota's min;
    skipped where the quota follows from the namespace."""
    label, requests = pod.metadata.labels.get(LABEL_QUOTA, ""), pod_requests(pod)
    for tree, quotas in sorted(view.charges.trees.items()):
        if any(quota.namespaces for quota in _published(quotas)):
            return False
        if label not in quotas:
            continue
        used = used_by_quota(tree, folded)
        for quota in way_up(published(view, tree, folded), label):
            for resource, most in quota.max.items():
                if used[quota.quota][resource] + requests.get(resource, 0) > min(most, quota.runtime.get(resource, most)):
                    return False
        own = published(view, tree, folded)(label)
        if own is not None and not is_preemptible(pod.metadata.labels):
            kept = _not_preemptible(view, label)
            if any(kept[resource] + requests.get(resource, 0) > least for resource, least in own.min.items()):
                return False
    return True


def _not_preemptible(view: LogView, quota: str) -> Counter[str]:
    """What the pods of a quota that are not preemptible have on nodes."""
    found: Counter[str] = Counter()
    for node, there in view.placed.items():
        for placed in placements_of(there):
            head = view.pods.get((placed.namespace, placed.name))
            labels = head.metadata.labels if head is not None and head.metadata.uid == placed.uid else {}
            named = placed.quota == quota and not is_preemptible(labels)
            if named and (node, placed.uid) not in view.ended_runs:
                found.update(placed.requests)
    return found


def _published(quotas: dict[str, Event]) -> Iterator[QuotaRuntime]:
    return (event.data for event in quotas.values() if isinstance(event.data, QuotaRuntime))
