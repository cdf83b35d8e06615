"""Descheduler vectors of the plugins that look at pods and requests: one plugin over one cluster."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.node import Node
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.model.quantities import resource_amount
from cotenant_descheduler_arbiter.config.plugin_points import POINTS
from cotenant_descheduler_arbiter.config.policy import CycleLimits, EvictableRules
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.eviction.evictable import why_not_evictable
from cotenant_descheduler_arbiter.plugins.cycle_evictor import CycleEvictor
from cotenant_descheduler_arbiter.plugins.registry import RUN
from cotenant_descheduler_arbiter.plugins.view import ClusterView
from cotenant_descheduler_arbiter.state.facts import ContainerFacts, NodeFacts, PodFacts
from cotenant_descheduler_arbiter.state.measuring import add_amounts

Json = dict[str, Any]


def descheduler_plugins(given: Json, *, name: str) -> object:
    pods = [_pod(document) for document in given["pods"]]
    nodes = tuple(_node(document, pods) for document in given["nodes"])
    here = {node.name: tuple(pod for pod in pods if pod.node == node.name) for node in nodes}
    view = ClusterView(nodes, here, datetime.fromisoformat(given["now"]))
    rules, counts = _rules(given["evictor"]), CycleCounts(msgspec.convert(given.get("limits") or {}, CycleLimits))
    evictor = CycleEvictor(
        lambda pod: why_not_evictable(pod, rules), counts, nodes, node_fit=given["evictor"].get("nodeFit", False)
    )
    _, args = POINTS[given["plugin"]]
    RUN[given["plugin"]](msgspec.convert(given["args"], args), view, evictor)
    return {
        "evictedCount": len(evictor.evicted),
        "evictedPodsInclude": sorted(each.pod.name for each in evictor.evicted),
    }


def _rules(args: Json) -> EvictableRules:
    selector = args.get("labelSelector")
    return EvictableRules(
        evict_failed_bare_pods=args.get("evictFailedBarePods", False),
        evict_local_storage_pods=args.get("evictLocalStoragePods", False),
        evict_system_critical_pods=args.get("evictSystemCriticalPods", False),
        ignore_pvc_pods=args.get("ignorePvcPods", False),
        priority_threshold=(args.get("priorityThreshold") or {}).get("value"),
        label_selector=msgspec.convert(selector, LabelSelector) if selector is not None else None,
    )


def _pod(document: Json) -> PodFacts:
    pod: Pod = decode_pod(msgspec.json.encode(document))
    status = document.get("status") or {}
    containers = [
        _container(each, init=init)
        for init, field in ((False, "containerStatuses"), (True, "initContainerStatuses"))
        for each in status.get(field) or ()
    ]
    return PodFacts(
        pod=pod,
        node=pod.spec.node_name,
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        amounts=tuple(pod_requests(pod).items()),
        containers=tuple(containers),
    )


def _container(status: Json, *, init: bool) -> ContainerFacts:
    state = status.get("state") or {}
    why = state.get("waiting") or state.get("terminated") or {}
    return ContainerFacts(
        init=init, restarts=status.get("restartCount", 0), waiting="waiting" in state, reason=why.get("reason", "")
    )


def _node(document: Json, pods: list[PodFacts]) -> NodeFacts:
    node = msgspec.convert(document, Node)
    here = [pod for pod in pods if pod.node == node.metadata.name and not pod.ended]
    return NodeFacts(
        name=node.metadata.name,
        labels=node.metadata.labels,
        taints=tuple(node.spec.taints),
        unschedulable=node.spec.unschedulable,
        allocatable={each: resource_amount(each, text) for each, text in node.status.allocatable.items()},
        requested=add_amounts(*(pod.requests for pod in here)),
        pod_count=len(here),
    )
