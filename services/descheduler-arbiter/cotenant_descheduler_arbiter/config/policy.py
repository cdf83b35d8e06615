"""The core's policy: the validated configuration with defaults filled in (see `resolution`).

One struct for each rule with arguments; the rules themselves are in the folders that use them.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.events.migrations import EVICTION_POLICY
from cotenant.model.names import CPU, MEMORY
from cotenant_descheduler_arbiter.config.configuration import NamespaceRule
from cotenant_descheduler_arbiter.config.plugin_args import PluginArgs
from cotenant_descheduler_arbiter.config.scaling import IntOrPercent

LOW_NODE_LOAD = "LowNodeLoad"
MIGRATION_CONTROLLER = "MigrationController"
EVICT_DIRECTLY, RESERVATION_FIRST = "EvictDirectly", "ReservationFirst"
MODES = (EVICT_DIRECTLY, RESERVATION_FIRST)
DEFAULT_ANOMALY_TIMEOUT = timedelta(seconds=60)


class AnomalyCondition(msgspec.Struct, frozen=True):
    """A node is abnormal after more than N consecutive abnormal marks, and normal after more than M consecutive normal ones."""

    timeout: timedelta = DEFAULT_ANOMALY_TIMEOUT
    consecutive_abnormalities: int = 5
    consecutive_normalities: int = 3

    @property
    def immediate(self) -> bool:
        """Whether the first detection is enough."""
        return self.consecutive_abnormalities == 1


class NodePool(msgspec.Struct, frozen=True):
    """Resolved arguments of one pool. Thresholds are percentages."""

    name: str
    node_selector: LabelSelector | None = None
    use_deviation_thresholds: bool = False
    low_thresholds: dict[str, float] = {}
    high_thresholds: dict[str, float] = {}
    prod_low_thresholds: dict[str, float] = {}
    prod_high_thresholds: dict[str, float] = {}
    resource_weights: dict[str, int] = {}
    anomaly_condition: AnomalyCondition | None = None

    @property
    def weights(self) -> dict[str, int]:
        """The weight of every resource that counts."""
        named = {CPU, MEMORY, *self.low_thresholds, *self.high_thresholds}
        given = {name: weight for name, weight in self.resource_weights.items() if weight > 0}
        return {name: given.get(name, 1) for name in sorted(named | set(self.resource_weights))}


class LowNodeLoad(msgspec.Struct, frozen=True):
    """Arguments of all pools."""

    pools: tuple[NodePool, ...] = ()
    number_of_nodes: int = 0
    node_fit: bool = True
    detector_cache_timeout: timedelta = timedelta(minutes=5)


class EvictableRules(msgspec.Struct, frozen=True):
    """Which pods are evictable. `priority_threshold`: the value, resolved from a PriorityClass if one was named."""

    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    priority_threshold: int | None = None
    label_selector: LabelSelector | None = None
    skip_gates: frozenset[str] = frozenset()


class CycleLimits(msgspec.Struct, frozen=True, rename="camel"):
    """Limits of one cycle; None is unlimited."""

    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None


class Budgets(msgspec.Struct, frozen=True):
    """Maxima of migrating pods; None and 0 are unlimited, except per workload, where the default formula holds."""

    max_migrating_globally: int | None = None
    max_migrating_per_node: int | None = 2
    max_migrating_per_namespace: int | None = None
    max_migrating_per_workload: IntOrPercent | None = None
    max_unavailable_per_workload: IntOrPercent | None = None
    skip_check_expected_replicas: bool = False
    skip_gates: frozenset[str] = frozenset()


class RateLimit(msgspec.Struct, frozen=True):
    """A resolved object limiter. `max_migrating` None: the workload's own."""

    duration: timedelta
    max_migrating: IntOrPercent | None
    burst: int


class NodeEvictionRates(msgspec.Struct, frozen=True):
    """How fast nodes that are not ready get the NoExecute taint, by the state of their zone. Rates are nodes a second."""

    normal: float = 0.1
    secondary: float = 0.01
    """Of a zone in partial disruption with more than `large_zone_nodes` nodes; a smaller one gets 0."""
    large_zone_nodes: int = 50
    unhealthy_fraction: float = 0.55
    """A zone with this part of its nodes, and more than two, not ready is in partial disruption."""


class JobDefaults(msgspec.Struct, frozen=True):
    """Defaults of a job."""

    mode: str = EVICT_DIRECTLY
    ttl: timedelta = timedelta(minutes=5)
    evict_policy: str = EVICTION_POLICY
    grace_period_seconds: int | None = None
    """None: the pod's own."""


class PluginRun(msgspec.Struct, frozen=True):
    """A plugin that a profile runs."""

    name: str
    args: PluginArgs


class ProfilePlan(msgspec.Struct, frozen=True):
    """A profile: its nodes, and its plugins in order; LowNodeLoad is not among `balance`."""

    name: str
    node_selector: LabelSelector | None = None
    deschedule: tuple[PluginRun, ...] = ()
    balance: tuple[PluginRun, ...] = ()
    low_node_load: bool = False

    @property
    def runs_plugins(self) -> bool:
        """Whether it has plugins other than LowNodeLoad."""
        return bool(self.deschedule or self.balance)


class DeschedulerPolicy(msgspec.Struct, frozen=True):
    """All parameters of the core's decisions."""

    interval: timedelta
    dry_run: bool
    node_selector: LabelSelector | None
    """Of LowNodeLoad's profile."""
    cycle_limits: CycleLimits
    low_node_load: LowNodeLoad | None
    """None: LowNodeLoad does not run."""
    metric_expiration: timedelta
    balance_namespaces: NamespaceRule
    balance_selectors: tuple[LabelSelector, ...]
    balance_dry_run: bool
    evictable: EvictableRules
    priority_threshold_class: str
    """Name of a PriorityClass whose value is the threshold; empty if a value or nothing is configured."""
    namespaces: NamespaceRule
    budgets: Budgets
    limiters: dict[str, RateLimit]
    job_defaults: JobDefaults
    scheduler_names: frozenset[str]
    """Schedulers for whose pods a reservation can be created; empty: all."""
    without_claims: bool
    """Whether reservations leave out the volumes of claims (feature gate DisablePVCReservation)."""
    evict_qps: float
    evict_burst: int
    back_off_base: timedelta
    back_off_maximum: timedelta
    lifecycle: bool
    default_toleration: timedelta
    node_evictions: NodeEvictionRates = NodeEvictionRates()
    profiles: tuple[ProfilePlan, ...] = ()
    """Those with plugins other than LowNodeLoad."""
    node_fit: bool = False
    """Whether plugins evict only pods that fit another node."""
    fit_selector: LabelSelector | None = None
    """The nodes that are considered for that."""
