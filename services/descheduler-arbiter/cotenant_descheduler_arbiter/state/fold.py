"""The state, folded from the last message of each subject: nodes, jobs, answers, streaks; pods are in `pods`.

An unreadable object counts as absent and is listed in `refused`; it never stops the service.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.api.objects.node import Node, decode_node
from cotenant.api.objects.policies import PodMigrationJob, PriorityClassObject
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.descheduling import DeschedulingCycle
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, Migration, NodeLoadJudged
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus, RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, Waiting
from cotenant.model.names import CPU, MEMORY
from cotenant.model.subjects import tokens
from cotenant_descheduler_arbiter.state.known import Known, keep
from cotenant_descheduler_arbiter.state.pods import PodFold
from cotenant_descheduler_arbiter.state.reservations import Reservations

FILTERS = (
    "objects.core.nodes.>",
    "objects.core.pods.>",
    "objects.scheduling%2Ekoordinator%2Esh.podmigrationjobs.>",
    "objects.scheduling%2Ek8s%2Eio.priorityclasses.>",
    "metrics.>",
    "node.*.executor",
    "node.*.resources",
    "node.*.condition",
    "node.*.placement.>",
    "objects.scheduling%2Ekoordinator%2Esh.reservations.>",
    "node.*.reservation.*",
    "reservations.*",
    "node.*.run.>",
    "waiting.>",
    "evictions.>",
    "migrations.>",
    "descheduling.>",
)
"""Subjects that the service reads from LOG, including its own."""

_JOB_DECODER = msgspec.json.Decoder(PodMigrationJob)
_PRIORITY_DECODER = msgspec.json.Decoder(PriorityClassObject)


class ClusterFold:
    """A fold over the last message of each subject."""

    def __init__(self) -> None:
        self.nodes: dict[str, Known[Node]] = {}
        self.executors: dict[str, Known[ExecutorStatus]] = {}
        self.resources: dict[str, Known[NodeResources]] = {}
        self.metrics: dict[str, Known[NodeMetricComputed]] = {}
        self.conditions: dict[str, Known[NodeCondition]] = {}
        self.judged: dict[str, Known[NodeLoadJudged]] = {}
        self.cycles: dict[str, Known[DeschedulingCycle]] = {}
        """The last cycle of each profile."""
        self.outcomes: dict[str, Known[EvictionOutcome]] = {}
        self.jobs: dict[str, Known[Migration]] = {}
        self.job_objects: dict[str, Known[PodMigrationJob]] = {}
        self.nominated: dict[str, Known[Waiting]] = {}
        """Waiting pods with a nomination, by `namespace/name`."""
        self.priority_classes: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self.pods = PodFold(self._refused)
        self._usage: dict[str, dict[str, int]] = {}
        self.version = 0
        """Increases with every event that changed state; `pods.version` with objects, placements and runs of pods."""
        self.tainted: dict[str, datetime] = {}
        """When a node of each zone was tainted last, by the conditions and their tombstones."""
        self._changed_nodes: set[str] = set()
        """Nodes with an event other than their pods' since the last `take_changed_nodes`."""
        self.job_version = 0
        """Increases with every event of jobs, users' jobs and nominations."""
        self.reservations = Reservations()
        self._reserving: set[str] = set()
        """Names of the reservations of jobs."""
        self._sequences = LastSequences()

    def apply(self, event: Event) -> None:
        """Fold one event."""
        if not self._sequences.is_new(event):
            return
        data = event.data
        if type(data) is RunStatus:
            self.pods.run(data, event.tombstone)
        elif type(data) is Placement:
            self.pods.placement(data, event.tombstone)
        else:
            self._apply_fact(event)

    def _apply_fact(self, event: Event) -> None:
        parts = tokens(event.subject)
        if parts[0] == "waiting" and len(parts) == 3 and not self._concerns_nominations(event, parts):
            return
        if self._refused:
            self._refused.pop(event.subject, None)
        try:
            match parts:
                case ("objects", "core", "pods", namespace, name):
                    self.pods.object_stored(event, f"{namespace}/{name}")
                    return
                case (
                    ("objects", "scheduling.koordinator.sh", "reservations", _, name)
                    | ("node", _, "reservation", name)
                    | ("reservations", name)
                ):
                    if not self._reservation(event, parts, name):
                        return
                case ("metrics", _) | ("node", _, "executor" | "resources" | "condition"):
                    self._node_fact(event, parts)
                case ("objects", "core", "nodes", _, name):
                    self._node(event, name)
                case ("objects", "scheduling.koordinator.sh", "podmigrationjobs", _, name):
                    self.job_version += 1
                    self._job_object(event, name)
                case ("objects", "scheduling.k8s.io", "priorityclasses", _, name):
                    self._priority_class(event, name)
                case ("waiting", _, _):
                    self.job_version += 1
                    self._waiting(event, parts)
                case ("evictions", _, _):
                    self._outcome(event, parts)
                case ("migrations", _):
                    self.job_version += 1
                    self._migration(event, parts)
                case ("descheduling", _):
                    self._judgement(event, parts)
                case ("descheduling", "cycles", _):
                    keep(self.cycles, parts[2], event.data if isinstance(event.data, DeschedulingCycle) else None, event)
        except (msgspec.DecodeError, ValueError) as error:
            # The gateway refuses such an object; one from another writer must not block all other moves.
            self._refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"
        self.version += 1

    # -- objects -------------------------------------------------------------------------------------------------

    def _node(self, event: Event, name: str) -> None:
        self._changed_nodes.add(name)
        self.nodes.pop(name, None)
        if not event.tombstone and isinstance(event.data, ObjectStored):
            self.nodes[name] = Known(decode_node(event.data.object), event.sequence)

    def _job_object(self, event: Event, name: str) -> None:
        self.job_objects.pop(name, None)
        if not event.tombstone and isinstance(event.data, ObjectStored):
            declared = _JOB_DECODER.decode(event.data.object)
            # The uid distinguishes a user's job from a plugin's: without it the job would be accepted again forever.
            if declared.metadata.uid:
                self.job_objects[name] = Known(declared, event.sequence)

    def _priority_class(self, event: Event, name: str) -> None:
        self.priority_classes.pop(name, None)
        if not event.tombstone and isinstance(event.data, ObjectStored):
            self.priority_classes[name] = _PRIORITY_DECODER.decode(event.data.object).value

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _node_fact(self, event: Event, parts: tuple[str, ...]) -> None:
        data, name = event.data, parts[1]
        self._changed_nodes.add(name)
        if parts[0] == "metrics":
            self._usage.pop(name, None)
            self.metrics.pop(name, None)
            if isinstance(data, NodeMetricComputed):
                _check_zone("updateTime", data.update_time)
                _check_zone("unknownSince", data.unknown_since)
            keep(self.metrics, name, data if isinstance(data, NodeMetricComputed) else None, event)
        elif parts[2] == "executor":
            keep(self.executors, name, data if isinstance(data, ExecutorStatus) else None, event)
        elif parts[2] == "resources":
            keep(self.resources, name, data if isinstance(data, NodeResources) else None, event)
        else:
            condition = data if isinstance(data, NodeCondition) else None
            if condition is not None and condition.tainted_at is not None:
                _check_zone("taintedAt", condition.tainted_at)
                self.tainted[condition.zone] = max(condition.tainted_at, self.tainted.get(condition.zone, condition.tainted_at))
            keep(self.conditions, name, condition, event)

    def _judgement(self, event: Event, parts: tuple[str, ...]) -> None:
        self._changed_nodes.add(parts[1])
        keep(self.judged, parts[1], event.data if isinstance(event.data, NodeLoadJudged) else None, event)

    def _concerns_nominations(self, event: Event, parts: tuple[str, ...]) -> bool:
        """Whether the event changes nominations; most waiting pods have none, before and after."""
        named = isinstance(event.data, Waiting) and event.data.nomination is not None and not event.tombstone
        return named or f"{parts[1]}/{parts[2]}" in self.nominated

    def _waiting(self, event: Event, parts: tuple[str, ...]) -> None:
        data = event.data if isinstance(event.data, Waiting) and event.data.nomination is not None else None
        keep(self.nominated, f"{parts[1]}/{parts[2]}", data, event)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _reservation(self, event: Event, parts: tuple[str, ...], name: str) -> bool:
        """Returns whether a job has it: nothing else depends on reservations."""
        if parts[0] == "objects":
            self.reservations.object_stored(event, name)
        elif parts[0] == "node":
            self.reservations.share(event, name, parts[1])
        else:
            self.reservations.status(event, name)
        concerns = name in self._reserving
        self.job_version += concerns
        return concerns

    def _outcome(self, event: Event, parts: tuple[str, ...]) -> None:
        data = event.data if isinstance(event.data, EvictionOutcome) else None
        keep(self.outcomes, f"{parts[1]}/{parts[2]}", data, event)

    def _migration(self, event: Event, parts: tuple[str, ...]) -> None:
        job = event.data if isinstance(event.data, Migration) else None
        if job is not None and job.reservation:
            if event.tombstone:
                self._reserving.discard(job.reservation)
            else:
                self._reserving.add(job.reservation)
        keep(self.jobs, parts[1], job, event)

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def refused(self) -> dict[str, str]:
        """By subject, why its object is not used."""
        self.pods.objects.decode_all()
        return self._refused

    def take_changed_nodes(self) -> set[str]:
        """Return the nodes with an event other than their pods' since the last call."""
        changed, self._changed_nodes = self._changed_nodes, set()
        return changed

    def measured_usage(self, node: str) -> dict[str, int]:
        """Return the total usage in the node's metric: system, host applications and pods."""
        if node not in self._usage:
            metric = self.metrics[node].value
            parts = [metric.system_usage]
            parts += [pod.usage for pod in metric.pods]
            parts += [application.usage for application in metric.host_applications]
            self._usage[node] = {
                CPU: sum(part.cpu_milli for part in parts),
                MEMORY: sum(part.memory_bytes for part in parts),
            }
        return self._usage[node]

def _check_zone(field: str, at: datetime | None) -> None:
    if at is not None and at.tzinfo is None:
        raise ValueError(f"{field} {at.isoformat()} has no time zone")
