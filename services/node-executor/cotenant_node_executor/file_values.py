"""What a node's kernel files shall say in a cycle, made anew only where something has changed.

In: the observation, the pods' views, groups about to be made, the node SLO. Out: one composed value for each file and the
suppression among them. Every value follows from these alone: what is kept of the last cycle saves time, nothing else. The
values are handed out whole in every cycle, so whoever writes them can repair a file that somebody else changed.

| source of wishes | made from | anew when |
|---|---|---|
| a pod | its shape, the policy | its placement or the policy changes, its group comes or goes |
| identity, idle, pod values of the node | the situation | any pod or group comes or goes, the policy changes |
| suppression | the best-effort tree, the policy; where it is enabled usage and present values too | one of these changes |
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from cotenant.events.resources import NodeSLORendered
from cotenant_node_executor.composer import Composed, Composer
from cotenant_node_executor.kernel.interface import Capabilities
from cotenant_node_executor.observation import Observation
from cotenant_node_executor.sampling.snapshot import Snapshot
from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values
from cotenant_node_executor.strategies.situation import (
    REMEMBERED_SHAPES,
    NodeFacts,
    PodShape,
    PodView,
    PodWishes,
    Policy,
    Situation,
    Wishes,
    best_effort_tree,
    holding_cpus,
    in_best_effort_tree,
)
from cotenant_node_executor.strategies.suppress import Suppression, suppress

SUPPRESSION, IDENTITY, IDLE, POD_VALUES = "node:suppression", "node:identity", "node:idle", "node:pod-values"
"""Sources of wishes beside the pods, which go by their groups: no group has a colon in its name."""


class FileValues:
    """The files of one node. Bound: the last cycle."""

    def __init__(self, facts: NodeFacts, capabilities: Capabilities) -> None:
        self._facts = facts
        self._capabilities = capabilities
        self._composer = Composer()
        self._placed: Mapping[str, PodView] = {}
        self._situation: Situation | None = None
        """The last cycle's, without snapshot and present values; it stands as long as nothing that it is made from changes."""
        self._groups: frozenset[str] = frozenset()
        """As the last cycle saw and needed them."""
        self._policy = Policy(capabilities, None, None, None)
        self._there: Mapping[str, PodView] = {}
        """By group: the pods whose wishes stand, as they were when they wished."""
        self._burstable_milli = 0
        """What the burstable ones among them request."""
        self._of_shape: dict[PodShape, PodWishes] = {}
        """What pods wish under the policy. Bound: REMEMBERED_SHAPES, then it begins anew."""
        self._suppressed: tuple[Observation, Situation, Suppression | None] | None = None

    def of_cycle(
        self, seen: Observation, placed: Mapping[str, PodView], needed: Sequence[str], slo: NodeSLORendered | None
    ) -> tuple[Composed, Suppression | None]:
        """The values of a cycle. `placed`, by group, is the same object while no placement changed."""
        groups = seen.groups.union(needed) if needed else seen.groups
        situation = self._situation
        if (
            situation is None
            or placed is not self._placed
            or slo is not situation.slo
            or seen.identity_sysctl != situation.identity_sysctl
            or (groups is not self._groups and groups != self._groups)
        ):
            situation = self._situation = self._situated(placed, groups, slo, seen.identity_sysctl)
        self._placed, self._groups = placed, groups
        suppression = self._suppression(situation, seen)
        return self._composer.composed(), suppression

    def _situated(
        self, placed: Mapping[str, PodView], groups: frozenset[str], slo: NodeSLORendered | None, sysctl: int | None
    ) -> Situation:
        """The situation; the pods that changed wish anew, and the strategies that look at the node as a whole."""
        before, tree = self._there, self._situation.tree if self._situation is not None else None
        there = placed if placed.keys() <= groups else {group: pod for group, pod in placed.items() if group in groups}
        came = [pod for group, pod in there.items() if before.get(group) is not pod]
        went = [pod for group, pod in before.items() if there.get(group) is not pod]
        if any(pod.bound_cpus for pod in (*came, *went)) or any(map(in_best_effort_tree, groups ^ self._groups)):
            tree = None
        situation = Situation(
            node=self._facts,
            capabilities=self._capabilities,
            pods=there,
            groups=groups,
            tree=tree or best_effort_tree(holding_cpus(there.values()), groups),
            slo=slo,
            snapshot=None,
            current={},
            identity_sysctl=sysctl,
        )
        self._there = there
        self._wish(situation, came, went)
        return situation

    def _wish(self, situation: Situation, came: Sequence[PodView], went: Sequence[PodView]) -> None:
        put, policy, slo = self._composer.put, self._policy, situation.slo
        for pod in went:
            self._burstable_milli -= pod_values.burstable_milli(pod.shape)
            if pod.group not in situation.pods:
                put(pod.group, {})
        for pod in came:
            self._burstable_milli += pod_values.burstable_milli(pod.shape)
        if policy.slo is not slo:
            rules = identity.bvt_rule(slo, self._capabilities), idle.idle_rule(slo, self._capabilities)
            policy = self._policy = Policy(self._capabilities, slo, *rules)
            self._of_shape.clear()
            came = [*situation.pods.values()]
        for pod in came:
            put(pod.group, self._pod_wishes(pod, policy))
        put(IDENTITY, identity.identity(situation, policy))
        put(IDLE, idle.node_wishes(situation, policy))
        put(POD_VALUES, pod_values.node_wishes(self._facts.allocatable_milli, self._burstable_milli))

    def _pod_wishes(self, pod: PodView, policy: Policy) -> Wishes:
        wishes = self._of_shape.get(pod.shape)
        if wishes is None:
            if len(self._of_shape) >= REMEMBERED_SHAPES:
                self._of_shape.clear()
            wishes = self._of_shape[pod.shape] = _wishes_of(pod.shape, policy)
        return dict(zip((pod.group, *pod.container_groups), (wishes.pod, *wishes.containers), strict=True))

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
        self._composer.put(SUPPRESSION, suppression.wishes if suppression is not None else {})
        return suppression


def _wishes_of(pod: PodShape, policy: Policy) -> PodWishes:
    """Wishes for the groups of a pod of some shape, of all strategies that look at it alone."""
    plain, batch = pod_values.pod_wishes(pod), batch_pods.pod_wishes(pod, policy)
    own = (*idle.pod_wishes(pod, policy), *plain.pod)
    if batch is None:
        return PodWishes(own, plain.containers)
    return PodWishes((*batch.pod, *own), tuple(map(operator.add, batch.containers, plain.containers)))


def _same_usage(before: Snapshot | None, now: Snapshot | None) -> bool:
    """Whether two snapshots give suppression the same figures; cheap, so not every such pair is found."""
    if before is now or before is None or now is None:
        return before is now
    return before.pods is now.pods and before.node.cpu_milli == now.node.cpu_milli
