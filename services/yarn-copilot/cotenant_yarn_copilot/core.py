"""The copilot's state and what follows from it: pure, so that the loop around it only carries out.

Folds node objects, `node.*.resources`, placements and its own `yarn.*` events; is shown what the ResourceManagers
report. Tells which node belongs to which NodeManager, which totals to set, and which facts are new.

    total for YARN = origin batch of the node - batch requests of the pods placed on it        (not below 0)
    foreign share  = what YARN has allocated there

The origin is what the node lends before YARN's own share is taken off; a node whose batch resources are withdrawn
lends 0. Totals are compared with what the ResourceManager reports, not with what was sent: a NodeManager that
registers again is back at what it announced.

Which NodeManager is whose, first match wins: the id that the NodeManager's pod on the node says, the id that the
node's own annotation `yarn.hadoop.apache.org/node-id` says, the one whose host is the node's name or its label
`kubernetes.io/hostname`. Only ids from the ResourceManager's own list count; whatever does not match is told as an
event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.api.objects.metadata import AnyObject
from cotenant.events.envelope import Event
from cotenant.events.metrics import Usage
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.resources import NodeResources
from cotenant.events.yarn import YarnNode
from cotenant.log.contract import ending
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, LABEL_HOSTNAME
from cotenant.model.subjects import tokens, yarn_subject
from cotenant_yarn_copilot.capacity import BatchAmounts, Rounding, YarnResource, of_yarn, to_yarn
from cotenant_yarn_copilot.node_id import (
    ANNOTATION_NODE_ID,
    DEFAULT_CLUSTER,
    LABEL_COMPONENT,
    NODE_MANAGER,
    NodeIdError,
    PodLabels,
    YarnNodeId,
    parse_node_id,
    yarn_node_of,
)
from cotenant_yarn_copilot.rm_messages import LOST, RUNNING, RmNode

FILTERS = ("objects.core.nodes._.*", "node.*.resources", "node.*.placement.*.*", "yarn.*")
HOLD_LOST = timedelta(minutes=10)
"""How long a lost NodeManager's last use still counts: its containers outlive it."""

_HEAD = msgspec.json.Decoder(AnyObject)


class PlacedPod(msgspec.Struct, frozen=True):
    """A pod on the node: what it asked of batch, and its labels where it is a NodeManager."""

    batch: BatchAmounts
    node_manager: PodLabels | None = None


class KnownNode(msgspec.Struct):
    """What is folded of one node."""

    exists: bool = False
    hostname: str = ""
    declared_id: str = ""
    ref: str = ""
    resources: NodeResources | None = None
    resources_ref: str = ""
    pods: dict[str, PlacedPod] = msgspec.field(default_factory=dict)


class Match(msgspec.Struct, frozen=True):
    """A node and its NodeManager. `manager` None: the ResourceManager lists none of that id; `reason` tells what is wrong.

    `unheard`: the cluster could not be asked, so nothing is known but what was said last.
    """

    node: str
    node_id: YarnNodeId | None = None
    manager: RmNode | None = None
    reason: str = ""
    unheard: bool = False


class Setting(msgspec.Struct, frozen=True):
    """A total to set because the ResourceManager reports another."""

    node: str
    node_id: YarnNodeId
    total: YarnResource


class YarnCopilot:
    """State of the copilot. `apply` folds the log; the other methods only read."""

    def __init__(self, rounding: Rounding = Rounding.EXACT) -> None:
        self.rounding = rounding
        self._nodes: dict[str, KnownNode] = {}
        self._published: dict[str, Event] = {}
        self._heads: dict[str, int] = {}

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one fact."""
        parts = tokens(event.subject)
        data = None if event.tombstone else event.data
        match parts:
            case ("objects", "core", "nodes", _, name):
                self._apply_node(self._known(name), event, data if isinstance(data, ObjectStored) else None)
            case ("node", name, "resources"):
                node = self._known(name)
                node.resources = data if isinstance(data, NodeResources) else None
                node.resources_ref = event.ref if node.resources is not None else ""
            case ("node", name, "placement", namespace, pod):
                pods = self._known(name).pods
                if isinstance(data, Placement) and data.phase is not PlacementPhase.GONE:
                    pods[f"{namespace}/{pod}"] = _placed(data)
                else:
                    pods.pop(f"{namespace}/{pod}", None)
            case ("yarn", entity) if event.sequence >= self._heads.get(event.subject, 0):
                self._heads[event.subject] = event.sequence
                if isinstance(data, YarnNode):
                    self._published[entity] = event
                else:
                    self._published.pop(entity, None)
            case _:
                pass

    def _known(self, name: str) -> KnownNode:
        return self._nodes.setdefault(name, KnownNode())

    def _apply_node(self, node: KnownNode, event: Event, stored: ObjectStored | None) -> None:
        node.exists = stored is not None
        node.ref = event.ref if stored is not None else ""
        node.hostname = node.declared_id = ""
        if stored is None:
            return
        try:
            metadata = _HEAD.decode(stored.object).metadata
        except msgspec.DecodeError:
            return  # an object without readable metadata declares nothing; its name is in the subject
        node.hostname = metadata.labels.get(LABEL_HOSTNAME, "")
        node.declared_id = metadata.annotations.get(ANNOTATION_NODE_ID, "")

    def decide(self, now: datetime) -> Sequence[Event]:  # noqa: ARG002 - a core's signature
        """Return nothing: what follows needs the ResourceManagers' reports, which are not on the log."""
        return ()

    # -- what follows --------------------------------------------------------------------------------------------

    def lent(self, name: str) -> BatchAmounts:
        """Return what the node lends YARN: its origin batch without what batch pods on it asked for."""
        node = self._nodes.get(name)
        if node is None or node.resources is None or node.resources.withdrawn:
            return BatchAmounts()
        origin = BatchAmounts(node.resources.origin.cpu_milli, node.resources.origin.memory_bytes)
        for _, pod in sorted(node.pods.items()):
            origin = origin.without(pod.batch)
        return origin

    def total_for(self, name: str) -> YarnResource:
        """Return the total that YARN shall have on the node."""
        return to_yarn(self.lent(name), self.rounding)

    def match(self, reports: Mapping[str, Sequence[RmNode]], now: datetime) -> list[Match]:
        """Return our nodes with their NodeManagers, by node name; those that have nothing to do with YARN are left out.

        `reports`: what each cluster that could be asked lists.
        """
        listed = {(cluster, manager.id): manager for cluster in sorted(reports) for manager in reports[cluster]}
        taken: set[tuple[str, str]] = set()
        matches = []
        for name in sorted(self._nodes):
            node = self._nodes[name]
            if not node.exists:
                continue
            found = self._match_node(name, node, listed, reports)
            if found is None or found.unheard:
                found = self._remembered(name, reports, now) or found
            if found is None:
                continue
            key = (found.node_id.cluster, found.node_id.text) if found.node_id is not None else ("", "")
            if found.manager is not None and key in taken:
                found = Match(name, found.node_id, None, f"NodeManager {key[1]} already belongs to another node")
            taken.add(key)
            matches.append(found)
        return matches

    def _match_node(
        self,
        name: str,
        node: KnownNode,
        listed: Mapping[tuple[str, str], RmNode],
        reports: Mapping[str, Sequence[RmNode]],
    ) -> Match | None:
        managers = [pod.node_manager for _, pod in sorted(node.pods.items()) if pod.node_manager is not None]
        try:
            node_id = yarn_node_of(name, managers)
            if node_id is None and node.declared_id:
                node_id = parse_node_id(node.declared_id)
        except NodeIdError as error:
            return Match(name, reason=str(error))
        if node_id is None:
            return _by_host({name, node.hostname} - {""}, name, listed)
        manager = listed.get((node_id.cluster, node_id.text))
        if manager is None:
            known = ", ".join(entry.id for entry in reports.get(node_id.cluster, ())) or "none"
            where = "" if node_id.cluster == DEFAULT_CLUSTER else f" of cluster {node_id.cluster}"
            reason = f"the ResourceManager{where} does not list {node_id.text}; it lists: {known}"
            if node_id.cluster not in reports:
                return Match(name, node_id, None, f"cluster {node_id.cluster} cannot be asked", unheard=True)
            return Match(name, node_id, None, reason)
        return Match(name, node_id, manager)

    def _remembered(self, name: str, reports: Mapping[str, Sequence[RmNode]], now: datetime) -> Match | None:
        """Return the match of the node's last event, where its cluster is silent or has not listed it for a short while."""
        last = self._last(name)
        if last is None or not last.node_id:
            return None
        cluster = last.cluster or DEFAULT_CLUSTER
        node_id = parse_node_id(last.node_id, cluster)
        if cluster not in reports:
            return Match(name, node_id, None, f"cluster {cluster} cannot be asked", unheard=True)
        if last.update_time is not None and now - last.update_time <= HOLD_LOST:
            return Match(name, node_id, None, f"the ResourceManager does not list {node_id.text} any more")
        return None

    def settings(self, matches: Sequence[Match]) -> list[Setting]:
        """Return the totals to set: running NodeManagers whose node says what it lends, where the report differs."""
        wanted = []
        for match in matches:
            node = self._nodes[match.node]
            running = match.manager is not None and match.manager.state == RUNNING
            if node.resources is None or match.node_id is None or match.manager is None or not running:
                continue
            total = self.total_for(match.node)
            if match.manager.total != total:
                wanted.append(Setting(match.node, match.node_id, total))
        return wanted

    def facts(
        self,
        matches: Sequence[Match],
        reports: Mapping[str, Sequence[RmNode]],
        failures: Mapping[str, str],
        now: datetime,
    ) -> list[Event]:
        """Return the events that say something new, by subject. `failures`: node to why its total could not be set."""
        facts = (self._fact_of_node(match, failures.get(match.node, ""), now) for match in matches)
        events = [event for event in facts if event is not None]
        owned = {(match.node_id.cluster, match.node_id.text) for match in matches if match.node_id is not None}
        for cluster in sorted(reports):
            events += [
                self._fact_of_stranger(cluster, manager, now)
                for manager in reports[cluster]
                if (cluster, manager.id) not in owned
            ]
        told = {event.subject for event in events}
        gone = [
            ending(event.subject, event.data, event.causes)
            for entity, event in sorted(self._published.items())
            if event.subject not in told and self._has_ended(entity, event, reports)
        ]
        return [event for event in events if self._is_new(event)] + gone

    def _has_ended(self, entity: str, event: Event, reports: Mapping[str, Sequence[RmNode]]) -> bool:
        """A node that is gone, or one (or a stranger) that a cluster which was asked does not list any more."""
        data = event.data
        assert isinstance(data, YarnNode)
        node = self._nodes.get(entity)
        gone = bool(data.node) and (node is None or not node.exists)
        return gone or (data.cluster or DEFAULT_CLUSTER) in reports

    def _fact_of_node(self, match: Match, failure: str, now: datetime) -> Event | None:
        node = self._nodes[match.node]
        manager = match.manager
        total = self.total_for(match.node)
        last = self._last(match.node)
        if match.unheard:
            if last is None:
                return None
            held = msgspec.structs.replace(last, wanted=_usage(total), confirmed=False, reason=match.reason)
            return Event(subject=yarn_subject(match.node), data=held, causes=self._published[match.node].causes)
        seen = now if manager is not None and manager.state == RUNNING else (last.update_time if last is not None else None)
        data = YarnNode(
            node=match.node,
            node_id=match.node_id.text if match.node_id is not None else "",
            cluster=match.node_id.cluster if match.node_id is not None else "",
            given=_usage(manager.total) if manager is not None else Usage(),
            wanted=_usage(total),
            used=self._used(manager, last, now),
            confirmed=manager is not None and manager.total == total,
            reason=failure or match.reason or _state_reason(manager, node),
            state=manager.state if manager is not None else "",
            containers=manager.num_containers if manager is not None else 0,
            update_time=seen,
        )
        causes = tuple(ref for ref in (node.resources_ref, node.ref) if ref)
        return Event(subject=yarn_subject(match.node), data=data, causes=causes)

    def _used(self, manager: RmNode | None, last: YarnNode | None, now: datetime) -> Usage:
        """Return YARN's use; a lost or unlisted NodeManager's last one counts for HOLD_LOST, as its containers outlive it."""
        if manager is not None and manager.state != LOST:
            return _usage(manager.used)
        recent = last is not None and last.update_time is not None and now - last.update_time <= HOLD_LOST
        return last.used if last is not None and recent else Usage()

    def _fact_of_stranger(self, cluster: str, manager: RmNode, now: datetime) -> Event:
        data = YarnNode(
            node="",
            node_id=manager.id,
            cluster=cluster,
            given=_usage(manager.total),
            used=_usage(manager.used),
            state=manager.state,
            containers=manager.num_containers,
            reason=f"NodeManager {manager.id} belongs to no node: none has its id or its host {manager.node_host_name!r}",
            update_time=now,
        )
        return Event(subject=yarn_subject(manager.id), data=data)

    def _last(self, entity: str) -> YarnNode | None:
        event = self._published.get(entity)
        return event.data if event is not None and isinstance(event.data, YarnNode) else None

    def _is_new(self, event: Event) -> bool:
        """Everything but the time of the last sighting counts; that is told again once it has moved by half of HOLD_LOST."""
        new = event.data
        assert isinstance(new, YarnNode)
        last = self._last(new.node or new.node_id)
        if last is None or msgspec.structs.replace(last, update_time=new.update_time) != new:
            return True
        if new.update_time is None or last.update_time is None:
            return new.update_time is not last.update_time
        return new.update_time - last.update_time >= HOLD_LOST / 2

    def head_of(self, subject: str) -> int:
        """Return the last known sequence of a `yarn.*` subject, which a new write expects; 0 where there is none."""
        return self._heads.get(subject, 0)


def _placed(placement: Placement) -> PlacedPod:
    batch = BatchAmounts(placement.requests.get(BATCH_CPU, 0), placement.requests.get(BATCH_MEMORY, 0))
    raw = bytes(placement.pod)
    if NODE_MANAGER.encode() not in raw:
        return PlacedPod(batch)
    try:
        metadata = _HEAD.decode(raw).metadata
    except msgspec.DecodeError:
        return PlacedPod(batch)
    if metadata.labels.get(LABEL_COMPONENT) != NODE_MANAGER:
        return PlacedPod(batch)
    return PlacedPod(batch, PodLabels(placement.name, placement.node, metadata.labels, metadata.annotations))


def _by_host(names: set[str], node: str, listed: Mapping[tuple[str, str], RmNode]) -> Match | None:
    """Return the NodeManager on a host of one of these names; several of them cannot be told apart."""
    found = [
        (cluster, manager)
        for (cluster, _), manager in sorted(listed.items())
        if manager.node_host_name in names or manager.id.rpartition(":")[0] in names
    ]
    if not found:
        return None
    if len(found) > 1:
        ids = ", ".join(manager.id for _, manager in found)
        return Match(node, reason=f"several NodeManagers are on this host ({ids}): annotate the node with {ANNOTATION_NODE_ID}")
    cluster, manager = found[0]
    host, _, port = manager.id.rpartition(":")
    return Match(node, YarnNodeId(host, int(port) if port.isdecimal() else 0, cluster), manager)


def _state_reason(manager: RmNode | None, node: KnownNode) -> str:
    if manager is not None and manager.state != RUNNING:
        return f"the NodeManager is {manager.state}"
    if node.resources is None:
        return "the node does not say yet what it lends: YARN keeps its total"
    return ""


def _usage(resource: YarnResource) -> Usage:
    amounts = of_yarn(resource)
    return Usage(cpu_milli=amounts.cpu_milli, memory_bytes=amounts.memory_bytes)
