"""Validation of single configuration fields: the error names the field and the expected value."""

from __future__ import annotations

import math
from datetime import timedelta

from cotenant.api.objects.metadata import LabelSelector
from cotenant.domain.selectors import SelectorError, check_selector
from cotenant.model.bounds import MAX_SECONDS
from cotenant.model.durations import DurationError, parse_duration
from cotenant_descheduler_arbiter.config.configuration import NamespaceRule, NodeLifecycleConfiguration
from cotenant_descheduler_arbiter.config.policy import NodeEvictionRates
from cotenant_descheduler_arbiter.config.scaling import IntOrPercent, scaled

GATES = (
    "MaxUnavailablePerWorkload",
    "MaxMigratingPerWorkload",
    "MaxMigratingPerNode",
    "MaxMigratingPerNamespace",
    "MaxMigratingGlobally",
    "ExpectedReplicas",
    "PVC",
    "BarePods",
    "LocalStorage",
    "SystemCritical",
    "PriorityThreshold",
    "LabelSelector",
    "Namespaces",
    "NodeFit",
)
"""Filters that `skipEvictionGates` may name. Source: koord-descheduler 1.8."""
WITHOUT_CLAIMS = "DisablePVCReservation"
LOWEST_NODE_RATE = 0.00001
"""Nodes a second: one in 28 hours."""


class PolicyError(ValueError):
    """Invalid configuration; the text names the field and the expected value."""


def duration(field: str, text: str) -> timedelta:
    """Parse a Go duration. Raises PolicyError."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise PolicyError(f"{field}: {error}") from error


def check(holds: bool, field: str, message: str) -> None:
    """Raise PolicyError for the field unless the rule holds."""
    if not holds:
        raise PolicyError(f"{field}: {message}")


def namespace_rule(field: str, rule: NamespaceRule | None) -> NamespaceRule:
    """Return the rule, or an empty one for None. Raises PolicyError."""
    rule = rule or NamespaceRule()
    check(not (rule.include and rule.exclude), field, "give include or exclude, not both")
    return rule


def checked_selector(field: str, selector: LabelSelector | None) -> LabelSelector | None:
    """Return the selector. Raises PolicyError if it is invalid."""
    if selector is not None:
        try:
            check_selector(selector)
        except SelectorError as error:
            raise PolicyError(f"{field}: {error}") from error
    return selector


def check_scaled(field: str, value: IntOrPercent) -> None:
    """Raise PolicyError unless the value is a count or a percentage."""
    try:
        scaled(value, 100)
    except ValueError as error:
        raise PolicyError(f"{field}: {error}") from error


def feature_gates(given: dict[str, bool]) -> dict[str, bool]:
    """Return the feature gates. Raises PolicyError for an unknown name."""
    for name in given:
        check(name == WITHOUT_CLAIMS, "featureGates", f"{name!r} is not known; the only one is {WITHOUT_CLAIMS}")
    return given


def eviction_gates(given: tuple[str, ...]) -> frozenset[str]:
    """Return the gates that are skipped. Raises PolicyError for an unknown name."""
    for name in given:
        check(name in GATES, "MigrationController.skipEvictionGates", f"{name!r} is none of {', '.join(GATES)}")
    return frozenset(given)


def evictions_per_second(value: str | int | float) -> float:
    """Return the rate. Raises PolicyError unless it is a number above 0."""
    try:
        qps = float(value)
    except ValueError as error:
        raise PolicyError(f"MigrationController.evictQPS: {value!r} is not a number") from error
    check(0 < qps < math.inf, "MigrationController.evictQPS", f"{value} is not a finite number above 0")
    return qps


def node_eviction_rates(given: NodeLifecycleConfiguration) -> NodeEvictionRates:
    """Return the rates and thresholds of lost nodes. Raises PolicyError."""
    seconds = given.default_toleration_seconds
    check(0 <= seconds <= MAX_SECONDS, "nodeLifecycle.defaultTolerationSeconds", f"{seconds} is not in 0 .. {MAX_SECONDS}")
    rates = {
        "nodeEvictionRate": given.node_eviction_rate,
        "secondaryNodeEvictionRate": given.secondary_node_eviction_rate,
    }
    for name, rate in rates.items():
        holds = rate == 0 or LOWEST_NODE_RATE <= rate < math.inf
        check(holds, f"nodeLifecycle.{name}", f"{rate} is neither 0 (no evictions) nor at least {LOWEST_NODE_RATE} nodes/s")
    nodes, fraction = given.large_cluster_size_threshold, given.unhealthy_zone_threshold
    check(nodes >= 0, "nodeLifecycle.largeClusterSizeThreshold", f"{nodes} is below 0")
    check(0 <= fraction <= 1, "nodeLifecycle.unhealthyZoneThreshold", f"{fraction} is not in 0 .. 1")
    return NodeEvictionRates(
        normal=given.node_eviction_rate,
        secondary=given.secondary_node_eviction_rate,
        large_zone_nodes=nodes,
        unhealthy_fraction=fraction,
    )
