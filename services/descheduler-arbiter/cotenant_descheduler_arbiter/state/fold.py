"""The state: what the log's last messages say of nodes, pods, jobs and answers, and what the rules read out of it.

In: events. Out: NodeFacts and PodFacts put together from objects, placements, runs, executors and conditions; jobs;
streaks. Where a pod is: the placement with the pod's uid that is not gone. A run or placement of another uid under the
same name is not its.

An object that cannot be read is left out and named in `refused`; it never stops the service. Pods are read when they are
asked for.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

import msgspec

from cotenant.api.objects.node import Node, decode_node
from cotenant.api.objects.policies import PodMigrationJob, PriorityClassObject
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.conditions import NodeCondition
from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed
from cotenant.events.migrations import EvictionOutcome, Migration, NodeLoadJudged
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.model.names import CPU, MEMORY
from cotenant.model.subjects import tokens
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.known import Known, keep
from cotenant_descheduler_arbiter.state.pod_cache import PodCache

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
    "node.*.run.>",
    "waiting.>",
    "evictions.>",
    "migrations.>",
    "descheduling.>",
)
"""What the service reads from LOG, its own subjects included."""

_RUN_PHASES = {
    RunPhase.PENDING: "Pending",
    RunPhase.RUNNING: "Running",
    RunPhase.SUCCEEDED: "Succeeded",
    RunPhase.FAILED: "Failed",
    RunPhase.EVICTED: "Failed",
    RunPhase.STOPPED: "Failed",
}


_GONE = PlacementPhase.GONE
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
        self.placements: defaultdict[str, dict[str, Placement]] = defaultdict(dict)
        """Node to `namespace/name` to placement."""
        self.places: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """`namespace/name` to node to uid of the placements that are not gone."""
        self.runs: defaultdict[str, dict[str, RunStatus]] = defaultdict(dict)
        """Node to `namespace/name` to what became of the pod."""
        self.outcomes: dict[str, Known[EvictionOutcome]] = {}
        self.jobs: dict[str, Known[Migration]] = {}
        self.job_objects: dict[str, Known[PodMigrationJob]] = {}
        self.nominated: dict[str, Known[Waiting]] = {}
        """`namespace/name` of waiting pods that others shall leave a node for."""
        self.priority_classes: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self.pods = PodCache(self._refused)
        self._facts: dict[str, PodFacts | None] = {}
        self._usage: dict[str, dict[str, int]] = {}
        self.version = 0
        """Grows with every event that changed something, but objects, placements and runs of pods."""
        self.pod_version = 0
        """Grows with these."""
        self._changed_nodes: set[str] = set()
        """Nodes of which something but their pods was folded since `take_changed_nodes`."""
        self.job_version = 0
        """Grows with every event of jobs, users' jobs and nominations."""
        self._sequences = LastSequences()

    def apply(self, event: Event) -> None:
        """Fold one fact."""
        if not self._sequences.is_new(event):
            return
        data = event.data
        if type(data) is RunStatus:
            self._run(data, event.tombstone)
        elif type(data) is Placement:
            self._placement(data, event.tombstone)
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
                case ("objects", _, "pods", namespace, name):
                    self._pod(event, f"{namespace}/{name}")
                    return
                case ("metrics", _) | ("node", _, "executor" | "resources" | "condition"):
                    self._node_fact(event, parts)
                case ("objects", _, "nodes", _, name):
                    self._node(event, name)
                case ("objects", _, "podmigrationjobs", _, name):
                    self.job_version += 1
                    self._job_object(event, name)
                case ("objects", _, "priorityclasses", _, name):
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
        except (msgspec.DecodeError, ValueError) as error:
            # The gateway refuses such an object; one that came another way must not stop the moves of all others.
            self._refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"
        self.version += 1

    # -- objects -------------------------------------------------------------------------------------------------

    def _node(self, event: Event, name: str) -> None:
        self._changed_nodes.add(name)
        self.nodes.pop(name, None)
        if not event.tombstone and isinstance(event.data, ObjectStored):
            self.nodes[name] = Known(decode_node(event.data.object), event.sequence)

    def _pod(self, event: Event, key: str) -> None:
        self.pod_version += 1
        self._facts.pop(key, None)
        if event.tombstone or not isinstance(event.data, ObjectStored):
            self.pods.drop(key)
        else:
            self.pods.store(key, event)

    def _job_object(self, event: Event, name: str) -> None:
        self.job_objects.pop(name, None)
        if not event.tombstone and isinstance(event.data, ObjectStored):
            self.job_objects[name] = Known(_JOB_DECODER.decode(event.data.object), event.sequence)

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
            keep(self.conditions, name, data if isinstance(data, NodeCondition) else None, event)

    def _judgement(self, event: Event, parts: tuple[str, ...]) -> None:
        self._changed_nodes.add(parts[1])
        keep(self.judged, parts[1], event.data if isinstance(event.data, NodeLoadJudged) else None, event)

    def _placement(self, placed: Placement, ended: bool) -> None:
        key = f"{placed.namespace}/{placed.name}"
        self.pod_version += 1
        self._facts.pop(key, None)
        if not ended and placed.phase is not _GONE:
            self.placements[placed.node][key] = placed
            self.places[key][placed.node] = placed.uid
            return
        self.placements[placed.node].pop(key, None)
        places = self.places[key]
        places.pop(placed.node, None)
        if not places:
            del self.places[key]

    def _run(self, run: RunStatus, ended: bool) -> None:
        key = f"{run.namespace}/{run.name}"
        self.pod_version += 1
        self._facts.pop(key, None)
        if ended:
            self.runs[run.node].pop(key, None)
        else:
            self.runs[run.node][key] = run

    def _concerns_nominations(self, event: Event, parts: tuple[str, ...]) -> bool:
        """Most waiting pods are nominated nowhere, before and after: nothing follows from them."""
        named = isinstance(event.data, Waiting) and event.data.nomination is not None and not event.tombstone
        return named or f"{parts[1]}/{parts[2]}" in self.nominated

    def _waiting(self, event: Event, parts: tuple[str, ...]) -> None:
        data = event.data if isinstance(event.data, Waiting) and event.data.nomination is not None else None
        keep(self.nominated, f"{parts[1]}/{parts[2]}", data, event)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _outcome(self, event: Event, parts: tuple[str, ...]) -> None:
        data = event.data if isinstance(event.data, EvictionOutcome) else None
        keep(self.outcomes, f"{parts[1]}/{parts[2]}", data, event)

    def _migration(self, event: Event, parts: tuple[str, ...]) -> None:
        keep(self.jobs, parts[1], event.data if isinstance(event.data, Migration) else None, event)

    # -- what the rules read -------------------------------------------------------------------------------------

    @property
    def refused(self) -> dict[str, str]:
        """Subject to why its object is not used."""
        self.pods.decode_all()
        return self._refused

    def take_changed_nodes(self) -> set[str]:
        """Return the nodes of which something but their pods was folded since the last call."""
        changed, self._changed_nodes = self._changed_nodes, set()
        return changed

    def node_of(self, key: str, uid: str) -> str:
        """Return the node that the pod is placed on, or an empty text."""
        return next((node for node, placed in sorted(self.places.get(key, {}).items()) if placed == uid), "")

    def pod_facts(self, key: str) -> PodFacts | None:
        """Return what is known of a pod by `namespace/name`."""
        if key not in self._facts:
            self._facts[key] = self._read_pod(key)
        return self._facts[key]

    def _read_pod(self, key: str) -> PodFacts | None:
        known = self.pods.get(key)
        if known is None:
            return None
        pod = known.value.pod
        uid = pod.metadata.uid
        node = self.node_of(key, uid)
        run = self.runs.get(node, {}).get(key) if node else None
        if run is not None and run.uid != uid:
            run = None
        phase = _RUN_PHASES[run.phase] if run is not None else pod.status.phase
        ready = run is not None and run.phase is RunPhase.RUNNING and all(container.ready for container in run.containers)
        return PodFacts(
            pod=pod, node=node, phase=phase, ready=ready, amounts=known.value.amounts, prod=known.value.prod
        )

    def measured_usage(self, node: str) -> dict[str, int]:
        """Return everything that the node's metric knows of: system, host applications and pods."""
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

    def workload_pods(self, workload: str) -> list[PodFacts]:
        """Return the pods of a workload that have not ended, by `namespace/name`."""
        pods = (self.pod_facts(key) for key in self.pods.of_workload(workload))
        return [pod for pod in pods if pod is not None and not pod.ended]

    def pods_on(self, node: str) -> list[PodFacts]:
        """Return the pods placed on a node that have not ended, by `namespace/name`."""
        facts = []
        for key, placed in sorted(self.placements.get(node, {}).items()):
            pod = self.pod_facts(key)
            if pod is not None and pod.uid == placed.uid and not pod.ended:
                facts.append(pod)
        return facts


def _check_zone(field: str, at: datetime | None) -> None:
    if at is not None and at.tzinfo is None:
        raise ValueError(f"{field} {at.isoformat()} has no time zone")
