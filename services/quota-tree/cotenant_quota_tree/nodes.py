"""What the nodes offer in sum: the fold over node objects, executors' reports and overcommitment.

In: Node objects, ExecutorStatus and NodeResources. Out: the cluster's total by resource. A node counts with what
`cotenant.domain.node` calls allocatable, the same amounts that the scheduler places on. Cordoned and not-ready nodes count,
as they do in Koordinator.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.node import Node
from cotenant.domain.node import NodeSources
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus
from cotenant.model.amounts import minus, plus, without_zeros
from cotenant.model.quantities import QuantityError

_NOTHING = NodeSources()


class NodeOffers:
    """Mutable; a fold."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeSources] = {}
        self._counted: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}
        """The sum over all declared nodes, kept by adding and taking away whole nodes; another dictionary whenever it changes.
        Resources that nobody offers are not in it."""

    def declare(self, name: str, node: Node | None) -> None:
        """Fold the node's object, or None when it is gone. Raises QuantityError; the node then counts as not declared."""
        self._change(name, msgspec.structs.replace(self._sources(name), node=node))

    def report(self, name: str, status: ExecutorStatus | None) -> None:
        """Fold the executor's report, or None when it is gone."""
        self._change(name, msgspec.structs.replace(self._sources(name), executor=status))

    def overcommit(self, name: str, resources: NodeResources | None) -> None:
        """Fold the batch and mid resources of the node, or None when they are gone."""
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
