"""The state of nodes and pods at a sequence, for the bench's independent check of filters (`bench.audit`).

In: the view, a sequence, the active placements. Out: for a pod and a node, why the pod cannot be there; empty if it
can. Nodes are those whose object existed. Pods that had ended hold nothing. State is read on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from cotenant.api.objects.node import decode_node
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement
from cotenant.model.subjects import (
    condition_subject,
    executor_subject,
    metrics_subject,
    node_subject,
    resources_subject,
    tokens,
)
from cotenant_verification.bench.audit.neighbours import Neighbours
from cotenant_verification.bench.audit.rooms import Facts, NodeRoom, PodRequirements
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.needs import RequirementsCache
from cotenant_verification.checks.records import ObjectHead

_HEAD = msgspec.json.Decoder(ObjectHead)
PARTS = (executor_subject, condition_subject, resources_subject, metrics_subject)


class Nodes(Mapping[str, Facts]):
    """The messages up to a sequence about the nodes whose object exists, by name; each is read on demand."""

    def __init__(self, view: LogView, folded: int) -> None:
        self._view = view
        self._folded = folded
        self._read: dict[str, Facts | None] = {}

    def __getitem__(self, name: str) -> Facts:
        if name not in self._read:
            self._read[name] = self._facts(name)
        found = self._read[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        names = (tokens(subject)[-1] for subject in self._view.declared["nodes"])
        return (name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _facts(self, name: str) -> Facts | None:
        stored = self._view.version_at(node_subject(name), self._folded)
        if stored is None or not isinstance(stored.data, ObjectStored):
            return None
        facts = Facts(decode_node(stored.data.object))
        for part in PARTS:
            known = self._view.version_at(part(name), self._folded)
            if known is not None and isinstance(
                known.data, ExecutorStatus | NodeCondition | NodeResources | NodeMetricComputed
            ):
                facts.say(known.data)
        return facts


class Filters:
    """All filters, as of a sequence."""

    def __init__(self, view: LogView, needs: RequirementsCache, folded: int, placed: Mapping[str, Iterable[Placement]]) -> None:
        self._view = view
        self._needs = needs
        self.folded = folded
        self.facts = Nodes(view, folded)
        self._placed = placed
        self._rooms: dict[str, NodeRoom] = {}
        self._neighbours: Neighbours | None = None

    def _holding(self, node: str) -> Iterator[Placement]:
        for placement in self._placed.get(node, ()):
            ended = self._view.ended_runs.get((node, placement.uid))
            if ended is None or ended > self.folded:
                yield placement

    def room(self, node: str) -> NodeRoom:
        """The pods on one node."""
        known = self._rooms.get(node)
        if known is None:
            known = self._rooms[node] = NodeRoom()
            for placement in self._holding(node):
                known.add(f"{placement.namespace}/{placement.name}", self._needs.placed(placement), placement)
        return known

    @property
    def neighbours(self) -> Neighbours:
        """All placed pods, and the pods that their anti-affinity excludes."""
        if self._neighbours is None:
            namespaces = {}
            for subject in self._view.declared["namespaces"]:
                event = self._view.version_at(subject, self.folded)
                if event is not None and isinstance(event.data, ObjectStored):
                    namespaces[tokens(subject)[-1]] = _HEAD.decode(event.data.object).metadata.labels
            self._neighbours = Neighbours(self.facts, namespaces)
            for node in self._placed:
                for placement in self._holding(node):
                    self._neighbours.add(self._needs.placed(placement), node)
        return self._neighbours

    def judge(self, need: PodRequirements, now: datetime, placement: Placement | None = None) -> Callable[[str], str]:
        """Return a function from a node to the reason why it refuses the pod; `placement`: that it was given."""
        elsewhere = self.neighbours.judge(need)

        def refusal(node: str) -> str:
            facts = self.facts.get(node)
            if facts is None:
                return "no such node"
            return self.room(node).refusal(need, facts, now, placement) or elsewhere(node)

        return refusal

    def add(self, need: PodRequirements, placement: Placement) -> None:
        """Add a pod that is placed."""
        self.room(placement.node).add(f"{placement.namespace}/{placement.name}", need, placement)
        self.neighbours.add(need, placement.node)
