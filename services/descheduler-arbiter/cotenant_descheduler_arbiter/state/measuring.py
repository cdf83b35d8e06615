"""A node's usage by LowNodeLoad's rules.

    usage[r]      = system usage + host applications + sum over the metric's pods        for cpu and memory
    usage[pods]   = pods on the node that have not ended
    prod usage    = the same over pods of priority class koord-prod, without system and host applications

A metric is stale when it is older than the expiration, marked as unknown, or absent; a node with a stale metric is neither
source nor destination. koord-descheduler does not count host applications.

Source: koord-descheduler LowNodeLoad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.model.names import CPU, MEMORY, RESOURCE_PODS
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts


class MeasuredPod(msgspec.Struct, frozen=True):
    """A pod of a measured node; `usage`: None if the node's metric does not contain it."""

    facts: PodFacts
    usage: dict[str, int] | None
    prod: bool


class MeasuredNode(msgspec.Struct, frozen=True):
    """A node with a fresh metric. Usage in amounts; `pods` have not ended."""

    facts: NodeFacts
    usage: dict[str, int]
    prod_usage: dict[str, int]
    pods: tuple[MeasuredPod, ...] = ()


def fresh(metric: NodeMetricComputed | None, expiration: timedelta, now: datetime) -> bool:
    """Whether the metric is fresh enough for decisions."""
    return (
        metric is not None
        and metric.unknown_since is None
        and metric.update_time is not None
        and now - metric.update_time < expiration
    )


def amounts(usage: Usage) -> dict[str, int]:
    """Return a usage as amounts."""
    return {CPU: usage.cpu_milli, MEMORY: usage.memory_bytes}


def add_amounts(*parts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum per resource."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def measure(
    node: NodeFacts,
    pods: Sequence[PodFacts],
    system: Mapping[str, int],
    pod_usage: Mapping[str, Mapping[str, int]],
) -> MeasuredNode:
    """Return the node's usage. `pods`: its pods that have not ended; `pod_usage`: all pods in the metric, by `ns/name`."""
    measured = tuple(
        MeasuredPod(
            facts=facts,
            usage=dict(pod_usage[facts.key]) if facts.key in pod_usage else None,
            prod=facts.prod,
        )
        for facts in pods
    )
    usage = add_amounts(system, *pod_usage.values())
    prod_usage = add_amounts(*(pod.usage for pod in measured if pod.prod and pod.usage is not None))
    return MeasuredNode(
        facts=node,
        usage={CPU: 0, MEMORY: 0, **usage, RESOURCE_PODS: len(measured)},
        prod_usage={CPU: 0, MEMORY: 0, **prod_usage, RESOURCE_PODS: sum(1 for pod in measured if pod.prod)},
        pods=measured,
    )


def system_amounts(metric: NodeMetricComputed) -> dict[str, int]:
    """Return the usage outside of pods."""
    return add_amounts(amounts(metric.system_usage), *(amounts(each.usage) for each in metric.host_applications))
