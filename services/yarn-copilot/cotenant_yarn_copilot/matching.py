"""Matches NodeManagers to nodes.

In: nodes, their last published events, the ResourceManagers' lists. Out: one Match per node, by the first rule that applies:
the id in the annotation of the NodeManager's pod on the node; the id in the node's annotation `yarn.hadoop.apache.org/node-id`;
a NodeManager whose host is the node's name or its label `kubernetes.io/hostname`. Only ids that a ResourceManager lists count.
A node whose cluster does not answer, or stopped listing it a short while ago, keeps the match of its last event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant_yarn_copilot.node_id import (
    ANNOTATION_NODE_ID,
    DEFAULT_CLUSTER,
    NodeIdError,
    YarnNodeId,
    parse_node_id,
    yarn_node_of,
)
from cotenant_yarn_copilot.nodes import KnownNode, last_published
from cotenant_yarn_copilot.rm_messages import RmNode

HOLD_LOST = timedelta(minutes=10)
"""How long a lost NodeManager's last usage counts, as its containers may still run."""


class Match(msgspec.Struct, frozen=True):
    """A node and its NodeManager. `manager` None: the ResourceManager does not list that id; `reason`: the problem.

    `unreachable`: the cluster did not answer, so only the last report is known.
    """

    node: str
    node_id: YarnNodeId | None = None
    manager: RmNode | None = None
    reason: str = ""
    unreachable: bool = False


def match_nodes(
    nodes: Mapping[str, KnownNode],
    published: Mapping[str, Event],
    reports: Mapping[str, Sequence[RmNode]],
    now: datetime,
) -> list[Match]:
    """Return the nodes with a NodeManager, by node name; nodes without YARN are left out.

    `reports`: the NodeManagers listed by each reachable cluster.
    """
    listed = {(cluster, manager.id): manager for cluster in sorted(reports) for manager in reports[cluster]}
    taken: set[tuple[str, str]] = set()
    matches = []
    for name in sorted(nodes):
        node = nodes[name]
        if not node.exists:
            continue
        found = _match_node(name, node, listed, reports)
        if found is None or found.unreachable:
            found = _remembered(name, published, reports, now) or found
        if found is None:
            continue
        key = (found.node_id.cluster, found.node_id.text) if found.node_id is not None else ("", "")
        if found.manager is not None and key in taken:
            found = Match(name, found.node_id, None, f"NodeManager {key[1]} already belongs to another node")
        taken.add(key)
        matches.append(found)
    return matches


def _match_node(
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
            return Match(name, node_id, None, f"cluster {node_id.cluster} cannot be asked", unreachable=True)
        return Match(name, node_id, None, reason)
    return Match(name, node_id, manager)


def _remembered(
    name: str, published: Mapping[str, Event], reports: Mapping[str, Sequence[RmNode]], now: datetime
) -> Match | None:
    """Return the match of the node's last event, if its cluster does not answer or stopped listing it a short while ago."""
    last = last_published(published, name)
    if last is None or not last.node_id:
        return None
    cluster = last.cluster or DEFAULT_CLUSTER
    try:
        node_id = parse_node_id(last.node_id, cluster)
    except NodeIdError:
        return None
    if cluster not in reports:
        return Match(name, node_id, None, f"cluster {cluster} cannot be asked", unreachable=True)
    if last.update_time is not None and now - last.update_time <= HOLD_LOST:
        return Match(name, node_id, None, f"the ResourceManager does not list {node_id.text} any more")
    return None


def _by_host(names: set[str], node: str, listed: Mapping[tuple[str, str], RmNode]) -> Match | None:
    """Return the NodeManager on a host with one of these names; several on one host cannot be distinguished."""
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
    return Match(node, YarnNodeId(host, int(port) if port.isdecimal() and len(port) <= 9 else 0, cluster), manager)
