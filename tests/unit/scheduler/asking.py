"""Plugins asked by themselves: a small cluster, and what one filter or score of the profile answers for a pod of it.

A pod that is asked about waits behind a gate, so it is read and never placed; a pod that names its node is placed there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cotenant_scheduler.framework.plugin import Refusal, filter_of_row, score_of_row
from cotenant_scheduler.state.reading.shapes import Shape
from tests.unit.scheduler.builders_scheduler import Story, pod

GATE = [{"name": "example.com/later"}]


class Asking(Story):
    """A story whose plugins can be asked."""

    def ask_for(self, name: str, **more: Any) -> None:
        """Bring a pod that is only asked about."""
        self.pod(pod(name, schedulingGates=GATE, **more))

    def put(self, name: str, node: str, **more: Any) -> None:
        """Bring a pod that is on a node."""
        self.pod(pod(name, nodeName=node, **more))

    def current(self) -> None:
        """Place what names its node, and bring reports up to now."""
        self.settle()
        self.core.nodes.expire(int(self.now.timestamp() * 1_000_000))

    def shape(self, name: str) -> Shape:
        facts = self.core.pods.records["default", name].facts
        assert facts is not None
        assert facts.shape is not None
        return facts.shape

    def codes(self, plugin: str, name: str) -> dict[str, int]:
        """The filter's code of each node; asked about all at once, about all but the first, and about each alone."""
        self.current()
        nodes, shape = self.core.nodes, self.shape(name)
        found = next(f for f in self.core.profile.filters if f.name == plugin)
        codes = found.filter(nodes, shape, nodes.all_rows).tolist()
        alone = filter_of_row(found, nodes, shape)
        assert codes == [alone(row) for row in range(nodes.size)]
        assert found.filter(nodes, shape, slice(1, nodes.size)).tolist() == codes[1:]
        return dict(zip(nodes.names, codes, strict=True))

    def refused(self, plugin: str, name: str) -> set[str]:
        """The nodes that the filter keeps the pod off."""
        return {node for node, code in self.codes(plugin, name).items() if code}

    def reason(self, plugin: str, name: str, code: int) -> Refusal:
        """The filter's words for a code, about all nodes that have it."""
        rows = np.array([self.core.nodes.rows[node] for node, c in self.codes(plugin, name).items() if c == code])
        found = next(f for f in self.core.profile.filters if f.name == plugin)
        return found.reason(self.core.nodes, self.shape(name), code, rows)

    def scores(self, plugin: str, name: str) -> dict[str, int]:
        """The raw score of each node; asked about all at once, about all but the first, and about each alone."""
        self.current()
        nodes, shape = self.core.nodes, self.shape(name)
        found = next(s for s in self.core.profile.scores if s.name == plugin)
        scores = found.score(nodes, shape, nodes.all_rows).tolist()
        alone = score_of_row(found, nodes, shape)
        assert scores == [alone(row) for row in range(nodes.size)]
        assert found.score(nodes, shape, slice(1, nodes.size)).tolist() == scores[1:]
        return dict(zip(nodes.names, scores, strict=True))

    def spanning_scores(self, plugin: str, name: str, *infeasible: str) -> dict[str, int]:
        """The normalised score of each node, where these nodes cannot take the pod."""
        self.current()
        nodes = self.core.nodes
        feasible = np.array([node not in infeasible for node in nodes.names])
        found = next(s for s, _ in self.core.profile.spanning_scores if s.name == plugin)
        return dict(zip(nodes.names, found.score_all(nodes, self.shape(name), feasible).tolist(), strict=True))
