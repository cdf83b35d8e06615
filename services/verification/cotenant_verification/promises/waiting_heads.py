"""Promise 25: the queue's head starts in the first decision on a state in which it fits.

The scheduler promises a start within 30 s of the first state in which the head fits; it decides at least once a second, and
each decision tries the queue from its head. So every commit shows it: no commit leaves one of the first HEADS waiting pods
without a node while a node takes it in the state decided on, with the placements of the commit. The filters are those of
promise 1.

Left out: pods that wait for something else than nodes (a gate, a quota, a gang, a predecessor, a reservation), or whose place
depends on other pods'; nodes with a nominated pod, or that keep room; commits so large that the decision may not have come to
the whole queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.reservations import ReservationShare
from cotenant.model.subjects import pod_subject
from cotenant_verification.bench.audit.rooms import need_of
from cotenant_verification.checks.filters import Filters
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.needs import gates_of
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.filters import admitted, nodes_with_rooms, placements_before
from cotenant_verification.promises.gangs import gang_of
from cotenant_verification.promises.queue import turn_of
from cotenant_verification.promises.quotas import published, used_by

HEADS = 3
LARGE = 700
"""Events of a commit whose decision may have ended before the end of the queue."""


def the_head_starts_in_the_first_state_that_it_fits(view: LogView, seen: CommitSeen) -> Wrong:
    """On a commit of the scheduler."""
    if seen.service != "scheduler" or len(seen.events) > LARGE:
        return
    folded = seen.commit.folded
    heads = sorted(_waiting(view, folded), key=turn_of)[:HEADS]
    if not heads:
        return
    used = cache(lambda tree, at: used_by(view, tree, at, published(view, tree, at)))
    heads = [pod for pod in heads if admitted(view, pod, used, folded)]
    filters = Filters(view, view.needs, folded, placements_before(view, seen))
    apart = nodes_with_rooms(view) | _changed_rooms(view, seen)
    for event in seen.events:
        data = event.data
        if isinstance(data, Placement) and not event.tombstone and data.phase is PlacementPhase.BOUND:
            filters.add(view.needs.placed(data), data)
    for pod in heads:
        refusal = filters.judge(need_of(pod, ""), seen.commit.now)
        for node in sorted(filters.facts.keys() - apart):
            if not refusal(node):
                namespace, name = pod.metadata.namespace, pod.metadata.name
                text = f"{seen.record.ref} leaves {namespace}/{name}, one of the first in the queue, waiting: {node} takes it"
                yield pod_subject(namespace, name), text


def _waiting(view: LogView, folded: int) -> Iterator[Pod]:
    """The pods that wait for a node alone, as of a sequence."""
    ended = {uid for _, uid in view.ended_runs}
    held = {key for there in view.placed.values() for key in there}
    for (namespace, name), head in view.pods.items():
        uid = head.metadata.uid
        if view.places[uid] or uid in ended or (namespace, name) in held:
            continue
        event = view.last[pod_subject(namespace, name)]
        if event.sequence > folded or not isinstance(event.data, ObjectStored):
            continue
        pod = decode_pod(event.data.object)
        metadata, spec = pod.metadata, pod.spec
        if metadata.uid != uid or metadata.deletion_timestamp is not None or spec.node_name or gates_of(event.data.object):
            continue
        if spec.affinity or spec.topology_spread_constraints or metadata.labels.get(LABEL_QUOTA):
            continue
        if ANNOTATION_AFFINITY not in metadata.annotations and not gang_of(event.data.object)[0]:
            yield pod


def _changed_rooms(view: LogView, seen: CommitSeen) -> set[str]:
    """The nodes that a pod was nominated to, or that kept room, until this commit."""
    found: set[str] = set()
    for event in seen.events:
        before = view.before(event)
        for data in (event.data, before.data if before is not None else None):
            if isinstance(data, ReservationShare):
                found.add(data.node)
            elif isinstance(data, Waiting):
                found.update(room.node for room in (data.nomination, data.hold) if room is not None)
    return found
