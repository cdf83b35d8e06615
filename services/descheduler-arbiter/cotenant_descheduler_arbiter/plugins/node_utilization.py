"""LowNodeUtilization and HighNodeUtilization: nodes whose requests are spread unevenly, or too thinly.

In: the nodes with the sum of the requests of their pods, percentages. Out: evictions. The usage of a node is what its pods
request (`pods`: how many there are), its capacity the allocatable; cpu, memory and pods without a threshold never decide.

                 source                            destination                                  sources in order
    Low          some usage > target threshold     schedulable, every usage <= threshold        most used first
    High         every usage <= threshold          schedulable and no source, up to 100 %       least used first

    nothing happens without source or destination, with at most numberOfNodes of the low ones, or if all nodes are low
    total[r] = sum over destinations of (high[r] - usage[r])
    of each source, pods of low priority first: a pod goes if it tolerates the taints of some destination and the filters let it
    until some total is used up, or (Low) the source is no longer above its target

Deviation thresholds are around the mean, as LowNodeLoad's (`low_node_load.thresholds`).

Source: kubernetes-sigs descheduler. There a pod needs as many tolerations as the destination has taints; here tolerating
them is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from cotenant.domain.tolerations import tolerated
from cotenant.model.names import CPU, MEMORY, RESOURCE_PODS
from cotenant_descheduler_arbiter.config.configuration import NamespaceRule
from cotenant_descheduler_arbiter.config.plugin_args import HighNodeUtilizationArgs, LowNodeUtilizationArgs
from cotenant_descheduler_arbiter.eviction.evictable import namespace_refusal
from cotenant_descheduler_arbiter.low_node_load.classify import is_over, is_under, over_resources
from cotenant_descheduler_arbiter.low_node_load.thresholds import (
    Band,
    band_amounts,
    band_percent,
    fill_band,
    mean_percent,
)
from cotenant_descheduler_arbiter.plugins.priority_order import low_priority_first
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts

_ALWAYS = (CPU, MEMORY, RESOURCE_PODS)


class Requested(msgspec.Struct):
    """A node, what its pods request, and its bounds in amounts. `usage` falls with every evicted pod."""

    facts: NodeFacts
    usage: dict[str, int]
    low: dict[str, int]
    high: dict[str, int]


def requested_nodes(view: ClusterView, band: Band, *, deviation: bool) -> list[Requested]:
    """Return the nodes with usage and bounds."""
    usages = {node.name: {**node.requested, RESOURCE_PODS: node.pod_count} for node in view.nodes}
    if deviation:
        measured = [(usages[node.name], node.allocatable) for node in view.nodes]
        band = band_percent(band, mean_percent(measured, tuple(band.low)))
    found = []
    for node in view.nodes:
        amounts, usage = band_amounts(band, node.allocatable), usages[node.name]
        found.append(Requested(node, {name: usage.get(name, 0) for name in band.low}, amounts.low, amounts.high))
    return found


def low_node_utilization(args: LowNodeUtilizationArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    names = tuple(sorted({*args.thresholds, *_ALWAYS}))
    deviation = args.use_deviation_thresholds
    nodes = requested_nodes(
        view, fill_band(args.thresholds, args.target_thresholds, names, deviation=deviation), deviation=deviation
    )
    low = [node for node in nodes if not node.facts.unschedulable and is_under(node.usage, node.low)]
    names_low = {node.facts.name for node in low}
    high = [node for node in nodes if node.facts.name not in names_low and is_over(node.usage, node.high)]
    if not low or len(low) <= args.number_of_nodes or len(low) == len(nodes) or not high:
        return

    def over(node: Requested) -> str | None:
        above = over_resources(node.usage, node.high)
        return f"requests of node {node.facts.name} are above the target: {_named(node, above)}" if above else None

    high.sort(key=lambda node: (-sum(node.usage.values()), node.facts.name))
    _relieve(high, low, view, evictor, args.evictable_namespaces, over)


def high_node_utilization(args: HighNodeUtilizationArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    names = tuple(sorted({*args.thresholds, *_ALWAYS}))
    nodes = requested_nodes(view, fill_band(args.thresholds, {}, names, deviation=False), deviation=False)
    low = [node for node in nodes if is_under(node.usage, node.low)]
    names_low = {node.facts.name for node in low}
    takers = [node for node in nodes if node.facts.name not in names_low and not node.facts.unschedulable]
    if not low or len(low) <= args.number_of_nodes or len(low) == len(nodes) or not takers:
        return

    def thin(node: Requested) -> str | None:
        return f"requests of node {node.facts.name} are below the thresholds: {_named(node, sorted(args.thresholds))}"

    low.sort(key=lambda node: (sum(node.usage.values()), node.facts.name))
    _relieve(low, takers, view, evictor, args.evictable_namespaces, thin)


def _named(node: Requested, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {node.usage.get(name, 0)} of {node.facts.allocatable.get(name, 0)}" for name in names)


def _relieve(
    sources: Sequence[Requested],
    takers: Sequence[Requested],
    view: ClusterView,
    evictor: Evictor,
    namespaces: NamespaceRule | None,
    why: Callable[[Requested], str | None],
) -> None:
    """Evict the sources' pods while `why` names a reason and the destinations have room."""
    total = {name: sum(taker.high[name] - taker.usage[name] for taker in takers) for name in takers[0].usage}
    for source in sources:
        for pod in low_priority_first(view.active_on(source.facts.name)):
            reason = why(source)
            if reason is None or any(left <= 0 for left in total.values()) or evictor.node_full(source.facts.name):
                break
            if namespaces is not None and namespace_refusal(namespaces, pod.namespace) is not None:
                continue
            if not _tolerates_one(pod, takers) or evictor.why_not(pod) or evictor.why_not_elsewhere(pod):
                continue
            if evictor.evict(pod, reason):
                _take(source.usage, pod.requests)
                _take(total, pod.requests)


def _take(amounts: dict[str, int], requests: Mapping[str, int]) -> None:
    for name in amounts:
        amounts[name] -= 1 if name == RESOURCE_PODS else requests.get(name, 0)


def _tolerates_one(pod: PodFacts, nodes: Sequence[Requested]) -> bool:
    """Whether the pod tolerates all taints, of any effect, of some node."""
    tolerations = pod.pod.spec.tolerations
    return any(all(tolerated(taint, tolerations) for taint in node.facts.taints) for node in nodes)
