"""When waiting jobs start: the scheduler's own core, simulated ahead over the known ends of pods.

In: nodes, pods, PodGroups, quotas and priority classes as the API shows them, the time, the order of the queue. Out: for pods
that wait, the moment at which the scheduler places them. A pod's end is known

    by activeDeadlineSeconds, from its start on (it may end earlier), or
    by the median run time of finished pods of the same controller or gang (once it has run longer: the longest of them)
    where it is a victim of a nominated pod: after its grace period

and so is that of a pod once it is placed here. No other pod ends or arrives; measured load is not
considered. Room of reservations counts as free. So a moment is an estimate, no promise. Bounds: MOST_PODS pods,
MOST_ENDS ends, HORIZON ahead; later starts are not in the answer.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.api.times import parse_rfc3339
from cotenant.domain.gangs import gang_name
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.model.subjects import object_subject, run_subject
from cotenant_console.api.client import Document, list_at, mapping_at, text_at, value_at
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.framework.queue_args import QueueArgs, QueueOrder
from cotenant_scheduler.plugins.default_profile import SchedulerConfig

MOST_PODS = 20_000
MOST_ENDS = 1_000
HORIZON = timedelta(days=7)
DECISIONS_AT_ONCE = 200
"""Decisions for one moment; a queue that takes more is continued at the next."""
DEFAULT_GRACE_SECONDS = 30

PodKey = tuple[str, str]


class _Pod(msgspec.Struct):
    """A pod's own properties."""

    document: Document
    key: PodKey
    uid: str
    node: str
    phase: str
    family: tuple[str, str]
    """Namespace, and controller or gang; the latter empty: it is one of a kind."""
    deadline: timedelta | None
    ends: bool
    """It ends by itself."""


def starts(
    nodes: Iterable[Document],
    pods: Iterable[Document],
    others: Iterable[tuple[tuple[str, str], Document]],
    now: datetime,
    order: str = "priority",
) -> dict[PodKey, datetime]:
    """Return the moments at which pods that wait are placed. `others`: (group, plural) and document of other objects."""
    known = [_read(document) for document in pods]
    if len(known) > MOST_PODS:
        return {}
    run = _Run(known, now, SchedulerConfig(queue=QueueArgs(order=QueueOrder(order))))
    for (group, plural), document in others:
        run.declare(group, plural, document)
    for node in nodes:
        run.declare("", "nodes", node)
    return run.ahead()


class _Run:
    """One run ahead."""

    def __init__(self, pods: Sequence[_Pod], now: datetime, config: SchedulerConfig) -> None:
        self._core = SchedulerCore(config)
        self._now = now
        self._until = now + HORIZON
        self._sequence = 0
        self._pods = {pod.key: pod for pod in pods if pod.phase not in ("Succeeded", "Failed")}
        self._ran = _run_times(pods)
        self._ends: list[tuple[datetime, PodKey, str]] = []
        self._node_of: dict[PodKey, str] = {}
        self._found: dict[PodKey, datetime] = {}

    def declare(self, group: str, plural: str, document: Document) -> None:
        """Put an object on the log."""
        namespace, name = text_at(document, "metadata", "namespace"), text_at(document, "metadata", "name")
        stored = ObjectStored(object=msgspec.Raw(json.dumps(document).encode()))
        self._say(object_subject(group, plural, namespace, name), stored)

    def ahead(self) -> dict[PodKey, datetime]:
        """Return the core's placements and their times."""
        waiting = {key for key, pod in self._pods.items() if not pod.node}
        for key, pod in self._pods.items():
            if pod.node:
                self._node_of[key] = pod.node
                self._will_end(pod, self._started(pod))
        # Pods that have a node are counted there before the others are placed.
        for placed in (True, False):
            for pod in self._pods.values():
                if bool(pod.node) is placed:
                    self.declare("", "pods", pod.document)
            self._settle(waiting)
        steps = 0
        while self._ends and len(self._found) < len(waiting) and steps < MOST_ENDS:
            moment = self._ends[0][0]
            if moment > self._until:
                break
            self._now = max(self._now, moment)
            while self._ends and self._ends[0][0] <= self._now:
                _, key, node = heapq.heappop(self._ends)
                steps += self._end(key, node)
            self._settle(waiting)
        return self._found

    def _say(self, subject: str, data: Payload) -> None:
        self._sequence += 1
        self._core.apply(Event(subject=subject, data=data, time=self._now, sequence=self._sequence))

    def _end(self, key: PodKey, node: str) -> bool:
        if self._node_of.get(key) != node:
            return False  # it has ended already
        del self._node_of[key]
        namespace, name = key
        status = RunStatus(
            node=node, namespace=namespace, name=name, uid=self._pods[key].uid, phase=RunPhase.SUCCEEDED, finished_at=self._now
        )
        self._say(run_subject(node, namespace, name), status)
        return True

    def _settle(self, waiting: set[PodKey]) -> None:
        """Decide until nothing follows."""
        for _ in range(DECISIONS_AT_ONCE):
            decided = self._core.decide(self._now)
            if not decided:
                return
            stored = []
            for event in decided:
                self._sequence += 1
                stored.append(msgspec.structs.replace(event, sequence=self._sequence, time=self._now))
            for event in stored:
                self._core.apply(event)
                self._note(event, waiting)

    def _note(self, event: Event, waiting: set[PodKey]) -> None:
        data = event.data
        if event.tombstone:
            return
        if isinstance(data, Placement) and data.phase is PlacementPhase.BOUND:
            key = (data.namespace, data.name)
            if key in waiting and key not in self._found:
                self._found[key] = self._now
                self._node_of[key] = data.node
                self._will_end(self._pods[key], self._now)
        elif isinstance(data, Waiting) and data.nomination is not None:
            for victim in data.nomination.victims:
                key = (victim.namespace, victim.name)
                pod = self._pods.get(key)
                if pod is not None and key in self._node_of:
                    grace = timedelta(seconds=_grace(pod.document))
                    heapq.heappush(self._ends, (self._now + grace, key, self._node_of[key]))

    def _started(self, pod: _Pod) -> datetime:
        return parse_rfc3339(text_at(pod.document, "status", "startTime")) or self._now

    def _will_end(self, pod: _Pod, started: datetime) -> None:
        moments = [started + pod.deadline] if pod.deadline is not None else []
        ran = self._ran.get(pod.family) if pod.ends else None
        if ran:
            expected = next((started + lasts for lasts in (ran[len(ran) // 2], ran[-1]) if started + lasts > self._now), None)
            if expected is not None:
                moments.append(expected)
        if moments:
            heapq.heappush(self._ends, (max(min(moments), self._now), pod.key, self._node_of[pod.key]))


def _read(document: Document) -> _Pod:
    namespace, name = text_at(document, "metadata", "namespace"), text_at(document, "metadata", "name")
    labels = {name: str(value) for name, value in mapping_at(document, "metadata", "labels").items()}
    annotations = {name: str(value) for name, value in mapping_at(document, "metadata", "annotations").items()}
    controllers = [text_at(owner, "uid") for owner in list_at(document, "metadata", "ownerReferences")]
    seconds = value_at(document, "spec", "activeDeadlineSeconds")
    deadline = timedelta(seconds=min(seconds, 10**9)) if isinstance(seconds, int) and seconds > 0 else None
    return _Pod(
        document=document,
        key=(namespace, name),
        uid=text_at(document, "metadata", "uid"),
        node=text_at(document, "spec", "nodeName"),
        phase=text_at(document, "status", "phase", default="Pending"),
        family=(namespace, controllers[0] if controllers else gang_name(labels, annotations)),
        deadline=deadline,
        ends=text_at(document, "spec", "restartPolicy", default="Always") != "Always",
    )


def _run_times(pods: Iterable[_Pod]) -> dict[tuple[str, str], list[timedelta]]:
    """How long finished pods ran, by controller or gang, ascending."""
    found: dict[tuple[str, str], list[timedelta]] = {}
    for pod in pods:
        if pod.phase != "Succeeded" or not pod.family[1]:
            continue
        began = parse_rfc3339(text_at(pod.document, "status", "startTime"))
        ended = [
            parse_rfc3339(text_at(status, "state", "terminated", "finishedAt"))
            for status in list_at(pod.document, "status", "containerStatuses")
        ]
        last = max((moment for moment in ended if moment is not None), default=None)
        if began is not None and last is not None and last >= began:
            found.setdefault(pod.family, []).append(last - began)
    return {family: sorted(times) for family, times in found.items()}


def _grace(document: Document) -> int:
    seconds = value_at(document, "spec", "terminationGracePeriodSeconds")
    return min(max(seconds, 0), 10**6) if isinstance(seconds, int) else DEFAULT_GRACE_SECONDS
