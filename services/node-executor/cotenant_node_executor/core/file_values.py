"""What a node's kernel files shall say in a cycle, made anew only where something has changed.

In: the observation, the pods' views, groups about to be made, the node SLO. Out: one composed value for each file and the
suppression among them. Every value follows from these alone: what is kept of the last cycle saves time, nothing else. The
values are handed out whole in every cycle, so whoever writes them can repair a file that somebody else changed.

| source of wishes | made from | anew when |
|---|---|---|
| a pod | its shape, the policy | its placement or the policy changes, its group comes or goes |
| identity, idle | the situation, where a rule looks at all pods | any pod or group comes or goes, the policy changes |
| the burstable group | the sum of what burstable pods request | the sum changes |
| suppression | the best-effort tree, the policy; where it is enabled usage and present values too | one of these changes |
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set

from cotenant.events.resources import NodeSLORendered
from cotenant_node_executor.core.composer import Composed, Composer
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.sampling.snapshot import Snapshot
from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values
from cotenant_node_executor.strategies.situation import (
    REMEMBERED_SHAPES,
    NodeFacts,
    PodShape,
    PodView,
    Policy,
    Situation,
    Wish,
    Wishes,
    best_effort_tree,
    holding_cpus,
    in_best_effort_tree,
)
from cotenant_node_executor.strategies.suppress import Suppression, suppress
from cotenant_node_executor.targets.interface import Capabilities, Knob

SUPPRESSION, IDENTITY, IDLE = "node:suppression", "node:identity", "node:idle"
POD_VALUES, BURSTABLE_VALUES = "node:pod-values", "node:burstable-values"
"""Sources of wishes beside the pods, which go by their groups: no group has a colon in its name."""


class FileValues:
    """The files of one node. Bound: the last cycle."""

    def __init__(self, facts: NodeFacts, capabilities: Capabilities) -> None:
        self._facts = facts
        self._capabilities = capabilities
        self._composer = Composer()
        self._composer.put(POD_VALUES, pod_values.node_wishes(facts.allocatable_milli))
        self._composer.put(BURSTABLE_VALUES, pod_values.burstable_wishes(0))
        self._groups: frozenset[str] = frozenset()
        """As the last cycle saw and made them."""
        self._sysctl: int | None = None
        self._policy = Policy(capabilities, None, None, None)
        self._there: dict[str, PodView] = {}
        """By group: the placed pods whose groups are there, as they were when they wished."""
        self._burstable_milli = 0
        """What the burstable ones among them request."""
        self._tree = best_effort_tree((), ())
        self._of_shape: dict[PodShape, tuple[tuple[Wish, ...], ...]] = {}
        """What pods wish under the policy, group by group. Bound: REMEMBERED_SHAPES, then it begins anew."""
        self._suppression: Suppression | None = None
        self._suppressed: Observation | None = None
        """What the suppression was made from; None: it is to be made anew, whatever is observed."""

    def of_cycle(
        self,
        seen: Observation,
        placed: Mapping[str, PodView],
        turned: Set[str],
        made: Set[str],
        slo: NodeSLORendered | None,
    ) -> tuple[Composed, Suppression | None]:
        """The values of a cycle. `placed`: pods by group; `turned`: groups of which that says something else than in the last
        cycle; `made`: groups that were not seen and are made before anything is written."""
        groups = seen.groups | made if made else seen.groups
        if groups is not self._groups:
            if seen.groups is self._groups:
                turned = turned | made
            elif groups != self._groups:
                turned = turned | (groups ^ self._groups)
            self._groups = groups
        if turned or slo is not self._policy.slo or seen.identity_sysctl != self._sysctl:
            self._sysctl = seen.identity_sysctl
            self._wish(placed, turned, slo)
        before = self._suppressed
        if before is None or (slo is not None and slo.enable and not _same_figures(before, seen)):
            self._suppress(seen)
        return self._composer.composed(), self._suppression

    def _wish(self, placed: Mapping[str, PodView], turned: Set[str], slo: NodeSLORendered | None) -> None:
        """Let the pods wish anew that came or changed, and the strategies that look at the node as a whole."""
        put, there, policy, anew = self._composer.put, self._there, self._policy, self._policy.slo is not slo
        came: list[PodView] = []
        requested = self._burstable_milli
        of_tree = False
        for group in sorted(turned):
            if in_best_effort_tree(group):
                of_tree = True
            before, pod = there.get(group), placed.get(group) if group in self._groups else None
            if pod is before:
                continue
            if before is not None:
                requested -= pod_values.burstable_milli(before.shape)
                of_tree = of_tree or bool(before.bound_cpus)
            if pod is not None:
                requested += pod_values.burstable_milli(pod.shape)
                of_tree = of_tree or bool(pod.bound_cpus)
                there[group] = pod
                came.append(pod)
            else:
                del there[group]
                put(group, {})
        if of_tree:
            self._tree = best_effort_tree(holding_cpus(there.values()), self._groups)
            self._suppressed = None
        if requested != self._burstable_milli:
            self._burstable_milli = requested
            put(BURSTABLE_VALUES, pod_values.burstable_wishes(requested))
        if anew:
            rules = identity.bvt_rule(slo, self._capabilities), idle.idle_rule(slo, self._capabilities)
            policy = self._policy = Policy(self._capabilities, slo, *rules)
            self._of_shape.clear()
            came = [*there.values()]
        for pod in came:
            put(pod.group, self._pod_wishes(pod, policy))
        if anew or policy.looks_at_all:
            situation = self._situation(None, {})
            put(IDENTITY, identity.identity(situation, policy))
            put(IDLE, idle.node_wishes(situation, policy))
        if anew or (slo is not None and slo.enable):
            self._suppressed = None

    def _pod_wishes(self, pod: PodView, policy: Policy) -> Wishes:
        wishes = self._of_shape.get(pod.shape)
        if wishes is None:
            if len(self._of_shape) >= REMEMBERED_SHAPES:
                self._of_shape.clear()
            wishes = self._of_shape[pod.shape] = _wishes_of(pod.shape, policy)
        return dict(zip(pod.groups, wishes, strict=True))

    def _situation(self, snapshot: Snapshot | None, current: Mapping[tuple[str, Knob], str]) -> Situation:
        return Situation(
            node=self._facts,
            capabilities=self._capabilities,
            pods=self._there,
            groups=self._groups,
            tree=self._tree,
            slo=self._policy.slo,
            snapshot=snapshot,
            current=current,
            identity_sysctl=self._sysctl,
        )

    def _suppress(self, seen: Observation) -> None:
        suppression = self._suppression = suppress(self._situation(seen.snapshot, seen.current))
        self._suppressed = seen
        self._composer.put(SUPPRESSION, suppression.wishes if suppression is not None else {})


def _wishes_of(pod: PodShape, policy: Policy) -> tuple[tuple[Wish, ...], ...]:
    """Wishes for the groups of a pod of some shape, its own first, of all strategies that look at it alone."""
    plain, batch = pod_values.pod_wishes(pod), batch_pods.pod_wishes(pod, policy)
    own = (*idle.pod_wishes(pod, policy), *plain.pod)
    if batch is None:
        return (own, *plain.containers)
    return ((*batch.pod, *own), *map(operator.add, batch.containers, plain.containers))


def _same_figures(before: Observation, now: Observation) -> bool:
    """Whether two observations give suppression the same figures; cheap, so not every such pair is found."""
    return _same_usage(before.snapshot, now.snapshot) and before.current == now.current


def _same_usage(before: Snapshot | None, now: Snapshot | None) -> bool:
    if before is now or before is None or now is None:
        return before is now
    return before.pods is now.pods and before.node.cpu_milli == now.node.cpu_milli
