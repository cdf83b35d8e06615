"""Resolves the configuration document to the policy: fills in defaults and validates everything once at start.

In: the document. Out: a Policy, or a PolicyError that names the field. Checked here: the expiration of metrics;
evictQPS and evictBurst > 0; include xor exclude; rates and thresholds of lost nodes; profiles and their plugins in `profiles`.

Source: koord-descheduler defaults, conversion and validation of v1alpha2.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from cotenant.events.migrations import EVICT_POLICIES
from cotenant.model.bounds import MAX_SECONDS
from cotenant_descheduler_arbiter.config.checks import (
    WITHOUT_CLAIMS,
    PolicyError,
    check,
    check_scaled,
    checked_selector,
    duration,
    eviction_gates,
    evictions_per_second,
    feature_gates,
    namespace_rule,
    node_eviction_rates,
)
from cotenant_descheduler_arbiter.config.configuration import (
    DeschedulerConfiguration,
    LowNodeLoadArgs,
    MigrationControllerArgs,
    ObjectLimiter,
)
from cotenant_descheduler_arbiter.config.delete_options import grace_period
from cotenant_descheduler_arbiter.config.load_pools import low_node_load
from cotenant_descheduler_arbiter.config.policy import (
    LOW_NODE_LOAD,
    MIGRATION_CONTROLLER,
    MODES,
    Budgets,
    CycleLimits,
    DeschedulerPolicy,
    EvictableRules,
    JobDefaults,
    RateLimit,
)
from cotenant_descheduler_arbiter.config.profiles import args_once, plans
from cotenant_descheduler_arbiter.config.selector_text import parse_selector

_EXAMPLE = LowNodeLoadArgs(
    low_thresholds={"cpu": 45.0, "memory": 55.0}, high_thresholds={"cpu": 75.0, "memory": 80.0}
)
_LIMITER_KINDS = ("workload", "namespace")


def _grace_period(options: msgspec.Raw) -> int | None:
    try:
        return grace_period(options)
    except ValueError as error:
        raise PolicyError(f"MigrationController.defaultDeleteOptions: {error}") from error


def _limiters(given: Mapping[str, ObjectLimiter] | None) -> dict[str, RateLimit]:
    if given is None:
        given = {"workload": ObjectLimiter(duration="5m")}
    limiters = {}
    for kind, limiter in sorted(given.items()):
        field = f"MigrationController.objectLimiters[{kind}]"
        check(kind in _LIMITER_KINDS, field, f"is none of {', '.join(_LIMITER_KINDS)}")
        if limiter.max_migrating is not None:
            check_scaled(f"{field}.maxMigrating", limiter.max_migrating)
        limiters[kind] = RateLimit(duration(f"{field}.duration", limiter.duration), limiter.max_migrating, limiter.burst)
    return limiters


def resolve(document: DeschedulerConfiguration) -> DeschedulerPolicy:
    """Return the policy. Raises PolicyError."""
    interval = duration("deschedulingInterval", document.descheduling_interval)
    check(interval > timedelta(0), "deschedulingInterval", "must be above 0")
    profiles = plans(document)
    loading = next((plan for plan in profiles if plan.low_node_load), None)
    balances = loading is not None or not profiles
    load = args_once(document, LOW_NODE_LOAD, LowNodeLoadArgs) or (LowNodeLoadArgs() if profiles else _EXAMPLE)
    jobs = args_once(document, MIGRATION_CONTROLLER, MigrationControllerArgs) or MigrationControllerArgs()
    gates = eviction_gates(jobs.skip_eviction_gates)
    threshold = jobs.priority_threshold
    expiration = load.node_metric_expiration_seconds
    check(
        0 < expiration <= MAX_SECONDS, "LowNodeLoad.nodeMetricExpirationSeconds", f"{expiration} is not in 1 .. {MAX_SECONDS}"
    )
    check(jobs.evict_burst > 0, "MigrationController.evictBurst", f"{jobs.evict_burst} is not above 0")
    check(
        jobs.default_job_mode in MODES, "MigrationController.defaultJobMode", f"is none of {', '.join(MODES)}"
    )
    check(
        jobs.eviction_policy in EVICT_POLICIES,
        "MigrationController.evictionPolicy",
        f"{jobs.eviction_policy!r} is none of {', '.join(EVICT_POLICIES)}",
    )
    for name, value in (
        ("maxMigratingPerWorkload", jobs.max_migrating_per_workload),
        ("maxUnavailablePerWorkload", jobs.max_unavailable_per_workload),
    ):
        if value is not None:
            check_scaled(f"MigrationController.{name}", value)
    ttl = duration("MigrationController.defaultJobTTL", jobs.default_job_ttl)
    check(ttl >= timedelta(0), "MigrationController.defaultJobTTL", "is below 0")
    for index, each in enumerate(load.pod_selectors):
        checked_selector(f"LowNodeLoad.podSelectors[{index}].selector", each.selector)
    everywhere = checked_selector("nodeSelector", document.node_selector)
    try:
        fit_selector = parse_selector(jobs.node_selector)
    except ValueError as error:
        raise PolicyError(f"MigrationController.nodeSelector: {error}") from error
    return DeschedulerPolicy(
        interval=interval,
        dry_run=document.dry_run or jobs.dry_run,
        node_selector=loading.node_selector if loading is not None else everywhere,
        cycle_limits=CycleLimits(
            document.max_no_of_pods_to_evict_per_node,
            document.max_no_of_pods_to_evict_per_namespace,
            document.max_no_of_pods_to_evict_total,
        ),
        low_node_load=low_node_load(load, interval) if balances and not load.paused else None,
        metric_expiration=timedelta(seconds=expiration),
        balance_namespaces=namespace_rule("LowNodeLoad.evictableNamespaces", load.evictable_namespaces),
        balance_selectors=tuple(each.selector for each in load.pod_selectors if each.selector is not None),
        balance_dry_run=load.dry_run,
        evictable=EvictableRules(
            evict_failed_bare_pods=jobs.evict_failed_bare_pods,
            evict_all_bare_pods=jobs.evict_all_bare_pods,
            evict_local_storage_pods=jobs.evict_local_storage_pods,
            evict_system_critical_pods=jobs.evict_system_critical_pods,
            ignore_pvc_pods=jobs.ignore_pvc_pods,
            priority_threshold=threshold.value if threshold is not None else None,
            label_selector=checked_selector("MigrationController.labelSelector", jobs.label_selector),
            skip_gates=gates,
        ),
        priority_threshold_class=threshold.name if threshold is not None and threshold.value is None else "",
        namespaces=namespace_rule("MigrationController.namespaces", jobs.namespaces),
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
        job_defaults=JobDefaults(
            mode=jobs.default_job_mode,
            ttl=ttl,
            evict_policy=jobs.eviction_policy,
            grace_period_seconds=_grace_period(jobs.default_delete_options),
        ),
        without_claims=feature_gates(document.feature_gates).get(WITHOUT_CLAIMS, False),
        scheduler_names=frozenset(jobs.scheduler_names),
        evict_qps=evictions_per_second(jobs.evict_qps),
        evict_burst=jobs.evict_burst,
        back_off_base=duration("workloadBackOff.base", document.workload_back_off.base),
        back_off_maximum=duration("workloadBackOff.maximum", document.workload_back_off.maximum),
        lifecycle=document.node_lifecycle.enabled,
        default_toleration=timedelta(seconds=document.node_lifecycle.default_toleration_seconds),
        node_evictions=node_eviction_rates(document.node_lifecycle),
        profiles=tuple(plan for plan in profiles if plan.runs_plugins),
        node_fit=jobs.node_fit and "NodeFit" not in gates,
        fit_selector=checked_selector("MigrationController.nodeSelector", fit_selector),
    )
