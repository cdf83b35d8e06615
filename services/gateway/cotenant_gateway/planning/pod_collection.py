"""Garbage collection of finished pods, as kube-controller-manager does.

In: the read model, the time. Out: plans that delete pods, each with the reason that `explain` shows. The rules, by the first
that holds:

    ttl         `cotenant.io/ttl-seconds-after-finished` seconds have passed since it finished
    orphaned    the node that it ran on was deleted (Kubernetes' podgc, orphaned pods)
    threshold   more pods have finished than the threshold allows: the oldest by creation are deleted, then by name
                (Kubernetes' --terminated-pod-gc-threshold, 12,500; 0: none)

Pods that have not finished are kept: one whose node was deleted is placed again. Level-triggered; every plan is fenced by
the pod's own sequence, so two gateways do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

import msgspec

from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.kinds.nodes import NODES
from cotenant.log.plans import Plan
from cotenant.model.names import ANNOTATION_TTL_AFTER_FINISHED
from cotenant_gateway.planning.endings import MAX_PLANS, deletion
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.read_model.pod_ends import Finished

TERMINATED_POD_THRESHOLD = 12_500


def collected_pods(core: GatewayCore, now: datetime, threshold: int = TERMINATED_POD_THRESHOLD) -> Iterator[Plan]:
    """Yield the deletions that are due, at most MAX_PLANS."""
    yield from islice((_deleted(pod, why, now) for pod, why in _due(core, now, threshold)), MAX_PLANS)


def _due(core: GatewayCore, now: datetime, threshold: int) -> Iterator[tuple[Finished, str]]:
    nodes = core.collections[NODES].slots
    kept: list[Finished] = []
    for pod in core.pod_ends.finished.values():
        stored = pod.slot.stored
        if stored is None or stored.meta.deletion_timestamp is not None:
            continue
        node = nodes.get(("", pod.node))
        if pod.ttl is not None and pod.at is not None and now >= pod.at + pod.ttl:
            seconds = pod.ttl // timedelta(seconds=1)
            yield pod, f"it finished at {pod.at:%Y-%m-%dT%H:%M:%SZ}, {ANNOTATION_TTL_AFTER_FINISHED}: {seconds}"
        elif pod.node and (node is None or node.stored is None) and pod.node not in core.unregistered:
            yield pod, f"it has finished, and its node {pod.node} was deleted"
        else:
            kept.append(pod)
    excess = len(kept) - threshold
    if threshold <= 0 or excess <= 0:
        return
    kept.sort(key=_age)
    for pod in kept[:excess]:
        yield pod, f"{len(kept)} pods have finished, {threshold} are kept: this is one of the oldest"


def _age(pod: Finished) -> tuple[str, str, str]:
    stored, address = pod.slot.stored, pod.slot.address
    return (stored.meta.creation_timestamp or "" if stored is not None else "", address.namespace, address.name)


def _deleted(pod: Finished, why: str, now: datetime) -> Plan:
    snapshot = pod.slot.snapshot
    assert snapshot is not None
    plan = deletion(snapshot, now, 0)
    assert plan is not None
    first, *others = plan.writes
    payload = first.payload
    if isinstance(payload, ObjectDeleted):
        payload = msgspec.structs.replace(payload, reason=why)
    elif isinstance(payload, ObjectStored):  # finalizers hold it
        payload = msgspec.structs.replace(payload, admission=(f"to be deleted: {why}",))
    causes = dict.fromkeys((*first.causes, *((f"LOG:{pod.report}",) if pod.report else ())))
    return Plan((msgspec.structs.replace(first, payload=payload, causes=tuple(causes)), *others))
