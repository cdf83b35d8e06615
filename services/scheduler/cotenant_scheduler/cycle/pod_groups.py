"""The status of PodGroups: how many of their pods have a node, run and have ended.

In: changed gangs, the scheduler's own last statuses. Out: a `podgroups.<namespace>.<name>` event where a
status differs from the last one, at most one a PodGroup in STATUS_PAUSE; a tombstone where the PodGroup is gone. Rules:
`cotenant.domain.gangs`.

After a restart every PodGroup is checked, and one whose status is stored already stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from cotenant.api.objects.metadata import AnyObject
from cotenant.api.times import parse_rfc3339
from cotenant.domain.gangs import Members, PodGroupPhase, PodGroupState, occupied_by, synchronised
from cotenant.events.envelope import Event
from cotenant.events.gangs import PodGroupStatus
from cotenant.events.node.runs import RunPhase
from cotenant.log.contract import ending
from cotenant.model.subjects import pod_group_subject
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.gangs import Gang, GangCache, GangPod
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reservations.records import ReserveRecord

STATUS_PAUSE = timedelta(seconds=1)
STATUSES_SHARE = 100
"""Statuses of one decision at most."""

_FAILED = frozenset({RunPhase.FAILED, RunPhase.EVICTED})
_PHASES = {phase.value: phase for phase in PodGroupPhase}
"""A stored status with any other phase begins again without one."""
_OBJECT = msgspec.json.Decoder(AnyObject)


class PodGroups:
    """The last statuses, and those that follow from the gangs."""

    def __init__(self, gangs: GangCache, records: Mapping[PodKey, PodRecord]) -> None:
        self._gangs = gangs
        self._records = records
        self._last: dict[str, tuple[PodGroupStatus, datetime | None]] = {}

    def fold(self, identity: str, status: PodGroupStatus | None, at: datetime | None) -> None:
        """Take over a status; None: it has ended."""
        if status is None:
            self._last.pop(identity, None)
        else:
            self._last[identity] = (status, at)
        self._gangs.unreported.add(identity)

    def last(self, identity: str) -> tuple[PodGroupStatus, datetime | None] | None:
        """Return the last status and when it was stored."""
        return self._last.get(identity)

    def decide(self, now: datetime, limit: int) -> list[Event]:
        """Return at most `limit` statuses that are due, by name."""
        events: list[Event] = []
        for identity in sorted(self._gangs.unreported) if self._gangs.unreported else ():
            if len(events) == limit:
                break
            status, at = self._last.get(identity, (None, None))
            gang = self._gangs.gangs.get(identity)
            if gang is None or gang.pod_group is None:
                if status is None:
                    self._gangs.unreported.discard(identity)
                else:
                    events.append(ending(pod_group_subject(status.namespace, status.name), status))
                continue
            if at is not None and now < at + STATUS_PAUSE:
                continue
            following = self._status(identity, gang, status, now)
            if following == status:
                self._gangs.unreported.discard(identity)
            else:
                subject = pod_group_subject(following.namespace, following.name)
                events.append(Event(subject=subject, data=following, causes=(f"LOG:{gang.pod_group_sequence}",)))
        return events

    def _status(self, identity: str, gang: Gang, last: PodGroupStatus | None, now: datetime) -> PodGroupStatus:
        group = gang.pod_group
        assert group is not None
        namespace, _, name = identity.partition("/")
        if last is None or last.uid != group.metadata.uid:
            last = PodGroupStatus(namespace=namespace, name=name, uid=group.metadata.uid)
        least = group.spec.min_member
        members = members_of(gang)
        phase = _PHASES.get(last.phase, PodGroupPhase.NONE)
        before = PodGroupState(phase, last.scheduled, last.running, last.succeeded, last.failed, last.schedule_start_time)
        state = synchronised(before, least, members, parse_rfc3339(group.metadata.creation_timestamp), now)
        return PodGroupStatus(
            namespace=namespace,
            name=name,
            uid=last.uid,
            phase=state.phase.value,
            min_member=max(least, 0),
            pods=members.pods,
            scheduled=state.scheduled,
            running=state.running,
            succeeded=state.succeeded,
            failed=state.failed,
            schedule_start_time=state.schedule_start,
            occupied_by=last.occupied_by or self._occupied_by(namespace, gang, state.phase),
        )

    def _occupied_by(self, namespace: str, gang: Gang, phase: PodGroupPhase) -> str:
        """The owners of the oldest pod, once enough pods are there."""
        if phase in (PodGroupPhase.NONE, PodGroupPhase.PENDING) or not gang.members:
            return ""
        _, first = min((pod.created, key) for key, pod in gang.members.items())
        document = self._records[first].document
        try:
            owners = _OBJECT.decode(document).metadata.owner_references if document is not None else []
        except msgspec.DecodeError:
            return ""
        return occupied_by(namespace, [owner.name for owner in owners])


def members_of(gang: Gang) -> Members:
    """Count a gang's members."""
    pods = gang.members.values()
    return Members(
        pods=len(pods),
        scheduled=gang.bound,
        running=sum(pod.run is RunPhase.RUNNING for pod in pods),
        succeeded=sum(pod.run is RunPhase.SUCCEEDED for pod in pods),
        failed=sum(pod.run in _FAILED for pod in pods),
    )


def member_of(record: PodRecord) -> GangPod | None:
    """Return a pod as a member of the gang that it names; None for a pod that names none, or is gone."""
    facts = record.facts
    if facts is None or not facts.traits.gang or (isinstance(record, ReserveRecord) and record.finished):
        return None
    bound = bool(facts.node_name) or any(placed.data.uid == facts.uid for placed in record.placements.values())
    run = next((run.phase for run, _ in record.runs.values() if run.uid == facts.uid), None)
    return GangPod(facts.created, facts.labels, facts.annotations, bound, run)
