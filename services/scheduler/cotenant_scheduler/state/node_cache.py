"""Folds the messages about nodes, and keeps the node table current.

In: events of Node objects, `node.*.executor`, `.resources`, `.condition` and `metrics.*`, in any order. Out: `facts` per node,
and, once `settle` is called, the table's rows: a node that several messages changed is described once. When a node's object or
its executor changes, the pods on it are inspected again.
"""

from __future__ import annotations

from collections.abc import Callable

from cotenant.api.objects.node import decode_node
from cotenant.domain.node import NodeSources
from cotenant.domain.quota.trees.node_totals import NodeTotals, is_terminating
from cotenant.events.envelope import Event
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.objects import ObjectStored
from cotenant.model.quantities import QuantityError
from cotenant.model.subjects import node_subject
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.node_facts import NodeMessages, describe, report_of, sources_of
from cotenant_scheduler.state.nodes import NodeTable


class NodeCache:
    """The state of each node."""

    def __init__(self, table: NodeTable, args: LoadAwareArgs, look_at_pods_of: Callable[[str], None]) -> None:
        self.facts: dict[str, NodeMessages] = {}
        self._table = table
        self._args = args
        self._look_at_pods_of = look_at_pods_of
        self.totals = NodeTotals()
        """What the nodes offer to quotas, as of the last `settle`."""
        self.undescribed: dict[str, None] = {}
        """Names of the nodes that changed since the table was last updated."""

    def fold_object(self, name: str, event: Event) -> None:
        """Take over a node's object. Raises DecodeError; the node is then not declared."""
        facts = self._of(name)
        self.undescribed[name] = None
        if event.tombstone or not isinstance(event.data, ObjectStored):
            facts.node = None
            facts.sequences.pop("object", None)
        else:
            if "object" not in facts.sequences:
                self._look_at_pods_of(name)
            facts.sequences["object"] = event.sequence
            facts.node = None
            facts.node = decode_node(event.data.object)
            facts.terminating = is_terminating(event.data.object)
            return
        self._look_at_pods_of(name)
        self._forget_if_empty(facts)

    def fold_part(self, name: str, part: str, event: Event) -> None:
        """Take over a message of the executor, the resource calculator or the arbiter: `part` is the subject's token."""
        facts = self._of(name)
        data = None if event.tombstone else event.data
        if data is None:
            facts.sequences.pop(part, None)
        else:
            facts.sequences[part] = event.sequence
        if part == "resources":
            facts.resources = data if isinstance(data, NodeResources) else None
        elif part == "executor":
            facts.executor = data if isinstance(data, ExecutorStatus) else None
        else:
            facts.condition = data if isinstance(data, NodeCondition) else None
        if part == "executor":
            self._look_at_pods_of(name)
        self.undescribed[name] = None
        self._forget_if_empty(facts)

    def fold_metric(self, name: str, event: Event) -> None:
        """Take over a node's metric."""
        facts = self._of(name)
        if event.tombstone or not isinstance(event.data, NodeMetricComputed):
            facts.metric = None
            facts.sequences.pop("metric", None)
        else:
            facts.metric = event.data
            facts.sequences["metric"] = event.sequence
        self._report(facts)
        self._forget_if_empty(facts)

    def _of(self, name: str) -> NodeMessages:
        facts = self.facts.get(name)
        if facts is None:
            facts = self.facts[name] = NodeMessages(name)
        facts.changing()
        return facts

    def settle(self) -> dict[str, str]:
        """Update the table with the messages folded since. Returns, by the subject of their objects, why some nodes are not
        declared."""
        refused: dict[str, str] = {}
        for name in self.undescribed:
            facts = self.facts.get(name)
            description = None
            if facts is not None:
                try:
                    description = describe(facts, self._args)
                    self.totals.offer(name, description.allocatable if description and not facts.terminating else {})
                except QuantityError as error:
                    subject = node_subject(name)
                    refused[subject] = f"{subject} at LOG:{facts.sequences['object']} is not used: {error}"
                    self.totals.change(name, NodeSources() if facts.terminating else sources_of(facts))
            else:
                self.totals.offer(name, {})
            if facts is None or description is None:
                self._table.withdraw(name)
                continue
            unknown = not self._table.is_declared(name)
            self._table.declare(description)
            if unknown:
                self._report(facts)
        self.undescribed.clear()
        return refused

    def _report(self, facts: NodeMessages) -> None:
        metric = facts.metric
        if metric is None:
            self._table.report(facts.name, None)
        else:
            report = report_of(metric, self._table.load.resources)
            self._table.report(facts.name, report, unknown=metric.unknown_since is not None)

    def _forget_if_empty(self, facts: NodeMessages) -> None:
        if facts.empty:
            self.facts.pop(facts.name, None)
