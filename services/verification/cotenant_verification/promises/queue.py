"""Promise 24: the queue's head gets the room that is reserved for it, and no pod behind it takes that.

Read from waiting events, placements and offers. The scheduler guarantees no more than this: once a waiting event names a
node with room reserved for the pod, pods that ran there then end, and none behind the pod adds to them.

    a commit    places a pod behind the head on such a node only beside the head's room, in every resource that it requests
    when idle   a single pod with reserved room on a node, and that no filter of that node has refused for a while, is placed
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.gangs import gang_name
from cotenant.events.placements import Placement, Waiting
from cotenant.model.subjects import executor_subject, waiting_subject
from cotenant_verification.bench.audit.rooms import need_of
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import TRACKED, LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.filters import JUST_NOW, now_and_before
from cotenant_verification.promises.gangs import gang_of
from cotenant_verification.promises.placements import new_placements

Position = tuple[int, str, str, str]


def position_of(pod: Pod) -> Position:
    """The order of the queue: priority, creation, name."""
    metadata = pod.metadata
    return -(pod.spec.priority or 0), metadata.creation_timestamp or "", metadata.namespace, metadata.name


def no_room_of_the_head_is_taken(view: LogView, seen: CommitSeen) -> Wrong:
    """A commit leaves the rooms that waiting events named before it, and still name after it."""
    if seen.service != "scheduler":
        return
    changed = {event.subject for event in seen.events}
    fresh = [event for event in new_placements(seen) if isinstance(event.data, Placement) and event.data.allocation is None]
    if not fresh:
        return
    rooms = _rooms(view, changed)
    for event in fresh:
        data = event.data
        assert isinstance(data, Placement)
        heads = rooms.get(data.node, [])
        if not heads or gang_of(data.pod)[0]:
            continue
        position = position_of(view.needs.placed(data).pod)
        if any(position < position_of(head) for head in heads):
            continue
        taken: Counter[str] = Counter()
        for placed in view.held(data.node, seen.commit.folded):
            taken.update(placed.requests)
        for head in heads:
            taken.update(pod_requests(head))
        offered = view.offer(data.node, seen.commit.folded)
        for resource in data.requests:
            if resource in TRACKED and taken[resource] > offered.get(resource, 0):
                names = ", ".join(f"{head.metadata.namespace}/{head.metadata.name}" for head in heads)
                yield (
                    executor_subject(data.node),
                    f"{seen.record.ref} places {data.namespace}/{data.name} in the room that is reserved on "
                    f"{data.node} for {names}: "
                    f"{taken[resource]} {resource} of {offered.get(resource, 0)}",
                )


def _rooms(view: LogView, changed: set[str]) -> dict[str, list[Pod]]:
    """By node, the pods for which room is reserved: by waiting events that this commit leaves as they are."""
    found: dict[str, list[Pod]] = {}
    for subject, event in view.last.items():
        data = event.data
        if event.tombstone or not isinstance(data, Waiting) or data.hold is None or subject in changed:
            continue
        head = view.pods.get((data.namespace, data.name))
        if head is None or head.metadata.uid != data.uid or head.metadata.deletion_timestamp is not None:
            continue
        if not view.places[data.uid]:
            found.setdefault(data.hold.node, []).append(view.pod(data.namespace, data.name))
    return found


def the_head_starts_once_it_fits(moment: Moment) -> Wrong:
    """When idle."""
    view = moment.view
    rooms = _rooms(view, set())
    if not rooms:
        return
    present, earlier, changed, _ = now_and_before(moment)
    for node, heads in sorted(rooms.items()):
        for head in heads:
            moment.counts["heads that are kept room"] += 1
            name = (head.metadata.namespace, head.metadata.name)
            event = view.last[waiting_subject(*name)]
            assert isinstance(event.data, Waiting)
            in_gang = gang_name(head.metadata.labels, head.metadata.annotations)
            if node in changed or head.spec.affinity or in_gang or _is_fresh(event.time, moment.now):
                continue
            need = need_of(head, "")
            if not present.judge(need, moment.now)(node) and not earlier.judge(need, moment.now - JUST_NOW)(node):
                yield event.subject, f"{name[0]}/{name[1]} has room reserved on {node}, fits there, and is not placed"


def _is_fresh(time: datetime | None, now: datetime) -> bool:
    return time is None or now - time < JUST_NOW
