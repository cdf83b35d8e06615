"""The plugins that run by default, and their configuration. Order and weights are those of kube-scheduler and of
Koordinator's profile."""

from __future__ import annotations

import msgspec

from cotenant.domain.quota.trees.rules import Rules
from cotenant.domain.quota.trees.terminating import Terminating
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.framework.queue_args import QueueArgs
from cotenant_scheduler.plugins.balanced import NodeResourcesBalancedAllocation
from cotenant_scheduler.plugins.host_ports import NodePorts
from cotenant_scheduler.plugins.image_locality import ImageLocality
from cotenant_scheduler.plugins.load_aware import LoadAwareScheduling
from cotenant_scheduler.plugins.node_affinity import NodeAffinityMatch
from cotenant_scheduler.plugins.pod_affinity import InterPodAffinity
from cotenant_scheduler.plugins.pod_relations import PodRelations
from cotenant_scheduler.plugins.reservation.args import ReservationArgs
from cotenant_scheduler.plugins.reservation.reserve_pods import ReservePods
from cotenant_scheduler.plugins.resource_fit import NodeResourcesFit, ScoringStrategy
from cotenant_scheduler.plugins.taints import TaintToleration
from cotenant_scheduler.plugins.topology_spread import PodTopologySpread
from cotenant_scheduler.plugins.unschedulable import NodeUnschedulable
from cotenant_scheduler.state.gangs import CoschedulingArgs
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs


class SchedulerConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The scheduler's configuration. `weights`: plugin name to weight instead of the default; 0 disables a score."""

    load_aware: LoadAwareArgs = LoadAwareArgs()
    weights: dict[str, int] = {}
    scoring_strategy: ScoringStrategy = ScoringStrategy.LEAST_ALLOCATED
    """How NodeResourcesFit scores."""
    quota_runtime_limits: bool = True
    """Quotas limit by their runtime; false: by their max."""
    quota_check_ancestors: bool = True
    quota_scale_min: bool = True
    quota_guarantee_usage: bool = False
    quota_terminating_pods: Terminating = Terminating.COUNT
    quota_ignore_pod_overhead: bool = False
    """The rules by which runtimes are computed: those of quota-tree (`scale_min`, `guarantee_usage`, ...), which need the same
    values."""
    coscheduling: CoschedulingArgs = CoschedulingArgs()
    reservation: ReservationArgs = ReservationArgs()
    queue: QueueArgs = QueueArgs()
    disable_default_quota_preemption: bool = True
    """Pods of the default quota are not preempted for other pods of it that the quota has no room for."""

    def quota_rules(self) -> Rules:
        """Return the rules by which runtimes are computed."""
        return Rules(
            scale_min=self.quota_scale_min,
            guarantee_usage=self.quota_guarantee_usage,
            terminating=self.quota_terminating_pods,
            ignore_overhead=self.quota_ignore_pod_overhead,
        )


def default_profile(config: SchedulerConfig) -> Profile:
    """Return the profile of a scheduler; each needs its own, as plugins hold counters."""
    fit = NodeResourcesFit(config.scoring_strategy)
    affinity, taints, load = NodeAffinityMatch(), TaintToleration(), LoadAwareScheduling()
    balanced, images = NodeResourcesBalancedAllocation(), ImageLocality()
    ports, relations, reserve_pods = NodePorts(), PodRelations(), ReservePods()
    spread, together = PodTopologySpread(relations), InterPodAffinity(relations)
    return Profile(
        filters=(NodeUnschedulable(), taints, affinity, ports, fit, spread, together, load, reserve_pods),
        scores=(taints, affinity, fit, balanced, images, load),
        spanning_scores=(spread, together),
        counters=(ports, relations),
        readers=(reserve_pods,),
        weights=config.weights,
    )
