"""Promise 24: the head of the queue is not starved by those behind it.

Read from manifests, waiting events and placements, by code that shares nothing with the scheduler's. Chaos runs leave the order
as it is by default: by priority, creation time, namespace and name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, Waiting
from cotenant.model.subjects import pod_subject, waiting_subject
from cotenant_verification.bench.audit.rooms import Need, need_of
from cotenant_verification.checks.filters import Filters
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.needs import gates_of
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.filters import placements_before
from cotenant_verification.promises.gangs import gang_of
from cotenant_verification.promises.placements import new_placements

STARTS_WITHIN = timedelta(seconds=30)
"""Of the first state that it fits."""
OF_THE_POD = frozenset({"quota", "gated", "malformed", "predecessor", "node-missing", "group"})
"""Reasons to wait that are about no node."""
Order = tuple[int, str, str, str]


def what_is_kept_is_not_taken(view: LogView, seen: CommitSeen) -> Wrong:
    """A commit that leaves a pod waiting with room kept on a node places nobody there who stands behind it in the queue, unless
    both fit beside what is there, in everything that the newcomer requests."""
    if seen.service != "scheduler":
        return
    fresh = new_placements(seen)
    kept = list(_kept(view)) if fresh else []
    if not kept:
        return
    filters = Filters(view, view.needs, seen.commit.folded, placements_before(view, seen))
    for event in fresh:
        placement = event.data
        assert isinstance(placement, Placement)
        need, node = view.needs.placed(placement), placement.node
        order = _order(decode_pod(placement.pod))
        rooms = [room for room in kept if room.node == node and room.order < order]
        facts = filters.facts.get(node)
        if rooms and facts is not None and not view.shares.get(node):
            taken = Counter(need.requests)
            for other, _ in filters.room(node).pods.values():
                taken.update(other.requests)
            for room in rooms:
                taken.update(room.need.requests)
            offered = facts.allocatable()
            short = [name for name, amount in sorted(need.requests.items()) if amount and taken[name] > offered.get(name, 0)]
            if short:
                yield event.subject, f"{event.ref} takes {short[0]} on {node} that is kept for {'/'.join(rooms[0].order[2:])}"
        filters.add(need, placement)


def the_head_starts_once_it_fits(view: LogView, seen: CommitSeen) -> Wrong:
    """A pod that is first in the queue, and that some node takes as far as a commit knows, has a place 30 s later."""
    if seen.service != "scheduler":
        return
    waiting = [(_order(pod), pod) for pod in _waiting(view)]
    pod = min(waiting, key=lambda found: found[0])[1] if waiting else None
    if pod is None or not _is_plain(view, pod):
        view.head_fits = None
        return
    meta, known = pod.metadata, view.head_fits
    if known is None or known[0] != meta.uid:
        filters = Filters(view, view.needs, seen.commit.folded, placements_before(view, seen))
        judge, promised = filters.judge(need_of(pod, ""), seen.commit.now), _promised(view)
        free = (node for node in filters.facts if node not in promised and not view.shares.get(node))
        view.head_fits = (meta.uid, seen.commit.now) if any(not judge(node) for node in free) else None
    elif seen.commit.now > known[1] + STARTS_WITHIN:
        yield pod_subject(meta.namespace, meta.name), (
            f"{meta.namespace}/{meta.name} is first in the queue, fits since {known[1]:%H:%M:%S} and waits at "
            f"{seen.commit.now:%H:%M:%S}"
        )


class _Kept(msgspec.Struct, frozen=True):
    """A room: where, for whom, and its place in the queue."""

    node: str
    need: Need
    order: Order


def _kept(view: LogView) -> Iterator[_Kept]:
    for subject, event in view.last.items():
        data = event.data
        if not subject.startswith("waiting.") or not isinstance(data, Waiting) or data.hold is None:
            continue
        stored = view.last.get(pod_subject(data.namespace, data.name))
        if stored is not None and isinstance(stored.data, ObjectStored) and not view.places[data.uid]:
            pod = decode_pod(stored.data.object)
            if pod.metadata.uid == data.uid:
                yield _Kept(data.hold.node, need_of(pod, ""), _order(pod))


def _waiting(view: LogView) -> Iterator[Pod]:
    """The pods without a place that the scheduler tries, as far as can be told."""
    ended = {uid for _, uid in view.ended_runs}
    for (namespace, name), head in view.pods.items():
        meta = head.metadata
        if view.places[meta.uid] or meta.deletion_timestamp is not None or meta.uid in ended:
            continue
        pod = view.pod(namespace, name)
        if not pod.spec.node_name:
            yield pod


def _is_plain(view: LogView, pod: Pod) -> bool:
    """Whether a pod waits for nodes and nothing else, and alone."""
    meta = pod.metadata
    stored = view.last[pod_subject(meta.namespace, meta.name)].data
    event = view.last.get(waiting_subject(meta.namespace, meta.name))
    said = event.data if event is not None else None
    assert isinstance(stored, ObjectStored)
    return (
        isinstance(said, Waiting)
        and not gates_of(stored.object)
        and not gang_of(stored.object)[0]
        and not meta.labels.get(LABEL_QUOTA)
        and not (pod.spec.affinity or pod.spec.topology_spread_constraints)
        and ANNOTATION_AFFINITY not in meta.annotations
        and not any(reason.code in OF_THE_POD for reason in said.reasons)
    )


def _promised(view: LogView) -> set[str]:
    waiting = (event.data for event in view.last.values() if isinstance(event.data, Waiting))
    return {data.nomination.node for data in waiting if data.nomination is not None}


def _order(pod: Pod) -> Order:
    meta = pod.metadata
    return (-(pod.spec.priority or 0), meta.creation_timestamp or "", meta.namespace, meta.name)
