"""NoExecute taints of lost nodes: which node gets one now, and which lose it.

In: the conditions of lost nodes, the zones, when a node of each zone was tainted last. Out: NodeCondition events.

    a node of the zone may be tainted (`zones`)  -> the one that is lost longest gets the taint, at the time of the decision
    no node of any zone is ready                 -> every node loses it: tolerationSeconds start again with the next taint
    the zone's state or rate changed             -> the nodes' conditions state it, at most every REPEAT

Source: Kubernetes' node lifecycle controller (NoExecute taints under a rate limiter for each zone, with a burst of one; under
full disruption of all zones the taints are removed).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.conditions import NO_EXECUTE, NodeCondition, ZoneDisruption
from cotenant.model.subjects import condition_subject
from cotenant.model.times import EPOCH, NEVER
from cotenant_descheduler_arbiter.node_lifecycle.readiness import taint_key
from cotenant_descheduler_arbiter.node_lifecycle.zones import ZoneHealth, Zones, ZoneState
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.known import Known

REPEAT = timedelta(seconds=10)
"""Between two changes of the zone's state in a node's condition: a zone may alternate around a threshold."""


class Tainting:
    """One evaluation of the lost nodes. After `decide`, `until` is when the same nodes and zones may need another one."""

    def __init__(self, fold: ClusterFold, zones: Zones, now: datetime) -> None:
        self._fold = fold
        self._zones = zones
        self._now = now
        self.until = NEVER

    def decide(self, lost: Iterable[str]) -> Iterator[Event]:
        """Yield the changed conditions of lost nodes, at most one a node."""
        stopped = self._zones.all_lost
        health: dict[str, ZoneHealth] = {}
        changed: dict[str, NodeCondition] = {}
        candidates: dict[str, list[tuple[datetime, str]]] = {}
        for node in sorted(lost):
            counted = self._zones.counted(node)
            if counted is None:
                continue
            zone, _ = counted
            condition = self._fold.conditions[node].value
            if zone not in health:
                health[zone] = self._zones.health(zone)
            if not condition.evicts:
                candidates.setdefault(zone, []).append((condition.since or EPOCH, node))
            published = self._noticed(condition, health[zone])
            if stopped and condition.evicts:
                published = without_no_execute(published)
            if published != condition:
                changed[node] = published
        for zone, waiting in sorted(candidates.items()):
            if not stopped and self._may_taint(health[zone]):
                _, node = min(waiting)
                changed[node] = self._tainted(changed.get(node, self._fold.conditions[node].value), zone)
        for node, condition in sorted(changed.items()):
            known: Known[NodeCondition] = self._fold.conditions[node]
            metric = self._fold.metrics.get(node)
            causes = (known.ref, *((metric.ref,) if metric is not None else ()))
            yield Event(subject=condition_subject(node), data=condition, causes=causes)

    def _may_taint(self, health: ZoneHealth) -> bool:
        if health.interval is None:
            return False
        last = self._fold.tainted.get(health.zone)
        if last is None or last + health.interval <= self._now:
            return True
        self.until = min(self.until, last + health.interval)
        return False

    def _tainted(self, condition: NodeCondition, zone: str) -> NodeCondition:
        taints = (*condition.taints, (taint_key(condition.status), "", NO_EXECUTE))
        return msgspec.structs.replace(condition, taints=taints, tainted_at=self._now, zone=zone)

    def _noticed(self, condition: NodeCondition, health: ZoneHealth) -> NodeCondition:
        """Return the condition with the state of its zone; unchanged for REPEAT after its last change."""
        published = condition.disruption
        if published is not None and self._now < published.since + REPEAT:
            if not _is_current(published, health):
                self.until = min(self.until, published.since + REPEAT)
            return condition
        if _is_current(published, health):
            return condition
        if health.state is ZoneState.NORMAL:
            return msgspec.structs.replace(condition, disruption=None)
        disruption = ZoneDisruption(
            state=health.state.value,
            lost=health.lost,
            nodes=health.nodes,
            nodes_per_second=health.nodes_per_second,
            since=self._now,
        )
        return msgspec.structs.replace(condition, disruption=disruption)


def without_no_execute(condition: NodeCondition) -> NodeCondition:
    """Return the condition without the NoExecute taint."""
    taints = tuple(taint for taint in condition.taints if taint[2] != NO_EXECUTE)
    return msgspec.structs.replace(condition, taints=taints)


def _is_current(published: ZoneDisruption | None, health: ZoneHealth) -> bool:
    if published is None:
        return health.state is ZoneState.NORMAL
    return (published.state, published.nodes_per_second) == (health.state.value, health.nodes_per_second)
