"""Evaluates one node: guards, terms, batch, mid and zones together.

In: the node's capacity, allocatable and reservation, its latest metric, the pods on it, its strategy, and the time. Out: an
Evaluation, the figures with every term. Source: Koordinator node
resource controller:

    colocation switched off                          -> withdrawn
    no metric, or a metric older than degrade time   -> withdrawn (consumption is unknown, so nothing is reclaimable)
    else batch and mid by their formulas

Missing parts of a metric are replaced by rule: a pod without usage counts with its request; a node without total usage has
no mid resources; without a prediction batch depends on usage, whatever forecast the strategy selects.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.domain.reservation import NodeReservation, kubelet_reserved, node_reserved
from cotenant.model.tiers import NOT_PROD
from cotenant.model.values import Value
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy
from cotenant_batch_resource_calculator.config.forecast import by_time_of_day
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, of_mapping, total
from cotenant_batch_resource_calculator.formulas.batch import (
    BatchStrategy,
    BatchTerms,
    HighPriorityNeed,
    MeasuredUsage,
    PodNeed,
    calculate_batch,
    effective_policies,
    needed_cpu,
    sum_need,
)
from cotenant_batch_resource_calculator.formulas.mid import STATIC_MODE, MidStrategy, MidTerms, calculate_mid
from cotenant_batch_resource_calculator.formulas.numa import calculate_zones
from cotenant_batch_resource_calculator.formulas.synchronise import is_stale

NO_METRIC = "NoMetric"
STALE_METRIC = "StaleMetric"
DEFAULT_CPU_RECLAIM_PERCENT = 60
DEFAULT_MEMORY_RECLAIM_PERCENT = 65
DEFAULT_DEGRADE_MINUTES = 15
DEFAULT_UPDATE_SECONDS = 300
DEFAULT_DIFF_THRESHOLD = 0.1


class NodeAmounts(Value, frozen=True):
    """The node's capacity, allocatable and reservation: cpu in milli-CPUs, everything else in base units."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    reservation: NodeReservation = NodeReservation()


class NodeMeasurement(Value, frozen=True):
    """The node's latest metric. `node_usage` None: the node reported no total; memory is the working set."""

    update_time: datetime | None
    node_usage: Amounts | None
    system_usage: Amounts = ZERO
    pods: tuple[MeasuredUsage, ...] = ()
    host_applications: tuple[MeasuredUsage, ...] = ()
    prod_reclaimable: Amounts = ZERO
    prod_peak_cpu: int | None = None
    """The predicted peak of prod pods and the system; None: there is no prediction."""


class NodeDemand(Value, frozen=True):
    """A metric and the pods of a node, summed up. `metrics` by `namespace/name`; `prod_request`: of its prod pods."""

    measurement: NodeMeasurement
    pods: tuple[PodNeed, ...]
    metrics: dict[str, MeasuredUsage]
    need: HighPriorityNeed
    prod_request: Amounts


class CalculatedResources(Value, frozen=True):
    """`terms` None: batch and mid are withdrawn. `zones` are zone-level amounts."""

    terms: BatchTerms | None = None
    mid: MidTerms = MidTerms()
    zones: tuple[Amounts, ...] = ()


def batch_strategy(strategy: ColocationStrategy, cpu_percent: int | None = None) -> BatchStrategy:
    """Return the batch formula's part of the strategy, with defaults for unset fields. `cpu_percent`: a reclaim threshold
    instead of the strategy's."""
    cpu_policy, memory_policy = effective_policies(strategy.cpu_calculate_policy or "", strategy.memory_calculate_policy or "")
    return BatchStrategy(
        _or(strategy.cpu_reclaim_threshold_percent, DEFAULT_CPU_RECLAIM_PERCENT) if cpu_percent is None else cpu_percent,
        _or(strategy.memory_reclaim_threshold_percent, DEFAULT_MEMORY_RECLAIM_PERCENT),
        cpu_policy,
        memory_policy,
        strategy.batch_cpu_threshold_percent,
        strategy.batch_memory_threshold_percent,
    )


def mid_strategy(strategy: ColocationStrategy) -> MidStrategy:
    """Return the mid formula's part of the strategy."""
    return MidStrategy(
        _or(strategy.mid_cpu_threshold_percent, 100),
        _or(strategy.mid_memory_threshold_percent, 100),
        _or(strategy.mid_unallocated_percent, 0),
        strategy.mid_reclaim_mode == STATIC_MODE,
        _or(strategy.mid_static_cpu_reserved_percent, 0),
        _or(strategy.mid_static_memory_reserved_percent, 0),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def reserve_of(node: NodeAmounts) -> Amounts:
    """Return the node's own reserve: the larger of the kubelet's and the annotation's."""
    return of_mapping(node_reserved(kubelet_reserved(node.capacity, node.allocatable), node.reservation))


def withdrawal(update_time: datetime | None, strategy: ColocationStrategy, now: datetime) -> tuple[str, str]:
    """Return why nothing is reclaimable now, as code and text; both empty while the metric is fresh."""
    minutes = degrade_minutes(strategy)
    if update_time is None:
        return NO_METRIC, "the node has no metric yet: batch and mid resources are withdrawn until it reports"
    if is_stale(update_time, now, minutes):
        return STALE_METRIC, (
            f"the node's metric of {update_time.isoformat(timespec='seconds')} is older than {minutes} minutes"
            " (degradeTimeMinutes): batch and mid resources are withdrawn"
        )
    return "", ""


def degrade_minutes(strategy: ColocationStrategy) -> int:
    """Return the maximum age of a usable metric, in minutes."""
    return _or(strategy.degrade_time_minutes, DEFAULT_DEGRADE_MINUTES)


def demand_of(measurement: NodeMeasurement, pods: Sequence[PodNeed]) -> NodeDemand:
    """Return the sums of pods and metric, independent of the configuration."""
    metrics = {metric.key: metric for metric in measurement.pods}
    prod = [pod.request for pod in pods if pod.tier not in NOT_PROD]
    prod_request = Amounts(sum([request.cpu for request in prod]), sum([request.memory for request in prod]))
    return NodeDemand(measurement, tuple(pods), metrics, sum_need(pods, metrics), prod_request)


def calculate(
    node: NodeAmounts,
    demand: NodeDemand,
    strategy: ColocationStrategy,
    zone_capacities: Sequence[Amounts] = (),
    budget_percent: int | None = None,
) -> CalculatedResources:
    """Return the figures of a node with a fresh metric. `budget_percent`: the CPU threshold by its risk budget; it
    applies to mid too, so that both allow for a forecast that is too low."""
    capacity = of_mapping(node.capacity)
    reserved = reserve_of(node)
    measurement = demand.measurement
    by_batch = batch_strategy(strategy, budget_percent)
    terms = calculate_batch(
        capacity=capacity,
        node_reserved=reserved,
        system_usage=measurement.system_usage,
        host_applications=measurement.host_applications,
        need=demand.need,
        strategy=by_batch,
        forecast=measurement.prod_peak_cpu if by_time_of_day(strategy.extensions) else None,
    )
    prod_hosts = (app.usage for app in measurement.host_applications if app.priority not in NOT_PROD)
    mid = calculate_mid(
        capacity=capacity,
        node_usage=measurement.node_usage,
        prod_reclaimable=measurement.prod_reclaimable,
        system_used=total((measurement.system_usage, *prod_hosts)),
        node_reserved=reserved,
        prod_request=demand.prod_request,
        strategy=mid_strategy(strategy),
        margin=ZERO if budget_percent is None else Amounts(terms.margin.cpu),
    )
    zones = calculate_zones(
        capacities=zone_capacities,
        node_reserved=reserved,
        system_used=_of_zones(terms, by_batch),
        pods=demand.pods,
        metrics=demand.metrics,
        strategy=by_batch,
    )
    return CalculatedResources(terms=terms, mid=mid, zones=tuple(zones))


def _of_zones(terms: BatchTerms, strategy: BatchStrategy) -> Amounts:
    """The part that all zones leave to the system, with a forecast's excess over services' usage, which is no zone's."""
    if not terms.expected_cpu:
        return terms.system_used
    taken = terms.system_used.larger(terms.node_reserved)
    without = msgspec.structs.replace(terms, expected_cpu=0)
    above = needed_cpu(terms, strategy.cpu_policy) - needed_cpu(without, strategy.cpu_policy)
    return Amounts(taken.cpu + above, terms.system_used.memory) if above else terms.system_used
