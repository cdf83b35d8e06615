"""The nodes' allocatable: the fold over node objects, executors' reports and overcommitted resources.

In: Node objects, ExecutorStatus, NodeResources and NodeCondition. Out: the cluster's total by resource
(`cotenant.domain.quota.trees.node_totals`), and each node's amounts for quota profiles. For a profile a node is schedulable
if it is not cordoned and ready: by the Ready condition in its object, else by its condition event, else it counts as ready.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.api.objects.node import Node
from cotenant.domain.node import NodeSources
from cotenant.domain.quota.trees.node_totals import NodeTotals
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant_quota_tree.profiles import NodeOffer

_NOTHING = NodeSources()


class _Condition(View, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""


class _Conditions(View, frozen=True, kw_only=True):
    conditions: list[_Condition] = []


class _Reported(View, frozen=True, kw_only=True):
    status: _Conditions = _Conditions()


_REPORTED = msgspec.json.Decoder(_Reported)


def declared_ready(document: bytes | msgspec.Raw) -> bool | None:
    """Return the Ready condition of a stored Node; None if it has none. Raises msgspec.DecodeError."""
    conditions = _REPORTED.decode(document).status.conditions
    return next((condition.status == "True" for condition in conditions if condition.type == "Ready"), None)


class NodeOffers:
    """A mutable fold."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeSources] = {}
        self._ready: dict[str, bool] = {}
        """Nodes with a Ready condition in their object."""
        self._totals = NodeTotals()

    @property
    def total(self) -> dict[str, int]:
        """The allocatable of all nodes; a new dictionary on every change."""
        return self._totals.total

    def declare(self, name: str, node: Node | None, ready: bool | None = None) -> None:
        """Fold the node's object; None once it is deleted or terminating. `ready`: its Ready condition. Raises QuantityError,
        as all folds do, for a node that cannot be read: it does not count."""
        if ready is None:
            self._ready.pop(name, None)
        else:
            self._ready[name] = ready
        self._change(name, msgspec.structs.replace(self._sources(name), node=node))

    def report(self, name: str, status: ExecutorStatus | None) -> None:
        """Fold the executor's report; None once it is removed."""
        self._change(name, msgspec.structs.replace(self._sources(name), executor=status))

    def overcommit(self, name: str, resources: NodeResources | None) -> None:
        """Fold the node's batch and mid resources; None once they are removed."""
        self._change(name, msgspec.structs.replace(self._sources(name), resources=resources))

    def judge(self, name: str, condition: NodeCondition | None) -> None:
        """Fold the node's readiness; None once it is removed."""
        self._change(name, msgspec.structs.replace(self._sources(name), condition=condition))

    def offer(self, name: str) -> NodeOffer | None:
        """Return a node's amounts for profiles; None if it does not count."""
        sources = self._sources(name)
        if sources.node is None:
            return None
        ready = self._ready.get(name)
        if ready is None:
            ready = sources.condition is None or sources.condition.ready
        return NodeOffer(sources.labels(), self._totals.counted.get(name, {}), ready and not sources.unschedulable())

    def offers(self) -> Iterator[tuple[str, NodeOffer]]:
        """Walk the amounts of all nodes."""
        for name in self._nodes:
            offer = self.offer(name)
            if offer is not None:
                yield name, offer

    def _sources(self, name: str) -> NodeSources:
        return self._nodes.get(name, _NOTHING)

    def _change(self, name: str, sources: NodeSources) -> None:
        if sources == _NOTHING:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = sources
        error = self._totals.change(name, sources)
        if error is not None:
            raise error
