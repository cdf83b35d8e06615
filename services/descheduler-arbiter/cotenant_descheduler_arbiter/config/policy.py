"""What the configuration means: defaults filled in, pools resolved, everything checked once at the start.

In: the configuration document. Out: a Policy, or a PolicyError that names the field.

Pools: the pool fields at the top level are the first pool, `__default_node_pool__`, if they name a threshold; a pool in
`nodePools` takes what it does not say from the top level. The weight of a resource that is not given is 1. An anomaly
condition with 0 takes the default.

Rules that are checked: numberOfNodes >= 0; expiration > 0; include xor exclude; percents >= 0, low <= high, prodLow <=
prodHigh <= high; detections > 0; the descheduling interval below the anomaly's timeout and the detectors' cache time, for a
node could never become abnormal otherwise; evictQPS and evictBurst > 0; one profile; known plugins.

Source: koord-descheduler defaults, conversion and validation of v1alpha2; pool inheritance as in its version 1.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant_descheduler_arbiter.config.configuration import (
    AnomalyConditionArgs,
    Args,
    DeschedulerConfiguration,
    LowNodeLoadArgs,
    MigrationControllerArgs,
    NamespaceRule,
    ObjectLimiter,
    PoolArgs,
    Profile,
)
from cotenant_descheduler_arbiter.config.durations import DurationError, parse_duration
from cotenant_descheduler_arbiter.config.selection import SelectorError, check_selector
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleLimits
from cotenant_descheduler_arbiter.eviction.evictable import EvictableRules
from cotenant_descheduler_arbiter.low_node_load.anomaly import AnomalyCondition
from cotenant_descheduler_arbiter.low_node_load.pool_cycle import LowNodeLoad
from cotenant_descheduler_arbiter.low_node_load.pools import Pool
from cotenant_descheduler_arbiter.migration.budgets import Budgets
from cotenant_descheduler_arbiter.migration.max_unavailable import IntOrPercent, scaled

DEFAULT_POOL = "__default_node_pool__"
LOW_NODE_LOAD = "LowNodeLoad"
MIGRATION_CONTROLLER = "MigrationController"
MODES = ("EvictDirectly", "ReservationFirst")
_EXAMPLE = LowNodeLoadArgs(
    low_thresholds={"cpu": 45.0, "memory": 55.0}, high_thresholds={"cpu": 75.0, "memory": 80.0}
)
_LIMITER_KINDS = ("workload", "namespace")
A = TypeVar("A", bound=Args)


class PolicyError(ValueError):
    """The configuration cannot be used; the text says which field and what is expected."""


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


def _duration(field: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except DurationError as error:
        raise PolicyError(f"{field}: {error}") from error


def _check(holds: bool, field: str, message: str) -> None:
    if not holds:
        raise PolicyError(f"{field}: {message}")


def _namespaces(field: str, rule: NamespaceRule | None) -> NamespaceRule:
    rule = rule or NamespaceRule()
    _check(not (rule.include and rule.exclude), field, "give include or exclude, not both")
    return rule


def _selector(field: str, selector: LabelSelector | None) -> LabelSelector | None:
    if selector is not None:
        try:
            check_selector(selector)
        except SelectorError as error:
            raise PolicyError(f"{field}: {error}") from error
    return selector


def _args(profile: Profile, name: str, cls: type[A]) -> A | None:
    given = [config for config in profile.plugin_config if config.name == name]
    _check(len(given) <= 1, f"pluginConfig[{name}]", "is given more than once")
    if not given:
        return None
    try:
        return msgspec.json.decode(given[0].args, type=cls)
    except msgspec.DecodeError as error:
        raise PolicyError(f"pluginConfig[{name}].args: {error}") from error


def _balances(profile: Profile) -> bool:
    for point, known in (
        ("deschedule", frozenset[str]()),
        ("balance", frozenset({LOW_NODE_LOAD})),
        ("evict", frozenset({MIGRATION_CONTROLLER})),
        ("filter", frozenset({MIGRATION_CONTROLLER})),
    ):
        for plugin in getattr(profile.plugins, point).enabled:
            _check(
                plugin.name in known,
                f"plugins.{point}.enabled",
                f"{plugin.name} is no plugin of this extension point; known: {', '.join(sorted(known)) or 'none'}",
            )
    return bool(profile.plugins.balance.enabled)


def _percents(field: str, low: Mapping[str, float], high: Mapping[str, float]) -> None:
    for side, values in (("low", low), ("high", high)):
        for name, percent in values.items():
            _check(percent >= 0, f"{field}.{side}[{name}]", f"{percent} is below 0")
    for name, percent in low.items():
        _check(percent <= high.get(name, 100.0), f"{field}[{name}]", f"low {percent} is above high {high.get(name)}")


def _anomaly(field: str, args: AnomalyConditionArgs, interval: timedelta, cache: timedelta) -> AnomalyCondition:
    timeout = _duration(f"{field}.timeout", args.timeout)
    condition = AnomalyCondition(
        timeout=timeout if timeout > timedelta(0) else AnomalyCondition().timeout,
        consecutive_abnormalities=args.consecutive_abnormalities or 5,
        consecutive_normalities=args.consecutive_normalities or 3,
    )
    _check(condition.consecutive_abnormalities > 0, f"{field}.consecutiveAbnormalities", "must be above 0")
    _check(condition.consecutive_normalities > 0, f"{field}.consecutiveNormalities", "must be above 0")
    if not condition.immediate:
        _check(
            interval < condition.timeout and interval < cache,
            f"{field}.timeout",
            f"the descheduling interval of {interval} is not below {min(condition.timeout, cache)}: "
            "a hot node would be forgotten before it is seen again",
        )
    return condition


def _pool(args: PoolArgs, top: PoolArgs, name: str, interval: timedelta, cache: timedelta) -> Pool:
    field = f"nodePools[{name}]"

    def given(own: dict[str, float] | None, inherited: dict[str, float] | None) -> dict[str, float]:
        return dict(own if own is not None else inherited or {})

    low = given(args.low_thresholds, top.low_thresholds)
    high = given(args.high_thresholds, top.high_thresholds)
    prod_low = given(args.prod_low_thresholds, top.prod_low_thresholds)
    prod_high = given(args.prod_high_thresholds, top.prod_high_thresholds)
    _percents(f"{field}.Thresholds", low, high)
    _percents(f"{field}.prodThresholds", prod_low, prod_high)
    for resource, percent in prod_high.items():
        limit = high.get(resource, 100.0)
        _check(percent <= limit, f"{field}.prodHighThresholds[{resource}]", f"{percent} is above highThresholds {limit}")
    deviation = args.use_deviation_thresholds if args.use_deviation_thresholds is not None else top.use_deviation_thresholds
    weights = args.resource_weights if args.resource_weights is not None else top.resource_weights
    return Pool(
        name=name,
        node_selector=_selector(f"{field}.nodeSelector", args.node_selector),
        use_deviation_thresholds=bool(deviation),
        low_thresholds=low,
        high_thresholds=high,
        prod_low_thresholds=prod_low,
        prod_high_thresholds=prod_high,
        resource_weights=dict(weights or {}),
        anomaly_condition=_anomaly(
            f"{field}.anomalyCondition",
            args.anomaly_condition or top.anomaly_condition or AnomalyConditionArgs(),
            interval,
            cache,
        ),
    )


def _low_node_load(args: LowNodeLoadArgs, interval: timedelta) -> LowNodeLoad:
    _check(args.number_of_nodes >= 0, "LowNodeLoad.numberOfNodes", f"{args.number_of_nodes} is below 0")
    cache = _duration("LowNodeLoad.detectorCacheTimeout", args.detector_cache_timeout)
    pools = [_pool(args, args, DEFAULT_POOL, interval, cache)]
    for index, each in enumerate(args.node_pools):
        pools.append(_pool(each, args, each.name or str(index), interval, cache))
    named = [pool for pool in pools if pool.low_thresholds or pool.high_thresholds or pool.prod_high_thresholds]
    return LowNodeLoad(
        pools=tuple(named),
        number_of_nodes=args.number_of_nodes,
        node_fit=args.node_fit,
        detector_cache_timeout=cache,
    )


def _limiters(given: Mapping[str, ObjectLimiter] | None) -> dict[str, RateLimit]:
    if given is None:
        given = {"workload": ObjectLimiter(duration="5m")}
    limiters = {}
    for kind, limiter in sorted(given.items()):
        field = f"MigrationController.objectLimiters[{kind}]"
        _check(kind in _LIMITER_KINDS, field, f"is none of {', '.join(_LIMITER_KINDS)}")
        if limiter.max_migrating is not None:
            _scaled(f"{field}.maxMigrating", limiter.max_migrating)
        limiters[kind] = RateLimit(_duration(f"{field}.duration", limiter.duration), limiter.max_migrating, limiter.burst)
    return limiters


def _scaled(field: str, value: IntOrPercent) -> None:
    try:
        scaled(value, 100)
    except ValueError as error:
        raise PolicyError(f"{field}: {error}") from error


def _qps(value: str | int | float) -> float:
    try:
        qps = float(value)
    except ValueError as error:
        raise PolicyError(f"MigrationController.evictQPS: {value!r} is not a number") from error
    _check(qps > 0, "MigrationController.evictQPS", f"{value} is not above 0")
    return qps


def resolve(document: DeschedulerConfiguration) -> Policy:
    """Return the policy. Raises PolicyError."""
    _check(len(document.profiles) <= 1, "profiles", "one profile can be run")
    interval = _duration("deschedulingInterval", document.descheduling_interval)
    _check(interval > timedelta(0), "deschedulingInterval", "must be above 0")
    profile = document.profiles[0] if document.profiles else Profile()
    balances = _balances(profile) if document.profiles else True
    load = _args(profile, LOW_NODE_LOAD, LowNodeLoadArgs) or (LowNodeLoadArgs() if document.profiles else _EXAMPLE)
    jobs = _args(profile, MIGRATION_CONTROLLER, MigrationControllerArgs) or MigrationControllerArgs()
    gates = frozenset(jobs.skip_eviction_gates)
    threshold = jobs.priority_threshold
    expiration = load.node_metric_expiration_seconds
    _check(expiration > 0, "LowNodeLoad.nodeMetricExpirationSeconds", f"{expiration} is not above 0")
    _check(jobs.evict_burst > 0, "MigrationController.evictBurst", f"{jobs.evict_burst} is not above 0")
    _check(
        jobs.default_job_mode in MODES, "MigrationController.defaultJobMode", f"is none of {', '.join(MODES)}"
    )
    _check(
        jobs.eviction_policy == "Eviction",
        "MigrationController.evictionPolicy",
        f"{jobs.eviction_policy!r} is not supported; Eviction is",
    )
    for name, value in (
        ("maxMigratingPerWorkload", jobs.max_migrating_per_workload),
        ("maxUnavailablePerWorkload", jobs.max_unavailable_per_workload),
    ):
        if value is not None:
            _scaled(f"MigrationController.{name}", value)
    ttl = _duration("MigrationController.defaultJobTTL", jobs.default_job_ttl)
    _check(ttl >= timedelta(0), "MigrationController.defaultJobTTL", "is below 0")
    for index, each in enumerate(load.pod_selectors):
        _selector(f"LowNodeLoad.podSelectors[{index}].selector", each.selector)
    selector = profile.node_selector if profile.node_selector is not None else document.node_selector
    return Policy(
        interval=interval,
        dry_run=document.dry_run or jobs.dry_run,
        node_selector=_selector("nodeSelector", selector),
        cycle_limits=CycleLimits(
            document.max_no_of_pods_to_evict_per_node,
            document.max_no_of_pods_to_evict_per_namespace,
            document.max_no_of_pods_to_evict_total,
        ),
        low_node_load=_low_node_load(load, interval) if balances and not load.paused else None,
        metric_expiration=timedelta(seconds=expiration),
        balance_namespaces=_namespaces("LowNodeLoad.evictableNamespaces", load.evictable_namespaces),
        balance_selectors=tuple(each.selector for each in load.pod_selectors if each.selector is not None),
        balance_dry_run=load.dry_run,
        evictable=EvictableRules(
            evict_failed_bare_pods=jobs.evict_failed_bare_pods,
            evict_all_bare_pods=jobs.evict_all_bare_pods,
            evict_local_storage_pods=jobs.evict_local_storage_pods,
            evict_system_critical_pods=jobs.evict_system_critical_pods,
            ignore_pvc_pods=jobs.ignore_pvc_pods,
            priority_threshold=threshold.value if threshold is not None else None,
            label_selector=_selector("MigrationController.labelSelector", jobs.label_selector),
            skip_gates=gates,
        ),
        priority_threshold_class=threshold.name if threshold is not None and threshold.value is None else "",
        namespaces=_namespaces("MigrationController.namespaces", jobs.namespaces),
        budgets=Budgets(
            max_migrating_globally=jobs.max_migrating_globally,
            max_migrating_per_node=jobs.max_migrating_per_node,
            max_migrating_per_namespace=jobs.max_migrating_per_namespace,
            max_migrating_per_workload=jobs.max_migrating_per_workload,
            max_unavailable_per_workload=jobs.max_unavailable_per_workload,
            skip_check_expected_replicas=bool(jobs.skip_check_expected_replicas),
            skip_gates=gates,
        ),
        limiters=_limiters(jobs.object_limiters),
        default_mode=jobs.default_job_mode,
        default_ttl=ttl,
        evict_qps=_qps(jobs.evict_qps),
        evict_burst=jobs.evict_burst,
        back_off_base=_duration("workloadBackOff.base", document.workload_back_off.base),
        back_off_maximum=_duration("workloadBackOff.maximum", document.workload_back_off.maximum),
        lifecycle=document.node_lifecycle.enabled,
        default_toleration=timedelta(seconds=document.node_lifecycle.default_toleration_seconds),
    )
