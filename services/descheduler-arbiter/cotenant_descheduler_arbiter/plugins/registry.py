"""The plugins by name: extension points, arguments, and function.

Source of names and extension points: kubernetes-sigs descheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant_descheduler_arbiter.plugins.duplicates import remove_duplicates
from cotenant_descheduler_arbiter.plugins.failed_pods import remove_failed_pods
from cotenant_descheduler_arbiter.plugins.inter_pod_anti_affinity import remove_pods_violating_inter_pod_anti_affinity
from cotenant_descheduler_arbiter.plugins.node_affinity import remove_pods_violating_node_affinity
from cotenant_descheduler_arbiter.plugins.node_taints import remove_pods_violating_node_taints
from cotenant_descheduler_arbiter.plugins.node_utilization import high_node_utilization, low_node_utilization
from cotenant_descheduler_arbiter.plugins.pod_life_time import pod_life_time
from cotenant_descheduler_arbiter.plugins.too_many_restarts import remove_pods_having_too_many_restarts
from cotenant_descheduler_arbiter.plugins.topology_spread import remove_pods_violating_topology_spread
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor

# Each function takes the arguments of the plugin that it is listed with (`config.plugin_points`).
RUN: dict[str, Callable[[Any, ClusterView, Evictor], None]] = {
    "PodLifeTime": pod_life_time,
    "RemoveFailedPods": remove_failed_pods,
    "RemovePodsHavingTooManyRestarts": remove_pods_having_too_many_restarts,
    "RemovePodsViolatingInterPodAntiAffinity": remove_pods_violating_inter_pod_anti_affinity,
    "RemovePodsViolatingNodeAffinity": remove_pods_violating_node_affinity,
    "RemovePodsViolatingNodeTaints": remove_pods_violating_node_taints,
    "RemoveDuplicates": remove_duplicates,
    "RemovePodsViolatingTopologySpreadConstraint": remove_pods_violating_topology_spread,
    "LowNodeUtilization": low_node_utilization,
    "HighNodeUtilization": high_node_utilization,
}
