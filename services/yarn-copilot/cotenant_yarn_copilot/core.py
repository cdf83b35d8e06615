"""The copilot's pure core; `syncing` does the I/O.

Folds node objects, `node.*.resources`, placements and its own `yarn.*` events. In: the ResourceManagers' reports. Out: which
NodeManager belongs to which node (`matching`), the totals to set, and the events to publish (`facts`).

Totals are compared with the ResourceManager's report, not with the last update: a NodeManager that registers again falls back
to the total it announces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.yarn import YarnNode
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import tokens
from cotenant_yarn_copilot.capacity import BatchAmounts, Rounding, YarnResource, to_yarn
from cotenant_yarn_copilot.facts import new_facts
from cotenant_yarn_copilot.matching import Match, match_nodes
from cotenant_yarn_copilot.node_id import YarnNodeId, cluster_of
from cotenant_yarn_copilot.nodes import KnownNode, placed_pod
from cotenant_yarn_copilot.rm_messages import RUNNING, RmNode

FILTERS = ("objects.core.nodes._.*", "node.*.resources", "node.*.placement.*.*", "yarn.*")

class Setting(msgspec.Struct, frozen=True):
    """A total to set because the ResourceManager reports another value."""

    node: str
    node_id: YarnNodeId
    total: YarnResource


class YarnCopilot:
    """State of the copilot. `apply` folds the log; the other methods only read."""

    def __init__(self, rounding: Rounding = Rounding.EXACT) -> None:
        self.rounding = rounding
        self._nodes: dict[str, KnownNode] = {}
        self._published: dict[str, Event] = {}
        self._sequences = LastSequences()
        self._corrected: dict[str, int] = {}
        """LOG's actual sequences, by subject, after a refused write."""

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one event. A message that is not newer than the last one of its subject changes nothing."""
        if not self._sequences.is_new(event):
            return
        parts = tokens(event.subject)
        data = None if event.tombstone else event.data
        match parts:
            case ("objects", "core", "nodes", _, name):
                self._known(name).take_object(event, data if isinstance(data, ObjectStored) else None)
                self._drop_if_empty(name)
            case ("node", name, "resources"):
                node = self._known(name)
                node.resources = data if isinstance(data, NodeResources) else None
                node.resources_ref = event.ref if node.resources is not None else ""
                self._drop_if_empty(name)
            case ("node", name, "placement", namespace, pod):
                pods = self._known(name).pods
                if isinstance(data, Placement) and data.phase is not PlacementPhase.GONE:
                    pods[f"{namespace}/{pod}"] = placed_pod(data)
                else:
                    pods.pop(f"{namespace}/{pod}", None)
                    self._drop_if_empty(name)
            case ("yarn", entity):
                self._corrected.pop(event.subject, None)
                if isinstance(data, YarnNode) and (data.node or data.node_id) == entity:
                    self._published[entity] = event
                else:
                    self._published.pop(entity, None)
            case _:
                pass

    def _known(self, name: str) -> KnownNode:
        return self._nodes.setdefault(name, KnownNode())

    def _drop_if_empty(self, name: str) -> None:
        if self._nodes[name].empty:
            del self._nodes[name]

    def decide(self, now: datetime) -> Sequence[Event]:  # noqa: ARG002 - a core's signature
        """Return nothing: decisions need the ResourceManagers' reports, which are not on the log."""
        return ()

    # -- results -------------------------------------------------------------------------------------------------

    def total_for(self, name: str) -> YarnResource:
        """Return YARN's desired total on the node."""
        node = self._nodes.get(name)
        return to_yarn(node.available() if node is not None else BatchAmounts(), self.rounding)

    def match(self, reports: Mapping[str, Sequence[RmNode]], now: datetime) -> list[Match]:
        """Return the nodes with their NodeManagers, by node name (`match_nodes`).

        `reports`: the NodeManagers listed by each reachable cluster.
        """
        return match_nodes(self._nodes, self._published, reports, now)

    def clusters(self) -> frozenset[str]:
        """Return the ids of the clusters that NodeManager pods on the nodes belong to."""
        pods = (pod.node_manager for node in self._nodes.values() if node.exists for pod in node.pods.values())
        return frozenset(cluster_of(pod) for pod in pods if pod is not None)

    def settings(self, matches: Sequence[Match]) -> list[Setting]:
        """Return the totals to set, for running NodeManagers with known batch resources where the report differs."""
        wanted = []
        for match in matches:
            node = self._nodes[match.node]
            running = match.manager is not None and match.manager.state == RUNNING
            if node.origin() is None or match.node_id is None or match.manager is None or not running:
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
        """Return new and changed events, by subject (`new_facts`). `failures`: by node, why its total could not be set."""
        return new_facts(self._nodes, self._published, self.rounding, matches, reports, failures, now)

    def head_of(self, subject: str) -> int:
        """Return the last known sequence of a `yarn.*` subject, the expectation of the next write; 0 for none."""
        corrected = self._corrected.get(subject)
        return corrected if corrected is not None else self._sequences.of(subject)

    def correct_head(self, subject: str, sequence: int) -> None:
        """Replace the expectation after a refused write: a tombstone has expired, or is no longer known. Holds until the
        next message of the subject is folded."""
        self._corrected[subject] = sequence
