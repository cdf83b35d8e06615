"""Batch resources of a node: capacity that its high-priority (HP) pods do not use is reclaimable for batch pods.

In: capacity, reserves, system usage, one entry per pod and per metric, the strategy. Out: the batch amounts and every
term of the formula. Source: Koordinator batch resource plugin, the rule of its newest release.

    margin          = capacity * (100 - reclaim threshold percent) / 100
    S               = max(system usage incl. HP host applications, node reserve)
    usage           = max(0, capacity - margin - S            - HP used)
    request         = max(0, capacity - margin - node reserve - HP request)
    maxUsageRequest = max(0, capacity - margin - S            - HP max(used, request))
    batch           = min(by policy, capacity * batch threshold percent / 100 where set)

CPU supports the policies usage and maxUsageRequest, memory all three; any other value means usage.

With a forecast of the peak of services and the system (CPU, the strategy's choice; not Koordinator's) the known usage
counts at least as much as that, plus usage outside of the forecast. Without one, or if it is lower, nothing changes:

    expected        = max(0, forecast - host applications of tiers batch and free) + others
    others          = requests of pods without a metric + usage of mid pods + unused requests of LSE pods
    HP used         = max(HP used, expected - S)                                   HP max(used, request) likewise

HP used is the sum of: the usage of pods with a metric (an LSE pod counts with its CPU request, which is exclusive); the
request of pods without a metric yet, under every policy, listed in `assumed`; the usage of metrics whose pod is no longer
on the node, listed in `dangling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from cotenant.model.tiers import RECLAIMING, PriorityClass
from cotenant.model.values import Value
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, margin_of, share


class CalculatePolicy(StrEnum):
    """How the consumption of HP pods is measured."""

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


_USAGE, _REQUEST, _MAX_USAGE_REQUEST = CalculatePolicy.USAGE, CalculatePolicy.REQUEST, CalculatePolicy.MAX_USAGE_REQUEST
_POLICIES = {policy.value: policy for policy in CalculatePolicy}
_MID = PriorityClass.MID
UNLIMITED = 2**63
"""Above every amount."""


class PodNeed(Value, frozen=True):
    """A running or pending pod on the node. `key` is namespace/name, `tier` its priority class after defaulting.

    `exclusive`: an LSE pod. `zones`: the NUMA ids allocated to it; empty: spread over all.
    """

    key: str
    tier: PriorityClass
    exclusive: bool
    request: Amounts
    zones: tuple[int, ...] = ()

    @property
    def high_priority(self) -> bool:
        """Whether its tier is above batch: neither batch nor free."""
        return self.tier not in RECLAIMING


class MeasuredUsage(Value, frozen=True):
    """Usage of a pod or host application; `priority`: the tier in the metric, empty without one."""

    key: str
    usage: Amounts
    priority: str = ""


class HighPriorityNeed(Value, frozen=True):
    """Sums over the HP pods, and the pods that were counted by a rule instead of a measurement."""

    request: Amounts = ZERO
    used: Amounts = ZERO
    max_used_request: Amounts = ZERO
    beside_forecast_cpu: int = 0
    """What a forecast of services does not include: pods that have not reported, mid pods, the idle CPUs of LSE pods."""
    assumed: tuple[str, ...] = ()
    dangling: tuple[str, ...] = ()


class BatchStrategy(Value, frozen=True):
    """The formula's part of the colocation strategy. Percent values are integers; thresholds None: no cap."""

    cpu_reclaim_percent: int
    memory_reclaim_percent: int
    cpu_policy: CalculatePolicy = CalculatePolicy.USAGE
    memory_policy: CalculatePolicy = CalculatePolicy.USAGE
    cpu_threshold_percent: int | None = None
    memory_threshold_percent: int | None = None


class BatchTerms(Value, frozen=True):
    """All terms of one calculation (milli-CPUs, bytes); `batch` is the result."""

    capacity: Amounts
    margin: Amounts
    system_used: Amounts
    host_applications: Amounts
    node_reserved: Amounts
    need: HighPriorityNeed
    batch: Amounts
    expected_cpu: int = 0
    """The forecast peak of services and the system; 0: no forecast applies."""


def effective_policies(cpu: str, memory: str) -> tuple[CalculatePolicy, CalculatePolicy]:
    """Return the effective policies: CPU has no `request`, and an unknown value means usage."""
    return _MAX_USAGE_REQUEST if cpu == _MAX_USAGE_REQUEST else _USAGE, _POLICIES.get(memory, _USAGE)


def is_reclaimed(priority: str) -> bool:
    """Whether usage of this tier runs on reclaimed capacity and is therefore no HP usage. Without a tier it counts as HP."""
    return priority in RECLAIMING


def sum_need(pods: Iterable[PodNeed], metrics: Mapping[str, MeasuredUsage]) -> HighPriorityNeed:
    """Return the HP sums; `metrics` by namespace/name. It reads every pod at each new metric, so it sums plain integers."""
    asked_cpu = asked_memory = used_cpu = used_memory = most_cpu = most_memory = beside = 0
    assumed: list[str] = []
    seen: set[str] = set()
    for pod in pods:
        key = pod.key
        seen.add(key)
        if pod.tier in RECLAIMING:
            continue
        cpu, memory = pod.request.cpu, pod.request.memory
        asked_cpu += cpu
        asked_memory += memory
        metric = metrics.get(key)
        if metric is None:
            assumed.append(key)
            used_cpu += cpu
            used_memory += memory
            most_cpu += cpu
            most_memory += memory
            beside += max(cpu, 0)
            continue
        now_cpu, now_memory = metric.usage.cpu, metric.usage.memory
        used_cpu += cpu if pod.exclusive else now_cpu
        used_memory += now_memory
        most_cpu += cpu if cpu > now_cpu else now_cpu
        most_memory += memory if memory > now_memory else now_memory
        if pod.tier is _MID:
            beside += max(now_cpu, 0)
        elif pod.exclusive:
            beside += max(cpu - now_cpu, 0)
    unplaced = sorted(key for key, metric in metrics.items() if key not in seen and not is_reclaimed(metric.priority))
    for key in unplaced:
        metric = metrics[key]
        used_cpu += metric.usage.cpu
        used_memory += metric.usage.memory
        most_cpu += metric.usage.cpu
        most_memory += metric.usage.memory
        beside += max(metric.usage.cpu, 0) if metric.priority == _MID else 0
    return HighPriorityNeed(
        Amounts(asked_cpu, asked_memory),
        Amounts(used_cpu, used_memory),
        Amounts(most_cpu, most_memory),
        beside,
        tuple(sorted(assumed)),
        tuple(unplaced),
    )


def host_application_usage(applications: Sequence[MeasuredUsage]) -> Amounts:
    """Return the usage of host applications that do not run on reclaimed capacity (one without a tier counts)."""
    used = ZERO
    for application in applications:
        if not is_reclaimed(application.priority):
            used = used + application.usage
    return used


def expected_cpu(forecast: int | None, host_applications: Iterable[MeasuredUsage], need: HighPriorityNeed) -> int:
    """Return the CPU that services and the system will need at most; 0 without a forecast. `forecast`: of the peak of the
    node's usage without mid, batch and free pods."""
    if forecast is None:
        return 0
    reclaimed = sum(max(app.usage.cpu, 0) for app in host_applications if is_reclaimed(app.priority))
    return max(forecast - reclaimed, 0) + need.beside_forecast_cpu


def needed_cpu(terms: BatchTerms, policy: CalculatePolicy) -> int:
    """Return the CPU that the offer leaves to services and the system."""
    need = terms.need.max_used_request if policy is _MAX_USAGE_REQUEST else terms.need.used
    return max(terms.system_used.larger(terms.node_reserved).cpu + need.cpu, terms.expected_cpu)


def at_least(need: HighPriorityNeed, least_cpu: int) -> HighPriorityNeed:
    """Return the sums with at least this much CPU used, and used or requested."""
    used, largest = need.used, need.max_used_request
    if least_cpu <= min(used.cpu, largest.cpu):
        return need
    return msgspec.structs.replace(
        need,
        used=Amounts(max(used.cpu, least_cpu), used.memory),
        max_used_request=Amounts(max(largest.cpu, least_cpu), largest.memory),
    )


def reclaimable(
    capacity: Amounts,
    margin: Amounts,
    system_used: Amounts,
    node_reserved: Amounts,
    need: HighPriorityNeed,
    strategy: BatchStrategy,
) -> Amounts:
    """Return the batch amounts by policy, before the thresholds. `system_used` includes HP host applications."""
    usable = capacity - margin
    taken = system_used.larger(node_reserved)

    def by(policy: CalculatePolicy) -> Amounts:
        if policy is _REQUEST:
            return (usable - node_reserved - need.request).floored()
        needed = need.max_used_request if policy is _MAX_USAGE_REQUEST else need.used
        return (usable - taken - needed).floored()

    return Amounts(by(strategy.cpu_policy).cpu, by(strategy.memory_policy).memory)


def threshold_of(capacity: Amounts, strategy: BatchStrategy) -> Amounts:
    """Return the batch thresholds' share of a node's or a zone's capacity; UNLIMITED where there is none."""
    cpu, memory = strategy.cpu_threshold_percent, strategy.memory_threshold_percent
    return Amounts(
        UNLIMITED if cpu is None else share(capacity, cpu).cpu,
        UNLIMITED if memory is None else share(capacity, memory).memory,
    )


def calculate_batch(
    *,
    capacity: Amounts,
    node_reserved: Amounts,
    system_usage: Amounts,
    host_applications: Sequence[MeasuredUsage],
    need: HighPriorityNeed,
    strategy: BatchStrategy,
    forecast: int | None = None,
) -> BatchTerms:
    """Return the node's batch amounts with every term. `forecast`: as for `expected_cpu`; None: none."""
    hosts = host_application_usage(host_applications)
    system_used = system_usage + hosts
    margin = margin_of(capacity, strategy.cpu_reclaim_percent, strategy.memory_reclaim_percent)
    expected = expected_cpu(forecast, host_applications, need)
    raised = at_least(need, expected - system_used.larger(node_reserved).cpu) if expected else need
    batch = reclaimable(capacity, margin, system_used, node_reserved, raised, strategy)
    batch = batch.smaller(threshold_of(capacity, strategy))
    return BatchTerms(capacity, margin, system_used, hosts, node_reserved, need, batch, expected)
