"""Evictions by NoExecute taints: which pods of a node are evicted, and when.

In: a node's condition and taints, its pods. Out: for each pod to evict the time at which its toleration ends, and the taint.

    taint of a lost node         in force from the time at which the node got it (`tainting`)
    taint of a user or executor  in force from the time at which it was noted (`readiness`), while it is still set
    a taint's toleration         the first of the pod's that matches; without seconds: forever
    none for not-ready, unreachable   the default, 300 s, as Kubernetes' admission adds
    none for another taint       0 s
    the pod is evicted           when the first toleration ends; from its placement if that is later than the taint

Pods of a DaemonSet tolerate not-ready and unreachable, mirror and static pods every NoExecute taint, as if their controller or
kubelet had added the tolerations. Disruption budgets do not count: a taint evicts without regard to them.

Source: Kubernetes' taint eviction controller, DefaultTolerationSeconds, DaemonSet controller, kubelet (static pods). There the
time starts over with the controller's process; here it is in the condition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import Pod
from cotenant.domain.tolerations import tolerates
from cotenant.events.node.conditions import NO_EXECUTE, TAINT_NOT_READY, TAINT_UNREACHABLE
from cotenant.model.bounds import saturated_seconds
from cotenant.model.times import EPOCH, NEVER
from cotenant_descheduler_arbiter.eviction.evictable import is_static, of_daemon_set
from cotenant_descheduler_arbiter.node_lifecycle.readiness import set_taints
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold

_LOST = frozenset({TAINT_NOT_READY, TAINT_UNREACHABLE})


class InForce(msgspec.Struct, frozen=True):
    """A NoExecute taint of a node and since when it evicts."""

    taint: Taint
    since: datetime


class Due(msgspec.Struct, frozen=True):
    """When a pod is evicted, by which taint, and how long it tolerates that."""

    until: datetime
    cause: InForce
    tolerated: timedelta


def taints_in_force(fold: ClusterFold, node: str) -> tuple[InForce, ...]:
    """Return the node's NoExecute taints: the one of a lost node, and those of users in the order in which they are set."""
    known = fold.conditions.get(node)
    if known is None:
        return ()
    condition = known.value
    found: list[InForce] = []
    if condition.evicts:
        since = condition.tainted_at or condition.since or EPOCH
        keys = [(key, value) for key, value, effect in condition.taints if effect == NO_EXECUTE]
        found += (InForce(Taint(key=key, value=value, effect=NO_EXECUTE), since) for key, value in keys)
    noted = {(taint.key, taint.value): taint.since for taint in condition.no_execute}
    for key, value in set_taints(fold, node) if noted else ():
        if (key, value) in noted:
            found.append(InForce(Taint(key=key, value=value, effect=NO_EXECUTE), noted[key, value]))
    return tuple(found)


def tolerated_for(pod: Pod, taint: Taint, default: timedelta) -> timedelta | None:
    """Return how long the pod tolerates a NoExecute taint; None: forever."""
    if is_static(pod) or (taint.key in _LOST and of_daemon_set(pod)):
        return None
    for toleration in pod.spec.tolerations:
        if tolerates(toleration, taint):
            seconds = toleration.toleration_seconds
            return None if seconds is None else timedelta(seconds=saturated_seconds(seconds))
    return default if taint.key in _LOST else timedelta(0)


def eviction_due(pod: PodFacts, bound_at: datetime | None, taints: Iterable[InForce], default: timedelta) -> Due | None:
    """Return when the pod is evicted by the first toleration that ends; None: it stays."""
    due: Due | None = None
    for each in taints:
        allowed = tolerated_for(pod.pod, each.taint, default)
        if allowed is None:
            continue
        until = (each.since if bound_at is None else max(each.since, bound_at)) + allowed
        if due is None or until < due.until:
            due = Due(until, each, allowed)
    return due


class TaintEvictions:
    """The pods to evict, by node, cached until the node or one of its pods changes. Bound: the pods of tainted nodes."""

    def __init__(self, fold: ClusterFold, default: timedelta) -> None:
        self._fold = fold
        self._default = default
        self._of: dict[str, list[tuple[datetime, str]]] = {}
        """Of each tainted node: when its pods are evicted, and their `namespace/name`, in order."""
        self._changed: set[str] = set()

    def note(self, nodes: Iterable[str]) -> None:
        """Note that nodes, or pods on them, have changed."""
        self._changed.update(nodes)

    def refresh(self) -> None:
        """Bring the changed nodes up to date."""
        changed, self._changed = self._changed, set()
        for node in changed:
            found = self._pods_of(node) if node in self._fold.conditions else None
            if found is None:
                self._of.pop(node, None)
            else:
                self._of[node] = found

    def _pods_of(self, node: str) -> list[tuple[datetime, str]] | None:
        taints = taints_in_force(self._fold, node)
        if not taints:
            return None
        found = []
        for pod in self._fold.pods.on(node):
            due = self._due(pod, taints)
            if due is not None and not pod.terminating:
                found.append((due.until, pod.key))
        return sorted(found)

    def _due(self, pod: PodFacts, taints: Iterable[InForce]) -> Due | None:
        placed = self._fold.pods.placements[pod.node].get(pod.key)
        return eviction_due(pod, placed.bound_at if placed is not None else None, taints, self._default)

    @property
    def any_tainted(self) -> bool:
        """Whether a node has a NoExecute taint in force."""
        return bool(self._of)

    def due(self, now: datetime) -> Iterator[str]:
        """Yield the pods that are due, first those of the node whose first pod is due longest."""
        nodes = sorted((pods[0][0], node) for node, pods in self._of.items() if pods and pods[0][0] <= now)
        for _, node in nodes:
            yield from (key for until, key in self._of[node] if until <= now)

    def next_due(self, now: datetime) -> datetime:
        """Return when the next pod is evicted after now."""
        times = (pods[bisect_right(pods, (now, _LAST))][0] for pods in self._of.values() if pods and pods[-1][0] > now)
        return min(times, default=NEVER)

    def due_of(self, pod: PodFacts) -> Due | None:
        """Return when a pod is evicted by the node's present taints."""
        return self._due(pod, taints_in_force(self._fold, pod.node)) if pod.node else None


_LAST = chr(0x10FFFF)
