"""The queue's head. Promise 24: it gets the room that is reserved for it, and no pod behind it takes that. Promise 26: it
starts in the first decision on a state in which it fits.

Promise 24 is read from waiting events, placements and offers. The scheduler guarantees no more than this: once a waiting event
names a node with room reserved for the pod, pods that ran there then end, and none behind the pod adds to them.

    a commit    places a pod behind the head on such a node only beside the head's room, in every resource that it requests, and
                what reservations and nominated pods of its priority and above hold there
    when idle   a single pod with reserved room on a node, and that no filter of that node has refused for a while, beside what
                reservations and nominated pods of its priority and above hold there, is placed

The scheduler promises a start within 30 s of the first state that fits. It decides at least once a second, and each decision
tries the queue from its head. So promise 26 asks for more, of each commit: none of the first HEADS waiting pods is left without
a node while one takes it in the state decided on, with the placements of the commit, by the filters of promise 1. Left out are
pods that wait for something else than nodes (a gate, a quota, a gang, a predecessor, a reservation) or whose place depends on
other pods'; nodes with a nominated pod or reserved room; and commits so large that the decision may not have come to the end of
the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from itertools import takewhile
from typing import NamedTuple

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.gangs import gang_name
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Hold, Placement, Waiting
from cotenant.events.reservations import ReservationShare
from cotenant.model.by_identity import by_identity
from cotenant.model.subjects import executor_subject, pod_subject, waiting_subject
from cotenant_verification.bench.audit.rooms import need_of
from cotenant_verification.checks.filters import Filters
from cotenant_verification.checks.held_rooms import held_by_nominated, held_by_reservations, room_of, taken_on
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import TRACKED, LogView
from cotenant_verification.checks.needs import gates_of
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.filters import (
    JUST_NOW,
    admitted,
    nodes_with_rooms,
    now_and_before,
    placements_before,
    rooms_of,
)
from cotenant_verification.promises.gangs import in_gang
from cotenant_verification.promises.placements import new_placements
from cotenant_verification.promises.quotas import published, used_by

HEADS = 3
"""Pods at the head of the queue that promise 26 looks at."""
LARGE = 700
"""Events of a commit whose decision may have ended before the end of the queue."""
MANIFESTS = 4096
"""Pods' manifests that are remembered as read."""

Position = tuple[int, str, str, str]


class WaitingHead(NamedTuple):
    """A pod that is kept room, and the room."""

    pod: Pod
    hold: Hold


def position_of(pod: Pod) -> Position:
    """The order of the queue: priority, creation, name."""
    metadata = pod.metadata
    return -(pod.spec.priority or 0), metadata.creation_timestamp or "", metadata.namespace, metadata.name


def no_room_of_the_head_is_taken(view: LogView, seen: CommitSeen) -> Wrong:
    """A commit leaves the rooms that waiting events named before it, and still name after it."""
    if seen.service != "scheduler":
        return
    changed = {event.subject for event in seen.events}
    found = new_placements(view, seen)
    fresh = [event for event in found if isinstance(event.data, Placement) and event.data.allocation is None]
    if not fresh:
        return
    rooms = _rooms(view, changed)
    for event in fresh:
        data = event.data
        assert isinstance(data, Placement)
        heads = rooms.get(data.node, [])
        if not heads or in_gang(data.pod):
            continue
        position = position_of(view.needs.placed(data).pod)
        if any(position < position_of(head.pod) for head in heads):
            continue
        priority = view.needs.placed(data).pod.spec.priority or 0
        uids = {head.pod.metadata.uid for head in heads}
        rooms_there = [room_of(head.pod, head.hold) for head in heads]
        for _, room in held_by_nominated(view, priority):
            if room.node == data.node and room.uid not in uids and waiting_subject(room.namespace, room.name) not in changed:
                rooms_there.append(room)
        taken = taken_on(view, data.node, seen.commit.folded, rooms_there)
        offered = view.offer(data.node, seen.commit.folded)
        for resource in data.requests:
            if resource in TRACKED and taken[resource] > offered.get(resource, 0):
                names = ", ".join("/".join(_key(head.pod)) for head in heads)
                yield (
                    executor_subject(data.node),
                    f"{seen.record.ref} places {data.namespace}/{data.name} in the room that is reserved on "
                    f"{data.node} for {names}: "
                    f"{taken[resource]} {resource} of {offered.get(resource, 0)}",
                )


def _rooms(view: LogView, changed: set[str]) -> dict[str, list[WaitingHead]]:
    """By node, the pods for which room is reserved: by waiting events that this commit leaves as they are."""
    found: dict[str, list[WaitingHead]] = {}
    for subject, data in view.kept_rooms.items():
        if data.hold is None or subject in changed:
            continue
        head = view.pods.get((data.namespace, data.name))
        if head is None or head.metadata.uid != data.uid or head.metadata.deletion_timestamp is not None:
            continue
        if not view.places[data.uid]:
            found.setdefault(data.hold.node, []).append(WaitingHead(view.pod(data.namespace, data.name), data.hold))
    return found


def the_head_starts_once_it_fits(moment: Moment) -> Wrong:
    """When idle."""
    view = moment.view
    rooms = _rooms(view, set())
    if not rooms:
        return
    changed = now_and_before(moment)[2] | _nodes_with_changed_rooms(view, _since(view, moment.now - JUST_NOW))
    for node, heads in sorted(rooms.items()):
        for head, _ in heads:
            moment.counts["heads that are kept room"] += 1
            name = _key(head)
            event = view.last[waiting_subject(*name)]
            assert isinstance(event.data, Waiting)
            in_gang = gang_name(head.metadata.labels, head.metadata.annotations)
            elsewhere = in_gang or head.spec.affinity or ANNOTATION_AFFINITY in head.metadata.annotations
            if node in changed or elsewhere or _is_fresh(event.time, moment.now):
                continue
            need = need_of(head, "")
            present, earlier, _, _ = now_and_before(moment)
            for held in (*held_by_reservations(view), *held_by_nominated(view, head.spec.priority or 0)):
                present.add(*held)
                earlier.add(*held)
            if not present.judge(need, moment.now)(node) and not earlier.judge(need, moment.now - JUST_NOW)(node):
                yield event.subject, f"{name[0]}/{name[1]} has room reserved on {node}, fits there, and is not placed"


def _since(view: LogView, since: datetime) -> Iterator[Event]:
    """The events that are younger, the last one first."""
    return takewhile(lambda event: event.time is None or event.time >= since, reversed(view.log))


def _is_fresh(time: datetime | None, now: datetime) -> bool:
    return time is None or now - time < JUST_NOW


def heads_start_in_the_first_state_that_they_fit(view: LogView, seen: CommitSeen) -> Wrong:
    """On a commit of the scheduler."""
    if seen.service != "scheduler" or len(seen.events) > LARGE:
        return
    folded = seen.commit.folded
    changed = {(event.data.namespace, event.data.name) for event in seen.events if isinstance(event.data, Placement)}
    heads = sorted((pod for pod in _wait_for_nodes(view, folded) if _key(pod) not in changed), key=position_of)[:HEADS]
    held = cache(lambda at: view.charges.held(at, view.charges.published()))
    used = cache(lambda tree, at: used_by(held(at), tree, published(view, tree, at)))
    heads = [pod for pod in heads if admitted(view, pod, used, folded)]
    if not heads:
        return
    filters = Filters(view, view.needs, folded, placements_before(view, seen))
    for event in new_placements(view, seen):
        assert isinstance(event.data, Placement)
        filters.add(view.needs.placed(event.data), event.data)
    apart = nodes_with_rooms(view) | _nodes_with_changed_rooms(view, seen.events)
    for pod in heads:
        refusal = filters.judge(need_of(pod, ""), seen.commit.now)
        for node in sorted(filters.facts.keys() - apart):
            if not refusal(node):
                name = "/".join(_key(pod))
                text = f"{seen.record.ref} leaves {name}, one of the first in the queue, waiting: {node} takes it"
                yield pod_subject(*_key(pod)), text


def _key(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _wait_for_nodes(view: LogView, folded: int) -> Iterator[Pod]:
    """The pods that wait for a node alone, as of a sequence."""
    held = {key for there in view.placed.values() for key in there}
    for key, head in view.pods.items():
        if view.places[head.metadata.uid] or head.metadata.uid in view.ended_at or key in held:
            continue
        event = view.last[pod_subject(*key)]
        if event.sequence > folded or not isinstance(event.data, ObjectStored):
            continue
        pod = _if_it_needs_a_node_alone(event.data.object)
        if pod is not None and pod.metadata.uid == head.metadata.uid:
            yield pod


def _read_if_it_needs_a_node_alone(document: msgspec.Raw) -> Pod | None:
    """Return the pod of a manifest, unless it waits for something else or its place depends on other pods'."""
    pod = decode_pod(document)
    metadata, spec = pod.metadata, pod.spec
    if metadata.deletion_timestamp is not None or gates_of(document) or in_gang(document):
        return None
    elsewhere = spec.node_name or spec.affinity or spec.topology_spread_constraints or metadata.labels.get(LABEL_QUOTA)
    return None if elsewhere or ANNOTATION_AFFINITY in metadata.annotations else pod


_if_it_needs_a_node_alone = by_identity(_read_if_it_needs_a_node_alone, remembered=MANIFESTS)


def _nodes_with_changed_rooms(view: LogView, events: Iterable[Event]) -> set[str]:
    """The nodes to which a pod was nominated, or on which room was reserved, until these events or by them."""
    found: set[str] = set()
    for event in events:
        before = view.before(event)
        for data in (event.data, before.data if before is not None else None):
            if isinstance(data, ReservationShare):
                found.add(data.node)
            elif isinstance(data, Waiting):
                found.update(rooms_of(data))
    return found
