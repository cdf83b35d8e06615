"""Promise 17: preemption ends only pods of a lower priority, for pods that may preempt, and only if that makes room."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Nomination, Placement, PlacementPhase, Waiting
from cotenant.model.names import LABEL_PREEMPTION_POLICY
from cotenant.model.subjects import pod_subject
from cotenant_verification.bench.audit.rooms import need_of
from cotenant_verification.checks.filters import Filters
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.filters import placements_before


def victims_are_of_lower_priority(view: LogView, seen: CommitSeen) -> Wrong:
    """A nominated pod may preempt, and each victim's priority is lower."""
    for waiting, nomination, pod in _nominated(view, seen):
        subject, name = pod_subject(waiting.namespace, waiting.name), f"{waiting.namespace}/{waiting.name}"
        policy = pod.metadata.labels.get(LABEL_PREEMPTION_POLICY, pod.spec.preemption_policy)
        if policy == "Never" and nomination.victims:
            yield subject, f"{seen.record.ref} nominates victims for {name}, whose preemption policy is Never"
        for victim in nomination.victims:
            stored = view.last.get(pod_subject(victim.namespace, victim.name))
            other = decode_pod(stored.data.object) if stored is not None and isinstance(stored.data, ObjectStored) else None
            if other is None or other.metadata.uid != victim.uid:
                continue
            if (other.spec.priority or 0) >= (pod.spec.priority or 0):
                yield subject, (
                    f"{seen.record.ref} nominates the victim {victim.namespace}/{victim.name} of priority "
                    f"{other.spec.priority} for {name}, "
                    f"whose priority is {pod.spec.priority}"
                )


def victims_make_room(view: LogView, seen: CommitSeen) -> Wrong:
    """Without the victims, and without pods that are leaving anyway, no filter of the node refuses the nominated pod."""
    nominated = list(_nominated(view, seen))
    if not nominated:
        return
    before = placements_before(view, seen)
    leaving = {
        victim.uid
        for waiting in (*view.kept_rooms.values(), *(event.data for event in seen.events))
        if isinstance(waiting, Waiting) and waiting.nomination is not None
        for victim in waiting.nomination.victims
    }
    staying = {
        node: [each for each in there if each.uid not in leaving and not _ends(view, each)] for node, there in before.items()
    }
    filters = Filters(view, view.needs, seen.commit.folded, staying)
    for waiting, nomination, pod in nominated:
        refusal = filters.judge(need_of(pod, ""), seen.commit.now)(nomination.node)
        if refusal:
            name = f"{waiting.namespace}/{waiting.name}"
            yield pod_subject(waiting.namespace, waiting.name), (
                f"{seen.record.ref} nominates victims on node {nomination.node} for {name}, which does not fit "
                f"without them either: {refusal}"
            )


def _nominated(view: LogView, seen: CommitSeen) -> Iterator[tuple[Waiting, Nomination, Pod]]:
    """Pods that a commit gives a nomination."""
    for event in seen.events if seen.service == "scheduler" else ():
        data = event.data
        if not isinstance(data, Waiting) or event.tombstone or data.nomination is None or data.nomination.at != seen.commit.now:
            continue
        stored = view.last.get(pod_subject(data.namespace, data.name))
        if stored is not None and isinstance(stored.data, ObjectStored):
            pod = decode_pod(stored.data.object)
            if pod.metadata.uid == data.uid:
                yield data, data.nomination, pod


def _ends(view: LogView, placement: Placement) -> bool:
    pod = view.pods.get((placement.namespace, placement.name))
    gone = pod is None or pod.metadata.uid != placement.uid or pod.metadata.deletion_timestamp is not None
    return gone or placement.phase is PlacementPhase.TERMINATING
