"""Pods, combined from their objects, placements and runs.

In: the last event of each of these. Out: PodFacts, by `namespace/name`, by node and by workload, built on demand. A pod is on
the node of the existing placement with its uid, and counts there with the requests that the scheduler counts
(`cotenant.domain.resizing.counted_requests`). A run or placement of another uid under the same name belongs to another pod.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from cotenant.domain.resizing import counted_requests
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_descheduler_arbiter.state.facts import ContainerFacts, PodFacts
from cotenant_descheduler_arbiter.state.pod_cache import StoredPodCache

_RUN_PHASES = {
    RunPhase.PENDING: "Pending",
    RunPhase.RUNNING: "Running",
    RunPhase.SUCCEEDED: "Succeeded",
    RunPhase.FAILED: "Failed",
    RunPhase.EVICTED: "Failed",
    RunPhase.STOPPED: "Failed",
}
_GONE = PlacementPhase.GONE


class PodFold:
    """The mutable part of the fold for pods."""

    def __init__(self, refused: dict[str, str]) -> None:
        self.objects = StoredPodCache(refused)
        self.placements: defaultdict[str, dict[str, Placement]] = defaultdict(dict)
        """Placements by node and `namespace/name`."""
        self.places: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """uids of existing placements by `namespace/name` and node."""
        self.runs: defaultdict[str, dict[str, RunStatus]] = defaultdict(dict)
        """Runs by node and `namespace/name`."""
        self.version = 0
        """Increases with every event of a pod's object, placement or run."""
        self._facts: dict[str, PodFacts | None] = {}
        self._changed_on: set[str] = set()
        """Nodes with an event of their pods since the last `take_changed`."""

    def take_changed(self) -> set[str]:
        """Return the nodes with an event of their pods since the last call."""
        changed, self._changed_on = self._changed_on, set()
        return changed

    def object_stored(self, event: Event, key: str) -> None:
        """Fold a pod's object or its tombstone."""
        self.version += 1
        self._facts.pop(key, None)
        self._changed_on.update(self.places.get(key, ()))
        if event.tombstone or not isinstance(event.data, ObjectStored):
            self.objects.drop(key)
        else:
            self.objects.store(key, event)

    def placement(self, placed: Placement, ended: bool) -> None:
        """Fold a placement; `ended`: it is a tombstone."""
        key = f"{placed.namespace}/{placed.name}"
        self.version += 1
        self._facts.pop(key, None)
        self._changed_on.add(placed.node)
        if not ended and placed.phase is not _GONE:
            self.placements[placed.node][key] = placed
            self.places[key][placed.node] = placed.uid
            return
        self.placements[placed.node].pop(key, None)
        places = self.places[key]
        places.pop(placed.node, None)
        if not places:
            del self.places[key]

    def run(self, run: RunStatus, ended: bool) -> None:
        """Fold a run; `ended`: it is a tombstone."""
        key = f"{run.namespace}/{run.name}"
        self.version += 1
        self._facts.pop(key, None)
        self._changed_on.add(run.node)
        if ended:
            self.runs[run.node].pop(key, None)
        else:
            self.runs[run.node][key] = run

    def node_of(self, key: str, uid: str) -> str:
        """Return the node that the pod is placed on, or ""."""
        return next((node for node, placed in sorted(self.places.get(key, {}).items()) if placed == uid), "")

    def facts(self, key: str) -> PodFacts | None:
        """Return the facts of a pod by `namespace/name`."""
        if key not in self._facts:
            self._facts[key] = self._read_pod(key)
        return self._facts[key]

    def _read_pod(self, key: str) -> PodFacts | None:
        known = self.objects.get(key)
        if known is None:
            return None
        pod = known.value.pod
        uid = pod.metadata.uid
        node = self.node_of(key, uid)
        run = self.runs.get(node, {}).get(key) if node else None
        if run is not None and run.uid != uid:
            run = None
        amounts = known.value.amounts
        if node:
            amounts = tuple(counted_requests(self.placements[node][key], dict(amounts), known.sequence).items())
        facts = PodFacts(pod=pod, node=node, phase=pod.status.phase, amounts=amounts, prod=known.value.prod)
        if run is None:
            return facts
        init = {container.name for container in pod.spec.init_containers}
        return msgspec.structs.replace(
            facts,
            phase=_RUN_PHASES[run.phase],
            ready=run.phase is RunPhase.RUNNING and all(container.ready for container in run.containers),
            reason=run.reason,
            containers=tuple(
                ContainerFacts(each.name in init, each.restarts, each.state == "waiting", each.reason)
                for each in run.containers
            ),
        )

    def of_workload(self, workload: str) -> list[PodFacts]:
        """Return the pods of a workload that have not ended, by `namespace/name`."""
        pods = (self.facts(key) for key in self.objects.of_workload(workload))
        return [pod for pod in pods if pod is not None and not pod.ended]

    def on(self, node: str) -> list[PodFacts]:
        """Return the pods placed on a node that have not ended, by `namespace/name`."""
        return [pod for pod in self.all_on(node) if not pod.ended]

    def all_on(self, node: str) -> list[PodFacts]:
        """Return the pods placed on a node, those that have ended included, by `namespace/name`."""
        facts = []
        for key, placed in sorted(self.placements.get(node, {}).items()):
            pod = self.facts(key)
            if pod is not None and pod.uid == placed.uid:
                facts.append(pod)
        return facts
