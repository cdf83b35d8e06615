"""YarnNode events from the ResourceManagers' reports: one per node, and one per unmatched NodeManager.

In: the nodes, their matches, the reports, the totals that could not be set. Out: events that differ from the last published
ones, and tombstones for those that no longer hold.

    wanted = YARN's desired total        given = the total that the ResourceManager reports
    used   = YARN's allocation: the node's foreign share
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.metrics import Usage
from cotenant.events.node.yarn import YarnNode
from cotenant.log.contract import ending
from cotenant.model.subjects import yarn_subject
from cotenant_yarn_copilot.capacity import Rounding, YarnResource, of_yarn, to_yarn
from cotenant_yarn_copilot.matching import HOLD_LOST, Match
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER
from cotenant_yarn_copilot.nodes import KnownNode, last_published
from cotenant_yarn_copilot.rm_messages import LOST, RUNNING, RmNode


def new_facts(
    nodes: Mapping[str, KnownNode],
    published: Mapping[str, Event],
    rounding: Rounding,
    matches: Sequence[Match],
    reports: Mapping[str, Sequence[RmNode]],
    failures: Mapping[str, str],
    now: datetime,
) -> list[Event]:
    """Return new and changed events, by subject. `failures`: by node, why its total could not be set."""
    facts = (
        _fact_of_node(nodes[match.node], match, published, rounding, failures.get(match.node, ""), now) for match in matches
    )
    events = [event for event in facts if event is not None]
    owned = {(match.node_id.cluster, match.node_id.text) for match in matches if match.node_id is not None}
    for cluster in sorted(reports):
        listed = {manager.id: manager for manager in reports[cluster] if manager.id}
        events += [
            _fact_of_unmatched(cluster, manager, now)
            for manager in listed.values()
            if (cluster, manager.id) not in owned
        ]
    named = {event.subject for event in events}
    gone = [
        ending(event.subject, event.data, event.causes)
        for entity, event in sorted(published.items())
        if event.subject not in named and _has_ended(nodes.get(entity), event, reports)
    ]
    return [event for event in events if _is_new(event, published)] + gone


def _has_ended(node: KnownNode | None, event: Event, reports: Mapping[str, Sequence[RmNode]]) -> bool:
    """Whether the node is gone, or its NodeManager (or an unmatched one) is no longer listed by a reachable cluster."""
    data = event.data
    assert isinstance(data, YarnNode)
    gone = bool(data.node) and (node is None or not node.exists)
    return gone or (data.cluster or DEFAULT_CLUSTER) in reports


def _fact_of_node(
    node: KnownNode, match: Match, published: Mapping[str, Event], rounding: Rounding, failure: str, now: datetime
) -> Event | None:
    manager = match.manager
    total = to_yarn(node.available(), rounding)
    last = last_published(published, match.node)
    if match.unreachable:
        if last is None:
            return None
        held = msgspec.structs.replace(last, wanted=_usage(total), confirmed=False, reason=match.reason)
        return Event(subject=yarn_subject(match.node), data=held, causes=published[match.node].causes)
    seen = now if manager is not None and manager.state == RUNNING else (last.update_time if last is not None else None)
    data = YarnNode(
        node=match.node,
        node_id=match.node_id.text if match.node_id is not None else "",
        cluster=match.node_id.cluster if match.node_id is not None else "",
        given=_usage(manager.total) if manager is not None else Usage(),
        wanted=_usage(total),
        used=_used(manager, last, now),
        confirmed=manager is not None and manager.total == total,
        reason=failure or match.reason or _state_reason(manager, node),
        state=manager.state if manager is not None else "",
        containers=max(manager.num_containers, 0) if manager is not None else 0,
        update_time=seen,
    )
    causes = tuple(ref for ref in (node.resources_ref, node.ref) if ref)
    return Event(subject=yarn_subject(match.node), data=data, causes=causes)


def _used(manager: RmNode | None, last: YarnNode | None, now: datetime) -> Usage:
    """Return YARN's usage. For a lost or unlisted NodeManager the last usage counts for HOLD_LOST: containers may still run."""
    if manager is not None and manager.state != LOST:
        return _usage(manager.used)
    recent = last is not None and last.update_time is not None and now - last.update_time <= HOLD_LOST
    return last.used if last is not None and recent else Usage()


def _fact_of_unmatched(cluster: str, manager: RmNode, now: datetime) -> Event:
    data = YarnNode(
        node="",
        node_id=manager.id,
        cluster=cluster,
        given=_usage(manager.total),
        used=_usage(manager.used),
        state=manager.state,
        containers=max(manager.num_containers, 0),
        reason=f"NodeManager {manager.id} belongs to no node: none has its id or its host {manager.node_host_name!r}",
        update_time=now,
    )
    return Event(subject=yarn_subject(manager.id), data=data)


def _is_new(event: Event, published: Mapping[str, Event]) -> bool:
    """Whether anything but the time of the last report changed; the time alone is published once it is half of HOLD_LOST
    newer."""
    new = event.data
    assert isinstance(new, YarnNode)
    last = last_published(published, new.node or new.node_id)
    if last is None or msgspec.structs.replace(last, update_time=new.update_time) != new:
        return True
    if new.update_time is None or last.update_time is None:
        return new.update_time is not last.update_time
    return new.update_time - last.update_time >= HOLD_LOST / 2


def _state_reason(manager: RmNode | None, node: KnownNode) -> str:
    if manager is not None and manager.state != RUNNING:
        return f"the NodeManager is {manager.state}"
    if node.origin() is None:
        why = node.unreadable or "the node does not say yet what it offers"
        return f"{why}: YARN keeps its total"
    return ""


def _usage(resource: YarnResource) -> Usage:
    amounts = of_yarn(resource)
    return Usage(cpu_milli=amounts.cpu_milli, memory_bytes=amounts.memory_bytes)
