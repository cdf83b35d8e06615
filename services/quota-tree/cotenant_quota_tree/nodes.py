"""The cluster's total: the fold over node objects, executors' reports and overcommitted resources.

In: Node objects, ExecutorStatus and NodeResources. Out: the cluster's total by resource. A node counts with its allocatable by
`cotenant.domain.node`, the same amounts that the scheduler uses. Cordoned and not-ready nodes count, as in Koordinator. A
terminating node does not count, whatever is written to it afterwards; this depends on the last message of its object only, so
the total is the same after a restart.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.api.objects.node import Node, decode_node
from cotenant.domain.node import NodeSources
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus
from cotenant.model.amounts import minus, plus, without_zeros
from cotenant.model.quantities import QuantityError

_NOTHING = NodeSources()


class _Marks(View, frozen=True, kw_only=True):
    deletion_timestamp: object = None


class _Marked(View, frozen=True, kw_only=True):
    metadata: _Marks = _Marks()


_MARKED = msgspec.json.Decoder(_Marked)


def counted_node(document: bytes | msgspec.Raw) -> Node | None:
    """Return the typed view of a stored Node; None if it is terminating (with any form of the timestamp). Raises
    msgspec.DecodeError."""
    return None if _MARKED.decode(document).metadata.deletion_timestamp is not None else decode_node(document)


class NodeOffers:
    """A mutable fold."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeSources] = {}
        self._counted: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}
        """The sum over all declared nodes, updated by adding and subtracting whole nodes; a new dictionary on every change.
        Resources that no node offers are missing."""

    def declare(self, name: str, node: Node | None) -> None:
        """Fold the node's object; None once it is deleted or terminating. On QuantityError the node does not count."""
        self._change(name, msgspec.structs.replace(self._sources(name), node=node))

    def report(self, name: str, status: ExecutorStatus | None) -> None:
        """Fold the executor's report; None once it is removed."""
        self._change(name, msgspec.structs.replace(self._sources(name), executor=status))

    def overcommit(self, name: str, resources: NodeResources | None) -> None:
        """Fold the node's batch and mid resources; None once they are removed."""
        self._change(name, msgspec.structs.replace(self._sources(name), resources=resources))

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
