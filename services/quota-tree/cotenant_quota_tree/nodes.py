"""The cluster's total: the fold over node objects, executors' reports and overcommitted resources.

In: Node objects, ExecutorStatus, NodeResources and NodeCondition. Out: the cluster's total by resource, and what each node
offers to quota profiles. A node counts with its allocatable by `cotenant.domain.node`, the same amounts that the scheduler
uses. Cordoned and not-ready nodes count, as in Koordinator. A terminating node does not count, whatever is written to it
afterwards; this depends on the last message of its object only, so the total is the same after a restart. For a profile a node
is schedulable if it is not cordoned and ready: as the Ready condition in its object says, else as its condition event does,
else it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.api.objects.node import Node, decode_node
from cotenant.domain.node import NodeSources
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.amounts import minus, plus, without_zeros
from cotenant.model.quantities import QuantityError
from cotenant_quota_tree.profiles import NodeOffer

_NOTHING = NodeSources()


class _Marks(View, frozen=True, kw_only=True):
    deletion_timestamp: object = None


class _Marked(View, frozen=True, kw_only=True):
    metadata: _Marks = _Marks()


class _Condition(View, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""


class _Conditions(View, frozen=True, kw_only=True):
    conditions: list[_Condition] = []


class _Reported(View, frozen=True, kw_only=True):
    status: _Conditions = _Conditions()


_MARKED = msgspec.json.Decoder(_Marked)
_REPORTED = msgspec.json.Decoder(_Reported)


def declared_ready(document: bytes | msgspec.Raw) -> bool | None:
    """Return what the Ready condition in a stored Node says; None where it has none. Raises msgspec.DecodeError."""
    conditions = _REPORTED.decode(document).status.conditions
    return next((condition.status == "True" for condition in conditions if condition.type == "Ready"), None)


def counted_node(document: bytes | msgspec.Raw) -> Node | None:
    """Return the typed view of a stored Node; None if it is terminating (with any form of the timestamp). Raises
    msgspec.DecodeError."""
    return None if _MARKED.decode(document).metadata.deletion_timestamp is not None else decode_node(document)


class NodeOffers:
    """A mutable fold."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeSources] = {}
        self._counted: dict[str, dict[str, int]] = {}
        self._ready: dict[str, bool] = {}
        """Nodes whose object says whether they are ready."""
        self.total: dict[str, int] = {}
        """The sum over all declared nodes, updated by adding and subtracting whole nodes; a new dictionary on every change.
        Resources that no node offers are missing."""

    def declare(self, name: str, node: Node | None, ready: bool | None = None) -> None:
        """Fold the node's object; None once it is deleted or terminating. On QuantityError the node does not count. `ready`:
        what its object says."""
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
        """Return what a node offers to profiles; None if it does not count."""
        sources = self._sources(name)
        if sources.node is None:
            return None
        ready = self._ready.get(name)
        if ready is None:
            ready = sources.condition is None or sources.condition.ready
        return NodeOffer(sources.labels(), self._counted[name], ready and not sources.unschedulable())

    def offers(self) -> Iterator[tuple[str, NodeOffer]]:
        """Walk what all nodes offer."""
        for name in self._nodes:
            offer = self.offer(name)
            if offer is not None:
                yield name, offer

    def _sources(self, name: str) -> NodeSources:
        return self._nodes.get(name, _NOTHING)

    def _change(self, name: str, sources: NodeSources) -> None:
        unreadable: QuantityError | None = None
        try:
            after = sources.allocatable()
        except QuantityError as error:
            unreadable, after, sources = error, {}, msgspec.structs.replace(sources, node=None)
        before = self._counted.get(name, {})
        if sources == _NOTHING:
            self._nodes.pop(name, None)
            self._counted.pop(name, None)
        else:
            self._nodes[name], self._counted[name] = sources, after
        if after != before:
            self.total = without_zeros(minus(plus(self.total, after), before))
        if unreadable is not None:
            raise unreadable
