"""What a node's kernel files shall say in a cycle, made anew only where something has changed.

In: the observation, the pods' views, groups about to be made, the node SLO. Out: one composed value for each file and the
suppression among them. Every value follows from these alone: what is kept of the last cycle saves time, nothing else. The
values are handed out whole in every cycle, so whoever writes them can repair a file that somebody else changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cotenant.events.resources import NodeSLORendered
from cotenant_node_executor.composer import Composed, Composer
from cotenant_node_executor.kernel.interface import Capabilities
from cotenant_node_executor.observation import Observation
from cotenant_node_executor.strategies.situation import NodeFacts, PodView, Situation
from cotenant_node_executor.strategies.suppress import Suppression, suppress


class FileValues:
    """The files of one node. Bound: the last cycle."""

    def __init__(self, facts: NodeFacts, capabilities: Capabilities) -> None:
        self._facts = facts
        self._capabilities = capabilities
        self._composer = Composer()
        self._views: tuple[PodView, ...] = ()
        self._situation: Situation | None = None
        """The last cycle's, without snapshot and present values."""
        self._suppressed: tuple[Observation, Situation, Suppression | None] | None = None

    def of_cycle(
        self, seen: Observation, views: tuple[PodView, ...], needed: Sequence[str], slo: NodeSLORendered | None
    ) -> tuple[Composed, Suppression | None]:
        """The values of a cycle. `views` is the same object while no placement changed."""
        situation = self._situated(seen, views, needed, slo)
        suppression = self._suppression(situation, seen)
        return self._composer.compose(situation, suppression), suppression

    def _situated(
        self, seen: Observation, views: tuple[PodView, ...], needed: Sequence[str], slo: NodeSLORendered | None
    ) -> Situation:
        groups = tuple(sorted({*seen.groups, *needed})) if needed else seen.groups
        before = self._situation
        if (
            before is not None
            and self._views is views
            and before.slo is slo
            and before.identity_sysctl == seen.identity_sysctl
            and (before.groups is groups or before.groups == groups)
        ):
            return before
        there = frozenset(groups)
        self._views = views
        self._situation = Situation(
            node=self._facts,
            capabilities=self._capabilities,
            pods=tuple(view for view in views if view.group in there),
            groups=groups,
            slo=slo,
            snapshot=None,
            current={},
            identity_sysctl=seen.identity_sysctl,
        )
        return self._situation

    def _suppression(self, situation: Situation, seen: Observation) -> Suppression | None:
        """This cycle's suppression; the last one as long as situation, snapshot and present values are the same."""
        if self._suppressed is not None:
            before, situated, suppression = self._suppressed
            if situated is situation and before.snapshot is seen.snapshot and before.current == seen.current:
                return suppression
            if situated is situation and (situation.slo is None or not situation.slo.enable):
                # Nothing is measured then.
                return suppression
        suppression = suppress(replace(situation, snapshot=seen.snapshot, current=seen.current))
        self._suppressed = (seen, situation, suppression)
        return suppression
