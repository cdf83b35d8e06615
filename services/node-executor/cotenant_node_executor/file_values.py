"""What a node's kernel files shall say in a cycle, made anew only where something has changed.

In: the observation, the pods' views, groups about to be made, the node SLO. Out: one composed value for each file and the
suppression among them. Every value follows from these alone: what is kept of the last cycle saves time, nothing else. The
values are handed out whole in every cycle, so whoever writes them can repair a file that somebody else changed.

| source of wishes | made from | anew when |
|---|---|---|
| a pod | its view, the policy | its placement or the policy changes, its group comes or goes |
| identity, idle, pod values of the node | the situation | any pod or group comes or goes, the policy changes |
| suppression | the best-effort tree, the policy; where it is enabled usage and present values too | one of these changes |
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cotenant.events.resources import NodeSLORendered
from cotenant_node_executor.composer import Composed, Composer
from cotenant_node_executor.kernel.interface import Capabilities
from cotenant_node_executor.observation import Observation
from cotenant_node_executor.sampling.snapshot import Snapshot
from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values
from cotenant_node_executor.strategies.situation import NodeFacts, PodView, Policy, Situation, Wish, best_effort_tree
from cotenant_node_executor.strategies.suppress import Suppression, suppress

SUPPRESSION, IDENTITY, IDLE, POD_VALUES = "node:suppression", "node:identity", "node:idle", "node:pod-values"
"""Sources of wishes beside the pods, which go by their groups: no group has a colon in its name."""


class FileValues:
    """The files of one node. Bound: the last cycle."""

    def __init__(self, facts: NodeFacts, capabilities: Capabilities) -> None:
        self._facts = facts
        self._capabilities = capabilities
        self._composer = Composer()
        self._views: tuple[PodView, ...] = ()
        self._situation: Situation | None = None
        """The last cycle's, without snapshot and present values."""
        self._policy: Policy | None = None
        self._wished: dict[str, PodView] = {}
        """By group: the pods whose wishes stand, as they were when they wished."""
        self._suppressed: tuple[Observation, Situation, Suppression | None] | None = None

    def of_cycle(
        self, seen: Observation, views: tuple[PodView, ...], needed: Sequence[str], slo: NodeSLORendered | None
    ) -> tuple[Composed, Suppression | None]:
        """The values of a cycle. `views` is the same object while no placement changed."""
        situation = self._situated(seen, views, needed, slo)
        if situation is not self._situation:
            self._wish(situation)
            self._situation, self._views = situation, views
        suppression = self._suppression(situation, seen)
        return self._composer.composed(), suppression

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
        pods = tuple(view for view in views if view.group in there)
        tree = best_effort_tree(pods, groups)
        return Situation(
            node=self._facts,
            capabilities=self._capabilities,
            pods=pods,
            groups=groups,
            tree=before.tree if before is not None and before.tree == tree else tree,
            slo=slo,
            snapshot=None,
            current={},
            identity_sysctl=seen.identity_sysctl,
        )

    def _wish(self, situation: Situation) -> None:
        """Let the pods that changed wish anew, and the strategies that look at the node as a whole."""
        policy = self._policy
        if policy is None or policy.slo is not situation.slo:
            policy = Policy(self._capabilities, situation.slo, idle.idle_rule(situation.slo, self._capabilities))
        there = {pod.group: pod for pod in situation.pods}
        for group in [group for group in self._wished if group not in there]:
            self._composer.put(group, ())
        for group, pod in there.items():
            if self._wished.get(group) is not pod or policy is not self._policy:
                self._composer.put(group, _pod_wishes(pod, policy))
        self._wished, self._policy = there, policy
        self._composer.put(IDENTITY, identity.identity(situation))
        self._composer.put(IDLE, idle.node_wishes(situation, policy))
        self._composer.put(POD_VALUES, pod_values.node_wishes(situation))

    def _suppression(self, situation: Situation, seen: Observation) -> Suppression | None:
        """This cycle's suppression; the last one as long as what it follows from is the same."""
        if self._suppressed is not None:
            before, situated, suppression = self._suppressed
            if situated is situation and _same_usage(before.snapshot, seen.snapshot) and before.current == seen.current:
                return suppression
            measured = situation.slo is not None and situation.slo.enable
            if not measured and situated.slo is situation.slo and situated.tree is situation.tree:
                return suppression
        suppression = suppress(replace(situation, snapshot=seen.snapshot, current=seen.current))
        self._suppressed = (seen, situation, suppression)
        self._composer.put(SUPPRESSION, suppression.wishes if suppression is not None else ())
        return suppression


def _pod_wishes(pod: PodView, policy: Policy) -> list[Wish]:
    """Wishes for the groups of one pod that follow from it and the policy."""
    return [*idle.pod_wishes(pod, policy), *batch_pods.pod_wishes(pod, policy), *pod_values.pod_wishes(pod)]


def _same_usage(before: Snapshot | None, now: Snapshot | None) -> bool:
    """Whether two snapshots give suppression the same figures; cheap, so not every such pair is found."""
    if before is now or before is None or now is None:
        return before is now
    return before.pods is now.pods and before.node.cpu_milli == now.node.cpu_milli
