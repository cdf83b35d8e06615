"""Evictions of pods on lost nodes.

In: a node's condition, its pods. Out: for each pod to evict, its toleration and the time at which it ends. A pod stays for the
smallest tolerationSeconds among its tolerations of the NoExecute taint; for ever if these have no seconds; for the default
(300 s, as Kubernetes' admission adds) without a toleration. For a pod that was placed on a node that was lost already (its spec
names the node) the time starts at its placement.

Nothing is evicted while every node that was ever measured is lost: then this service is probably partitioned.

Source: Kubernetes taint eviction and DefaultTolerationSeconds; node lifecycle's full-disruption rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import Pod
from cotenant.domain.tolerations import tolerates
from cotenant.events.conditions import NodeCondition
from cotenant.model.bounds import saturated_seconds
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.node_views import is_ready


def tolerated_for(pod: Pod, condition: NodeCondition, default: timedelta) -> timedelta | None:
    """Return how long the pod may stay on the node; None: for ever."""
    shortest: timedelta | None = None
    for key, value, effect in condition.taints:
        if effect != "NoExecute":
            continue
        taint = Taint(key=key, value=value, effect=effect)
        covering = [each for each in pod.spec.tolerations if tolerates(each, taint)]
        seconds = [saturated_seconds(each.toleration_seconds) for each in covering if each.toleration_seconds is not None]
        if covering and not seconds:
            continue
        allowed = timedelta(seconds=min(seconds)) if covering else default
        shortest = allowed if shortest is None else min(shortest, allowed)
    return shortest


def everything_is_lost(fold: ClusterFold) -> bool:
    """Whether no measured node is ready."""
    return not any(is_ready(fold, node) for node in fold.metrics if node in fold.nodes or node in fold.executors)


def lost_nodes(fold: ClusterFold) -> list[str]:
    """Return the nodes that are not ready, by name; none if all are lost."""
    lost = sorted(node for node, condition in fold.conditions.items() if not condition.value.ready)
    return [] if lost and everything_is_lost(fold) else lost


def tolerated_pods(
    fold: ClusterFold, lost: Iterable[str], default: timedelta
) -> Iterator[tuple[PodFacts, timedelta, datetime]]:
    """Yield the pods on lost nodes with a limited toleration, by node and name: the toleration and when it ends."""
    for node in lost:
        condition = fold.conditions[node].value
        if condition.since is None:
            continue
        for pod in fold.pods.on(node):
            allowed = tolerated_for(pod.pod, condition, default)
            if allowed is None or pod.terminating:
                continue
            bound_at = fold.pods.placements[node][pod.key].bound_at
            since = condition.since if bound_at is None else max(condition.since, bound_at)
            yield pod, allowed, since + allowed
