"""The plugins that run by default, and their configuration. Order and weights are those of kube-scheduler and of
Koordinator's profile."""

from __future__ import annotations

from typing import Annotated

import msgspec

from cotenant.domain.quota.hooks import HookPlugin
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.terminating import Terminating
from cotenant.model.bounds import MAX_SECONDS
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
from cotenant_scheduler.plugins.scheduling_hint import SchedulingHints
from cotenant_scheduler.plugins.taints import TaintToleration
from cotenant_scheduler.plugins.topology_spread import PodTopologySpread
from cotenant_scheduler.plugins.unschedulable import NodeUnschedulable
from cotenant_scheduler.plugins.volumes.node_volume_limits import NodeVolumeLimits
from cotenant_scheduler.plugins.volumes.volume_binding import VolumeBinding
from cotenant_scheduler.plugins.volumes.volume_restrictions import VolumeRestrictions
from cotenant_scheduler.state.gangs import CoschedulingArgs
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.reading.default_spread import PodTopologySpreadArgs
from cotenant_scheduler.state.volumes.volumes import Volumes


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
    hook_plugins: tuple[HookPlugin, ...] = ()
    """Rules of quota admission from other packages, asked in this order (`cotenant.domain.quota.hooks`)."""
    coscheduling: CoschedulingArgs = CoschedulingArgs()
    reservation: ReservationArgs = ReservationArgs()
    queue: QueueArgs = QueueArgs()
    pod_topology_spread: PodTopologySpreadArgs = PodTopologySpreadArgs()
    """Spread constraints of pods that state none."""
    scheduling_timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 30
    """A queued pod without any decision is overdue after so many seconds (a metric); 0: never."""
    dynamic_scheduler_check: bool = True
    """A placement that was decided before its pod was given to another scheduler, and stored after it, is taken back."""
    default_preemption_policy: str = ""
    """`Never` or `PreemptLowerPriority`: of pods without the label `scheduling.koordinator.sh/preemption-policy`, in place of
    what their spec says. Empty: what their spec says."""
    disable_default_quota_preemption: bool = True
    """Pods of the default quota are not preempted for other pods of it that the quota has no room for."""

    def quota_rules(self) -> QuotaRules:
        """Return the rules by which runtimes are computed."""
        return QuotaRules(
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
    ports, relations, reserve_pods, hint = NodePorts(), PodRelations(), ReservePods(), SchedulingHints()
    spread, together = PodTopologySpread(relations), InterPodAffinity(relations)
    volumes = Volumes()
    restrictions, limits, binding = VolumeRestrictions(volumes), NodeVolumeLimits(volumes), VolumeBinding(volumes)
    return Profile(
        filters=(
            NodeUnschedulable(),
            taints,
            affinity,
            hint,
            ports,
            fit,
            restrictions,
            limits,
            binding,
            spread,
            together,
            load,
            reserve_pods,
        ),
        scores=(taints, affinity, fit, balanced, images, load, hint),
        spanning_scores=(spread, together),
        counters=(ports, relations, volumes),
        allocators=(binding,),
        readers=(reserve_pods, hint, binding),
        weights=config.weights,
    )
