"""What the nodes offer in sum: the fold over node objects, executors' reports and overcommitment.

In: Node objects, ExecutorStatus and NodeResources. Out: the cluster's total by resource. A node counts from when its
object is there; its allocatable is the executor's where one reports, else that of the object, and batch and mid
resources come on top as they are computed. Cordoned and not-ready nodes count, as they do in Koordinator. A resource
that the object itself declares as batch or mid (a node of a real cluster) is replaced by the computed one.
"""

import msgspec

from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus
from cotenant.model.amounts import minus, plus, without_zeros
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY


class _NodeFacts(msgspec.Struct, frozen=True):
    declared: dict[str, int] | None = None
    reported: dict[str, int] | None = None
    overcommitted: dict[str, int] | None = None

    def offers(self) -> dict[str, int]:
        if self.declared is None:
            return {}
        return {**self.declared, **(self.reported or {}), **(self.overcommitted or {})}


class NodeOffers:
    """Mutable; a fold."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeFacts] = {}
        self.total: dict[str, int] = {}
        """The sum over all declared nodes, kept by adding and taking away whole nodes; another dictionary whenever it changes.
        Resources that nobody offers are not in it."""

    def declare(self, node: str, allocatable: dict[str, int] | None) -> None:
        """The node's object, or None when it is gone."""
        self._change(node, msgspec.structs.replace(self._facts(node), declared=allocatable))

    def report(self, node: str, status: ExecutorStatus | None) -> None:
        """The executor's report, or None when it is gone."""
        reported = dict(status.allocatable) if status is not None else None
        self._change(node, msgspec.structs.replace(self._facts(node), reported=reported))

    def overcommit(self, node: str, resources: NodeResources | None) -> None:
        """Batch and mid resources of the node, or None when they are gone."""
        amounts = None
        if resources is not None:
            amounts = {
                BATCH_CPU: resources.batch_cpu_milli,
                BATCH_MEMORY: resources.batch_memory_bytes,
                MID_CPU: resources.mid_cpu_milli,
                MID_MEMORY: resources.mid_memory_bytes,
            }
        self._change(node, msgspec.structs.replace(self._facts(node), overcommitted=amounts))

    def _facts(self, node: str) -> _NodeFacts:
        return self._nodes.get(node, _NodeFacts())

    def _change(self, node: str, facts: _NodeFacts) -> None:
        before, after = self._facts(node).offers(), facts.offers()
        if facts == _NodeFacts():
            self._nodes.pop(node, None)
        else:
            self._nodes[node] = facts
        if after != before:
            self.total = without_zeros(minus(plus(self.total, after), before))
