"""An independent, slow check of a scheduler's decisions: plain dictionaries, one placement at a time.

In: LOG's events of nodes, quotas, pods and placements, in order. Out: `AuditResult`. Each placement is checked against
its basis: the facts of its node and quota that its causes name (none older than those of an earlier decision about
the same), and the placements before it: all resources and the number of pods, cordon, node selector and affinity, taints,
host ports, load thresholds of the default policy (`rooms`); affinity, anti-affinity and spread (`neighbours`); the quota's
max; what reservations keep (`reservations`). Nothing is placed twice; gangs are placed whole (`gangs`). And every pod or gang
without a placement fits no node, or not its quota, in the final state.

Unsupported features (init containers, daemons, pods that name their node) are errors, not ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from cotenant.api.objects.node import decode_node
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.quota.view import ElasticQuotaView, decode_quota
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.reservations import ReservationShare, ReservationStatus
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.subjects import node_subject, tokens
from cotenant_verification.bench.audit.gangs import GangCheck
from cotenant_verification.bench.audit.neighbours import Neighbours
from cotenant_verification.bench.audit.reservations import ReservationCheck
from cotenant_verification.bench.audit.rooms import Facts, NodeRoom, PodRequirements, need_of

SHOWN = 20
RESERVATIONS = "objects.scheduling%2Ekoordinator%2Esh.reservations."
READ = (
    "objects.core.nodes.>",
    "objects.core.pods.>",
    "metrics.*",
    "objects.scheduling%2Esigs%2Ek8s%2Eio.elasticquotas.>",
    f"{RESERVATIONS}>",
    "node.*.resources",
    "node.*.executor",
    "node.*.condition",
    "node.*.placement.>",
    "node.*.reservation.*",
    "reservations.*",
    "waiting.>",
)
"""The subjects of LOG that `verify` needs."""


class AuditResult(msgspec.Struct, frozen=True):
    """`wrong` is empty if nothing was found; it has at most SHOWN findings."""

    placed: int
    waiting: int
    wrong: tuple[str, ...]


class _Check:
    def __init__(self) -> None:
        self.published: dict[int, tuple[str, Payload]] = {}
        """Messages of other services by sequence, with their subject."""
        self.newest: dict[str, int] = {}
        self.used_until: dict[str, int] = {}
        """The newest message of each subject that a decision depended on."""
        self.facts: dict[str, Facts] = {}
        self.rooms: dict[str, NodeRoom] = {}
        self.neighbours = Neighbours(self.facts)
        self.needs: dict[str, PodRequirements] = {}
        self.by_template: dict[tuple[bytes, bytes], PodRequirements] = {}
        self.placed: dict[str, str] = {}
        self.quotas: dict[str, ElasticQuotaView] = {}
        self.gangs = GangCheck()
        self.reservations = ReservationCheck()
        self.used: dict[str, dict[str, int]] = {}
        self.nominated: dict[str, str] = {}
        self.wrong: list[str] = []
        self.now = datetime(1970, 1, 1, tzinfo=UTC)

    def say(self, finding: str) -> None:
        """Note a finding."""
        if len(self.wrong) < SHOWN:
            self.wrong.append(finding)

    def read(self, event: Event) -> None:
        """Take one message, in the log's order."""
        data, subject = event.data, event.subject
        self.now = max(self.now, event.time or self.now)
        if isinstance(data, Placement):
            self.gangs.decided(event)
            self._placement(event, data)
        elif isinstance(data, Waiting):
            self.gangs.decided(event)
            self.nominated.pop(data.name, None)
            if data.nomination is not None and not event.tombstone:
                self.nominated[data.name] = data.nomination.node
        elif isinstance(data, ReservationShare):
            self.gangs.decided(event)
            for finding in self.reservations.shared(data, event.tombstone, self.gangs.commit):
                self.say(f"{finding} ({event.ref})")
        elif isinstance(data, ReservationStatus):
            self.gangs.decided(event)
            self.reservations.stated(data, event.tombstone)
        elif subject.startswith(RESERVATIONS):
            assert isinstance(data, ObjectStored), f"the check does not support reservations that are deleted: {subject}"
            self.reservations.declared(data.object)
        elif subject.startswith("objects.core.pods."):
            assert isinstance(data, ObjectStored), f"the check does not support pods that end: {subject}"
            pod = decode_pod(data.object)
            self.reservations.submitted(pod)
            self.needs[tokens(subject)[-1]] = self._need(pod, bytes(data.object))
            self.gangs.submitted(pod)
        else:
            self.published[event.sequence] = (subject, data)
            self.newest[subject] = event.sequence
            if subject.startswith("objects.core.nodes.") and subject not in self.used_until:
                # All nodes exist before the first decision: their labels define the domains.
                self._use(event.sequence)

    def _need(self, pod: Pod, document: bytes) -> PodRequirements:
        if pod.spec.node_name:
            raise ValueError(f"the check does not support pods that name their node: {pod.metadata.name}")
        key = (msgspec.json.encode(sorted(pod.metadata.labels.items())), document[document.index(b'"spec"') :])
        known = self.by_template.get(key)
        if known is None:
            known = self.by_template[key] = need_of(pod, pod.metadata.labels.get(LABEL_QUOTA, ""))
        return known

    def _use(self, sequence: int) -> None:
        """A decision depends on this message: from now on it is the state of its subject."""
        subject, data = self.published[sequence]
        if self.used_until.get(subject, 0) > sequence:
            self.say(f"a decision on LOG:{sequence} comes after one on LOG:{self.used_until[subject]}, both of {subject}")
            return
        self.used_until[subject] = sequence
        if isinstance(data, ObjectStored) and ".elasticquotas." in subject:
            quota = decode_quota(data.object)
            self.quotas[quota.name] = quota
        elif isinstance(data, ObjectStored):
            node = decode_node(data.object)
            if known := self.facts.get(node.metadata.name):
                known.say(node)
            else:
                self.facts[node.metadata.name] = Facts(node)
                self.rooms[node.metadata.name] = NodeRoom()
        elif isinstance(data, ExecutorStatus | NodeResources | NodeCondition | NodeMetricComputed) and data.node in self.facts:
            self.facts[data.node].say(data)

    def _placement(self, event: Event, data: Placement) -> None:
        if event.tombstone:
            if self.placed.pop(data.name, None) is not None:
                need = self.rooms[data.node].remove(data.name)
                self.neighbours.add(need, data.node, -1)
                self._charge(need, -1)
                self.reservations.removed(data.name)
            return
        if data.phase is not PlacementPhase.BOUND or self.placed.get(data.name) == data.node:
            return
        if data.name in self.placed:
            self.say(f"pod {data.name} is placed on {self.placed[data.name]} and again on {data.node}")
            return
        for cause in event.causes:
            sequence = int(cause.removeprefix("LOG:"))
            if sequence in self.published:
                self._use(sequence)
        if f"LOG:{self.used_until.get(node_subject(data.node), -1)}" not in event.causes:
            self.say(f"pod {data.name} is placed on {data.node} ({event.ref}), which its causes do not name")
            return
        if data.name not in self.needs:
            self.say(f"pod {data.name} is placed ({event.ref}) and was not submitted")
            return
        need = self.needs[data.name]
        now = event.time or self.now
        used = data.allocation.reservation.uid if data.allocation is not None and data.allocation.reservation else ""
        refusal = (
            self._quota_refusal(need)
            or self._refusal(need, data.node, now, used)
            or self.neighbours.judge(need)(data.node)
        )
        for finding in self.reservations.placed(data, need.requests, self.facts[data.node].labels, self.gangs.commit):
            self.say(f"pod {data.name} ({event.ref}) {finding}")
        if refusal:
            self.say(f"pod {data.name} does not fit node {data.node} ({event.ref}): {refusal}")
        self.placed[data.name] = data.node
        self.gangs.placed(data.name)
        self.rooms[data.node].add(data.name, need, data)
        self.neighbours.add(need, data.node)
        self._charge(need, 1)

    def _refusal(self, need: PodRequirements, node: str, now: datetime, used: str = "") -> str:
        """Why a node refuses a pod; `used`: the uid of the reservation that it uses."""
        room, facts = self.rooms[node], self.facts[node]
        for name, kept in self.reservations.kept_from(node, need.requests, used).items():
            short = need.requests.get(name, 0) + room.taken[name] + kept - facts.allocatable().get(name, 0)
            if short > 0 and name in need.requests:
                return f"{name} short by {short} beside what reservations hold"
        return room.refusal(need, facts, now)

    def _takes(self, name: str, node: str) -> str | None:
        """The uid of the reservation in which a node takes a waiting pod now, empty: beside all; None if it does not."""
        need = self.needs[name]
        usable = self.reservations.usable(node, name, need.requests, self.facts[node].labels)
        return next((uid for uid in usable if not self._refusal(need, node, self.now, uid)), None)

    def _charge(self, need: PodRequirements, sign: int) -> None:
        for quota in self._way_up(need.quota):
            used = self.used.setdefault(quota.name, {})
            for name, amount in need.requests.items():
                used[name] = used.get(name, 0) + sign * amount

    def _way_up(self, name: str) -> Iterator[ElasticQuotaView]:
        """A quota and those above it."""
        while (quota := self.quotas.get(name)) is not None:
            yield quota
            name = quota.parent

    def _quota_refusal(self, need: PodRequirements) -> str:
        """Used and request within max, of the quota and of those above it. (Runtimes: promise 3 of the simulator.)"""
        for quota in self._way_up(need.quota):
            used = self.used.get(quota.name, {})
            for name, limit in quota.max.items():
                wanted = used.get(name, 0) + need.requests.get(name, 0)
                if wanted > limit and name != RESOURCE_PODS:
                    return f"quota {quota.name}: {name} {wanted} > {limit}"
        return ""

    def unplaced(self) -> None:
        """Check every pod without a placement against the final state."""
        for sequence in sorted(self.newest.values()):
            if sequence > self.used_until.get(self.published[sequence][0], 0):
                self._use(sequence)
        for name, node in sorted(self.nominated.items()):
            if name not in self.placed and name in self.needs:
                # Room that preemption reserves for a pod is not free for others.
                held = Placement(node=node, namespace="", name=name, uid="", bound_at=self.now)
                self.rooms[node].add(name, self.needs[name], held)
        waiting = sorted(self.needs.keys() - self.placed.keys() - self.nominated.keys())
        together: dict[str, list[str]] = {}
        for name in waiting:
            if gang := self.gangs.waits(name):
                together.setdefault(gang, []).append(name)
        for gang, members in together.items():
            if self._fit_together(members):
                self.say(f"gang {gang} waits although its {len(members)} pods fit")
        alone = (name for name in waiting if not self.gangs.waits(name) and not self.gangs.is_short(name))
        for name in {(id(self.needs[name]), self.reservations.alike(name)): name for name in alone}.values():
            need = self.needs[name]
            if self._quota_refusal(need):
                continue
            elsewhere = self.neighbours.judge(need)
            for node in sorted(self.rooms):
                if self._takes(name, node) is not None and not elsewhere(node):
                    self.say(f"pod {name} waits although it fits node {node}")
                    break
        for finding in (*self.gangs.findings(), *self.reservations.findings()):
            self.say(finding)

    def _fit_together(self, members: list[str]) -> bool:
        """Whether each of them finds a node, the first one that takes it, in its first reservation there or beside all."""
        put: list[tuple[PodRequirements, str, str]] = []
        for name in members:
            need = self.needs[name]
            elsewhere = self.neighbours.judge(need)
            ways = ((node, self._takes(name, node)) for node in sorted(self.rooms) if not elsewhere(node))
            fits = ((node, uid) for node, uid in ways if uid is not None)
            node, uid = next(fits, ("", ""))
            if not node or self._quota_refusal(need):
                break
            self.rooms[node].add(name, need, Placement(node=node, namespace="", name=name, uid="", bound_at=self.now))
            self.reservations.use(uid, name, need.requests)
            self.neighbours.add(need, node)
            self._charge(need, 1)
            put.append((need, node, name))
        for need, node, name in put:
            self.rooms[node].remove(name)
            self.reservations.removed(name)
            self.neighbours.add(need, node, -1)
            self._charge(need, -1)
        return len(put) == len(members)


def verify(events: Iterable[Event]) -> AuditResult:
    """Check everything; `events` are all that LOG holds of READ, in its order."""
    check = _Check()
    log = list(events)
    for event in log:
        check.reservations.any = check.reservations.any or event.subject.startswith(RESERVATIONS)
        if isinstance(event.data, ReservationShare) and event.tombstone:
            check.reservations.will_end(event.data)
    for event in log:
        check.read(event)
    check.unplaced()
    return AuditResult(len(check.placed), len(check.needs) - len(check.placed), tuple(check.wrong))
