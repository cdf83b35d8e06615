"""LowNodeLoad's arguments: pools resolved, thresholds checked.

In: the arguments, the descheduling interval. Out: a LowNodeLoad, or a PolicyError that names the field. The pool fields at the
top level are the first pool, `__default_node_pool__`, if they have a threshold; a pool in `nodePools` inherits unset fields
from the top level. The default weight of a resource is 1. An anomaly condition with 0 means the default.

Checked: numberOfNodes >= 0; percents in 0 .. MAX_PERCENT, low <= high, prodHigh <= high; detections > 0; the descheduling
interval below the anomaly's timeout and the detectors' cache time, as a node could otherwise never become abnormal.

Source: koord-descheduler defaults and validation of v1alpha2; pool inheritance as in its version 1.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from cotenant_descheduler_arbiter.config.checks import check, checked_selector, duration
from cotenant_descheduler_arbiter.config.configuration import (
    AnomalyConditionArgs,
    LowNodeLoadArgs,
    PoolArgs,
)
from cotenant_descheduler_arbiter.config.policy import AnomalyCondition, LowNodeLoad, NodePool

DEFAULT_POOL = "__default_node_pool__"
MAX_PERCENT = 1_000_000
"""More than 100 % never marks a node as hot; the bound keeps amounts finite."""


def _percents(field: str, low: Mapping[str, float], high: Mapping[str, float]) -> None:
    for side, values in (("low", low), ("high", high)):
        for name, percent in values.items():
            check(0 <= percent <= MAX_PERCENT, f"{field}.{side}[{name}]", f"{percent} is not in 0 .. {MAX_PERCENT}")
    for name, percent in low.items():
        check(percent <= high.get(name, 100.0), f"{field}[{name}]", f"low {percent} is above high {high.get(name)}")


def _anomaly(field: str, args: AnomalyConditionArgs, interval: timedelta, cache: timedelta) -> AnomalyCondition:
    timeout = duration(f"{field}.timeout", args.timeout)
    condition = AnomalyCondition(
        timeout=timeout if timeout > timedelta(0) else AnomalyCondition().timeout,
        consecutive_abnormalities=args.consecutive_abnormalities or 5,
        consecutive_normalities=args.consecutive_normalities or 3,
    )
    check(condition.consecutive_abnormalities > 0, f"{field}.consecutiveAbnormalities", "must be above 0")
    check(condition.consecutive_normalities > 0, f"{field}.consecutiveNormalities", "must be above 0")
    if not condition.immediate:
        check(
            interval < condition.timeout and interval < cache,
            f"{field}.timeout",
            f"the descheduling interval of {interval} is not below {min(condition.timeout, cache)}: "
            "a hot node's streak would expire before the next cycle",
        )
    return condition


def _pool(args: PoolArgs, top: PoolArgs, name: str, interval: timedelta, cache: timedelta) -> NodePool:
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
        check(percent <= limit, f"{field}.prodHighThresholds[{resource}]", f"{percent} is above highThresholds {limit}")
    deviation = args.use_deviation_thresholds if args.use_deviation_thresholds is not None else top.use_deviation_thresholds
    weights = args.resource_weights if args.resource_weights is not None else top.resource_weights
    return NodePool(
        name=name,
        node_selector=checked_selector(f"{field}.nodeSelector", args.node_selector),
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


def low_node_load(args: LowNodeLoadArgs, interval: timedelta) -> LowNodeLoad:
    """Return the resolved arguments. Raises PolicyError."""
    check(args.number_of_nodes >= 0, "LowNodeLoad.numberOfNodes", f"{args.number_of_nodes} is below 0")
    cache = duration("LowNodeLoad.detectorCacheTimeout", args.detector_cache_timeout)
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
