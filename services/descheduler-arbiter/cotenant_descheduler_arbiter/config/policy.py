"""The policy that the core decides by: the configuration with defaults filled in and everything checked (see `resolution`)."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant_descheduler_arbiter.config.configuration import (
    NamespaceRule,
)
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleLimits
from cotenant_descheduler_arbiter.eviction.evictable import EvictableRules
from cotenant_descheduler_arbiter.low_node_load.pool_cycle import LowNodeLoad
from cotenant_descheduler_arbiter.migration.budgets import Budgets
from cotenant_descheduler_arbiter.migration.max_unavailable import IntOrPercent

LOW_NODE_LOAD = "LowNodeLoad"
MIGRATION_CONTROLLER = "MigrationController"
MODES = ("EvictDirectly", "ReservationFirst")


class RateLimit(msgspec.Struct, frozen=True):
    """An object limiter, resolved. `max_migrating` None: that of the workload."""

    duration: timedelta
    max_migrating: IntOrPercent | None
    burst: int


class Policy(msgspec.Struct, frozen=True):
    """Everything that the core decides by."""

    interval: timedelta
    dry_run: bool
    node_selector: LabelSelector | None
    cycle_limits: CycleLimits
    low_node_load: LowNodeLoad | None
    """None: LowNodeLoad does not run."""
    metric_expiration: timedelta
    balance_namespaces: NamespaceRule
    balance_selectors: tuple[LabelSelector, ...]
    balance_dry_run: bool
    evictable: EvictableRules
    priority_threshold_class: str
    """Name of a PriorityClass whose value is the threshold; empty where a value or nothing is given."""
    namespaces: NamespaceRule
    budgets: Budgets
    limiters: dict[str, RateLimit]
    default_mode: str
    default_ttl: timedelta
    evict_qps: float
    evict_burst: int
    back_off_base: timedelta
    back_off_maximum: timedelta
    lifecycle: bool
    default_toleration: timedelta
