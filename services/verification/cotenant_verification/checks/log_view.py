"""The checks' view of the log: every event in order, and the tables derived from them, independently of the services.

In: events as they are stored, acknowledgements of the gateways. Out: the tables that invariants read. Nothing here is taken
from a core: a check must not share a bug with the code that it checks.

Bounds: the last KEPT_LOG to twice as many events; KEPT_VERSIONS of decisions' inputs. Uids, revisions and ends of pods are
kept to the end of the run: some hundred bytes for every pod that ever was. Over 300 lines: all tables follow from one pass over
the events (`see`), and each reading method is a line or two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from datetime import datetime

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.amplification import amplified
from cotenant.events.commits import Commit, ServiceStarted, decider_of, record_of
from cotenant.events.envelope import Event
from cotenant.events.migrations import Migration
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus, RunStatus, reports_stop
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.reservations import ReservationShare
from cotenant.log.contract import LOG
from cotenant.log.plans import Plan
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, RESOURCE_PODS
from cotenant.model.subjects import executor_subject, object_subject, pod_subject, resources_subject, tokens
from cotenant_verification.checks.charges import Charges
from cotenant_verification.checks.needs import RequirementsCache
from cotenant_verification.checks.quotas_as_decided import QuotasAsDecided
from cotenant_verification.checks.records import CommitSeen, ObjectHead, RankedEviction, revisions_of

KEPT_VERSIONS = 64
KEPT_LOG = 50_000
REMEMBERED_REPLICAS = 5_000
"""Events; a cause further back is known to have existed, but not its content."""


_HEAD = msgspec.json.Decoder(ObjectHead)


class LogView:
    """Tables over the log, as of the last event seen."""

    def __init__(self) -> None:
        self.now: datetime | None = None
        self.log: list[Event] = []
        """The last events of LOG, in order."""
        self.seen = 0
        """How many there were."""
        self.last: dict[str, Event] = {}
        """Last event of each subject of LOG that has not ended."""
        self._before: dict[str, Event | None] = {}
        """The previous message of a subject's newest event."""
        self._standing: dict[int, Event] = {}
        """`last` by sequence: causes that are still current are known however old they are."""
        self.placed: dict[str, dict[tuple[str, str], Event]] = defaultdict(dict)
        """Node to pod to the placement that holds a place."""
        self.shares: dict[str, dict[str, Event]] = defaultdict(dict)
        """Node to reservation to the share that it holds."""
        self.kept_rooms: dict[str, Waiting] = {}
        """Subject to a waiting event that says where room is kept: for a nominated pod, or for the queue's head."""
        self.places: dict[str, set[str]] = defaultdict(set)
        """Pod's uid to the nodes that hold a place for it."""
        self.ended_runs: dict[tuple[str, str], int] = {}
        """(node, uid) to the sequence of the report that the pod has ended there."""
        self.stopped: set[tuple[str, str]] = set()
        """(node, uid) of placed pods that their node has stopped: it counts them no longer, the scheduler until their placement
        ends."""
        self.charges = Charges()
        self.quotas = QuotasAsDecided()
        self.moves: dict[str, Migration] = {}
        """Subject to the last state of a migration job."""
        self.orders: dict[tuple[str, str], Migration] = {}
        """(job, pod's uid) to the job when its eviction was ordered, for as long as a limit looks back."""
        self.configs: dict[str, str] = {}
        """Digest to the text of a configuration, as start markers state it."""
        self.versions: dict[str, deque[Event]] = defaultdict(lambda: deque(maxlen=KEPT_VERSIONS))
        """Recent versions of the basis of decisions: nodes, quotas, namespaces, profiles."""
        self.declared: dict[str, dict[str, None]] = defaultdict(dict)
        """Nodes, namespaces, profiles: all subjects that ever existed, in order of appearance."""
        self.measured: set[str] = set()
        """Nodes that ever had a metric."""
        self.tainted: dict[str, datetime] = {}
        """When a lost node of each zone got the NoExecute taint last."""
        self.needs = RequirementsCache()
        self.pods: dict[tuple[str, str], ObjectHead] = {}
        self.ended_at: dict[str, int] = {}
        """The sequence at which a pod had run to its end, by uid."""
        self._replicas: deque[tuple[int, str, int]] = deque(maxlen=REMEMBERED_REPLICAS)
        """Recent changes of the number of pods of controllers: sequence, controller, +1 or -1."""
        self.revisions: dict[str, dict[str, int]] = {}
        """Pod's uid to its revision annotations, each the highest that was acknowledged."""
        self.acknowledged: dict[str, str] = {}
        """Subject to the uid whose creation was acknowledged."""
        self.ended: set[str] = set()
        """Subjects of pods that have ended."""
        self.may_end: set[str] = set()
        """uids whose deletion was requested."""
        self.stale_accepted: list[str] = []
        """Subjects of acknowledged writes that were conditional on an old version."""
        self.evicted: dict[str, int] = defaultdict(int)
        self.node_evictions: dict[tuple[str, str], dict[str, datetime]] = defaultdict(dict)
        """When a strategy of a node's executor began evictions in its last minute: by node and strategy, by the pod's uid."""
        self.ranked_evictions: dict[tuple[str, str], dict[str, RankedEviction]] = defaultdict(dict)
        """The evictions by priority of the last minute: by node and feature, by the pod's uid."""
        self.victims: set[str] = set()
        """Uids of moving pods that a nomination named: the arbiter's limits do not count them."""
        self.second = 0
        self.of_second: Counter[str] = Counter()
        """Events of the current second by source."""
        self._batch: list[Event] = []
        self._record: tuple[Event, Commit] | None = None
        self._ends = 0

    # -- seeing ----------------------------------------------------------------------------------------------------

    def see(self, event: Event) -> CommitSeen | None:
        """Take in an event; return the commit that it completes."""
        if event.stream != LOG:
            return None
        if len(self.log) >= 2 * KEPT_LOG:
            del self.log[:KEPT_LOG]
            self._before = {subject: event for subject, event in self._before.items() if subject in self.last}
        self.log.append(event)
        self.seen += 1
        self.quotas.see(event)
        before = self._before[event.subject] = self.last.pop(event.subject, None)
        if before is not None:
            del self._standing[before.sequence]
        if not event.tombstone:
            self.last[event.subject] = self._standing[event.sequence] = event
        data = event.data
        if isinstance(data, Placement):
            self._see_placement(event, data)
        elif isinstance(data, Waiting):
            self.kept_rooms.pop(event.subject, None)
            if not event.tombstone and (data.nomination is not None or data.hold is not None):
                self.kept_rooms[event.subject] = data
        elif isinstance(data, ReservationShare):
            if event.tombstone:
                self.shares[data.node].pop(data.name, None)
            else:
                self.shares[data.node][data.name] = event
        elif isinstance(data, RunStatus):
            if data.phase.terminal and not event.tombstone:
                self._see_end(event, data)
            placed = self.placed[data.node].get((data.namespace, data.name)) if reports_stop(event) else None
            if placed is not None and isinstance(placed.data, Placement):
                self.stopped.add((data.node, placed.data.uid))
        elif isinstance(data, ExecutorStatus | NodeCondition | NodeResources | NodeMetricComputed | QuotaRuntime):
            self.versions[event.subject].append(event)
            if isinstance(data, QuotaRuntime):
                self.charges.publish(event, data)
            elif isinstance(data, NodeMetricComputed):
                self.measured.add(data.node)
        elif isinstance(data, ObjectStored | ObjectDeleted):
            self._see_object(event, data)
        elif isinstance(data, Migration):
            if event.tombstone:
                self.moves.pop(event.subject, None)
            else:
                self.moves[event.subject] = data
        elif isinstance(data, ServiceStarted):
            self.configs[data.config] = data.config_text
        return self._see_batch(event)

    def _see_placement(self, event: Event, data: Placement) -> None:
        key = (data.namespace, data.name)
        event_before = self.placed[data.node].pop(key, None)
        before = event_before.data if event_before is not None and isinstance(event_before.data, Placement) else None
        if before is not None:
            self.places[before.uid].discard(data.node)
            if event.tombstone or data.phase is not PlacementPhase.TERMINATING or before.uid != data.uid:
                self.stopped.discard((data.node, before.uid))
        holds = not event.tombstone and data.phase is not PlacementPhase.GONE
        if holds:
            self.placed[data.node][key] = event
            self.places[data.uid].add(data.node)
        self.charges.place(before, data if holds else None, self.ended_runs.get((data.node, data.uid)))

    def _see_end(self, event: Event, data: RunStatus) -> None:
        self.ended_runs.setdefault((data.node, data.uid), event.sequence)
        self.ended_at.setdefault(data.uid, event.sequence)
        placed = self.placed[data.node].get((data.namespace, data.name))
        if placed is not None and isinstance(placed.data, Placement) and placed.data.uid == data.uid:
            self.charges.end(placed.data, event.sequence)

    def _see_object(self, event: Event, data: ObjectStored | ObjectDeleted) -> None:
        parts = tokens(event.subject)
        if parts[2] in ("nodes", "namespaces", "clustercolocationprofiles"):
            self.versions[event.subject].append(event)
            self.declared[parts[2]][event.subject] = None
        if parts[1:3] != ("core", "pods"):
            return
        key = (parts[3], parts[4])
        if isinstance(data, ObjectDeleted) or event.tombstone:
            self._count_replica(event.sequence, self.pods.pop(key, None), -1)
            self.ended.add(event.subject)
        else:
            self._count_replica(event.sequence, self.pods.get(key), -1)
            self.pods[key] = _HEAD.decode(data.object)
            self._count_replica(event.sequence, self.pods[key], 1)

    def _count_replica(self, sequence: int, pod: ObjectHead | None, change: int) -> None:
        for controller in pod.metadata.controllers if pod is not None else ():
            self._replicas.append((sequence, controller, change))

    def replicas_at(self, workload: str, sequence: int) -> int:
        """Return how many pods of a workload had not ended at a recent sequence: a pod that has run to its end is no replica,
        although its object exists."""
        now = sum(
            workload in pod.metadata.controllers and not 0 < self.ended_at.get(pod.metadata.uid, 0) <= sequence
            for pod in self.pods.values()
        )
        return now - sum(change for at, controller, change in self._replicas if at > sequence and controller == workload)

    def _see_batch(self, event: Event) -> CommitSeen | None:
        commit = record_of(event)
        if commit is not None and event.commit is not None:
            return CommitSeen(decider_of(event), event, commit, (event,))
        if commit is not None:
            # A record alone decides nothing: a replica takes over.
            self._record = (event, commit) if commit.count else None
            self._batch, self._ends = [], event.sequence + commit.count
        elif self._record is not None:
            record, commit = self._record
            if event.source == record.source and event.sequence <= self._ends:
                self._batch.append(event)
            if event.sequence >= self._ends:
                self._record = None
                return CommitSeen(decider_of(record), record, commit, tuple(self._batch))
        return None

    def asked(self, plan: Plan) -> None:
        """Note a request: objects that its plan ends may end, whatever the answer is."""
        first = plan.writes[0]
        if isinstance(first.payload, ObjectDeleted):
            self.may_end.add(first.payload.uid)
        elif isinstance(first.payload, ObjectStored):
            meta = _HEAD.decode(first.payload.object).metadata
            if meta.deletion_timestamp is not None:
                self.may_end.add(meta.uid)

    def evicting(self, uid: str) -> None:
        """Note that a pod is about to be evicted."""
        self.may_end.add(uid)

    def acknowledge(self, plan: Plan, stale: bool) -> None:
        """Note that a plan was acknowledged."""
        first = plan.writes[0]
        if not first.subject.startswith("objects."):
            return
        if stale:
            self.stale_accepted.append(first.subject)
        if isinstance(first.payload, ObjectDeleted) or first.tombstone:
            self.acknowledged.pop(first.subject, None)
            return
        assert isinstance(first.payload, ObjectStored)
        meta = _HEAD.decode(first.payload.object).metadata
        self.acknowledged[first.subject] = meta.uid
        highest = self.revisions.setdefault(meta.uid, {})
        for name, revision in revisions_of(meta.annotations).items():
            highest[name] = max(highest.get(name, 0), revision)

    # -- reading ---------------------------------------------------------------------------------------------------

    def version_at(self, subject: str, sequence: int) -> Event | None:
        """Return the last version of a subject up to a sequence; None if it had ended or is not kept any more."""
        for event in reversed(self.versions.get(subject, ())):
            if event.sequence <= sequence:
                return None if event.tombstone else event
        return None

    def before(self, event: Event) -> Event | None:
        """Return the message before the newest one on its subject; None if there was none, or it is not kept."""
        return self._before.get(event.subject)

    def pod(self, namespace: str, name: str) -> Pod:
        """Return a pod that exists, as it is on the log."""
        stored = self.last[pod_subject(namespace, name)].data
        assert isinstance(stored, ObjectStored)
        return decode_pod(stored.object)

    def offer(self, node: str, folded: int) -> dict[str, int]:
        """Return a node's allocatable, as of a sequence."""
        executor = self.version_at(executor_subject(node), folded)
        offered: dict[str, int] = {}
        if executor is not None and isinstance(executor.data, ExecutorStatus):
            offered.update(executor.data.allocatable)
        resources = self.version_at(resources_subject(node), folded)
        if resources is not None and isinstance(resources.data, NodeResources):
            offered.update(amplified(offered, resources.data.amplification))
            offered.update(resources.data.devices)
            offered[BATCH_CPU] = resources.data.batch_cpu_milli
            offered[BATCH_MEMORY] = resources.data.batch_memory_bytes
        return offered

    def held(self, node: str, folded: int) -> Iterator[Placement]:
        """Return the placements that take room on a node: all but those whose pod is known to have ended by that sequence."""
        for event in self.placed[node].values():
            data = event.data
            assert isinstance(data, Placement)
            ended = self.ended_runs.get((node, data.uid))
            if ended is None or ended > folded:
                yield data

    def namespace_ends(self, namespace: str) -> bool:
        """Whether a namespace is gone, or being deleted."""
        stored = self.last.get(object_subject("", "namespaces", "", namespace))
        return stored is None or self.ends(stored)

    def ends(self, event: Event) -> bool:
        """Whether an object is being deleted."""
        data = event.data
        return isinstance(data, ObjectStored) and _HEAD.decode(data.object).metadata.deletion_timestamp is not None

    def by_reference(self, reference: str) -> Event | None:
        """Return the event of LOG that a cause names."""
        stream, _, number = reference.partition(":")
        if stream != LOG or not number.isdigit():
            return None
        return self.by_sequence(int(number))

    def was_there(self, sequence: int) -> bool:
        """Whether an event with a sequence was ever stored."""
        return self.by_sequence(sequence) is not None or self.is_forgotten(sequence)

    def is_forgotten(self, sequence: int) -> bool:
        """Whether an event is so old that only its existence is known."""
        return self.seen > len(self.log) and sequence < self.log[0].sequence and sequence not in self._standing

    def by_sequence(self, sequence: int) -> Event | None:
        """Return the event with a sequence; None if it never existed, or is not kept any more."""
        position = bisect_left(self.log, sequence, key=lambda event: event.sequence)
        found = self.log[position] if position < len(self.log) else None
        return found if found is not None and found.sequence == sequence else self._standing.get(sequence)


TRACKED = (CPU, MEMORY, RESOURCE_PODS, BATCH_CPU, BATCH_MEMORY)
"""Resources that the checks add up."""
