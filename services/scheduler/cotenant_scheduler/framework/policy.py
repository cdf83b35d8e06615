"""The policy in force: which plugins run, in which order, with which weights.

In: nothing but configuration. Out: `Policy`. The order of filters is the order in which a node's refusal is reported
(the first one counts). Defaults are those of kube-scheduler and Koordinator's profile.
"""

from __future__ import annotations

import msgspec

from cotenant_scheduler.plugins import Filter, RelationalScore, Score
from cotenant_scheduler.plugins.balanced import NodeResourcesBalancedAllocation
from cotenant_scheduler.plugins.host_ports import NodePorts
from cotenant_scheduler.plugins.image_locality import ImageLocality
from cotenant_scheduler.plugins.load_aware import LoadAwareScheduling
from cotenant_scheduler.plugins.node_affinity import NodeAffinityMatch
from cotenant_scheduler.plugins.pod_affinity import InterPodAffinity
from cotenant_scheduler.plugins.resource_fit import NodeResourcesFit, ScoringStrategy
from cotenant_scheduler.plugins.taints import TaintToleration
from cotenant_scheduler.plugins.topology_spread import PodTopologySpread
from cotenant_scheduler.plugins.unschedulable import NodeUnschedulable
from cotenant_scheduler.state.load_aware_args import LoadAwareArgs


class SchedulerConfig(msgspec.Struct, frozen=True, rename="camel"):
    """What a user may set. `weights`: plugin name to weight in place of the default; 0 takes a score out."""

    load_aware: LoadAwareArgs = LoadAwareArgs()
    weights: dict[str, int] = {}
    scoring_strategy: ScoringStrategy = ScoringStrategy.LEAST_ALLOCATED
    """How NodeResourcesFit scores."""
    quota_runtime_limits: bool = True
    """A quota limits by its runtime; false: by its max."""
    quota_check_ancestors: bool = True


class Policy:
    """Plugins in their order. `filters[i]`'s codes are shown to callers as `i * CODES_PER_FILTER + code`."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.load_aware = config.load_aware.defaulted()
        fit = NodeResourcesFit(config.scoring_strategy)
        affinity, taints, load = NodeAffinityMatch(), TaintToleration(), LoadAwareScheduling()
        spread, together = PodTopologySpread(), InterPodAffinity()
        self.filters: tuple[Filter, ...] = (NodeUnschedulable(), taints, affinity, NodePorts(), fit, spread, together, load)
        balanced, images = NodeResourcesBalancedAllocation(), ImageLocality()
        scores: tuple[Score, ...] = (taints, affinity, fit, balanced, images, load)
        self.scores = tuple(score for score in scores if self.weight(score))
        self.weights = tuple(self.weight(score) for score in self.scores)
        relational: tuple[RelationalScore, ...] = (spread, together)
        self.relational = tuple((score, self.weight(score)) for score in relational if self.weight(score))

    def weight(self, score: Score | RelationalScore) -> int:
        """The weight of a score in this policy."""
        return self.config.weights.get(score.name, score.weight)


CODES_PER_FILTER = 4096
"""Room for one filter's codes."""

NOT_DECLARED = -1
"""Code of a row without a declared node; it is not counted among the nodes."""
