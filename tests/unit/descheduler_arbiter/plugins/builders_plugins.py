"""Nodes and pods as plugins see them, and one run of a plugin."""


from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant_descheduler_arbiter.config.plugin_points import decode_args
from cotenant_descheduler_arbiter.config.policy import CycleLimits
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.plugins.cycle_evictor import CycleEvictor
from cotenant_descheduler_arbiter.plugins.registry import RUN
from cotenant_descheduler_arbiter.plugins.view import ClusterView
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts
from cotenant_descheduler_arbiter.state.measuring import add_amounts
from tests.builders import pod_document

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def node(name: str, *, taints: Sequence[Taint] = (), labels: Mapping[str, str] | None = None, **more: Any) -> NodeFacts:
    allocatable = more.pop("allocatable", {"cpu": 10_000, "memory": 100 << 30, "pods": 110})
    return NodeFacts(name=name, taints=tuple(taints), labels=dict(labels or {}), allocatable=allocatable, **more)


def pod(name: str, on: str, *, cpu: str = "500m", age: timedelta = timedelta(hours=1), **more: Any) -> PodFacts:
    facts = {key: more.pop(key) for key in ("phase", "reason", "containers", "ready") if key in more}
    document = pod_document(
        name, created=(NOW - age).isoformat(), **{"owner": "web", "requests": {"cpu": cpu}, "image": "web:1", **more}
    )
    decoded = decode_pod(msgspec.json.encode(document))
    return PodFacts(pod=decoded, node=on, amounts=tuple(pod_requests(decoded).items()), **facts)


def run(
    plugin: str,
    args: Mapping[str, Any],
    nodes: Sequence[NodeFacts],
    pods: Sequence[PodFacts],
    *,
    node_fit: bool = False,
    limits: CycleLimits | None = None,
    stays: Sequence[str] = (),
) -> list[str]:
    """The names of the pods that a plugin evicts, in order. `stays`: those that the filters keep."""
    here = {each.name: tuple(found for found in pods if found.node == each.name) for each in nodes}
    counted = tuple(
        msgspec.structs.replace(
            each,
            requested=add_amounts(*(found.requests for found in here[each.name] if not found.ended)),
            pod_count=sum(not found.ended for found in here[each.name]),
        )
        for each in nodes
    )
    evictor = CycleEvictor(
        lambda found: "kept" if found.name in stays else None,
        CycleCounts(limits or CycleLimits()),
        counted,
        node_fit=node_fit,
    )
    RUN[plugin](decode_args(plugin, msgspec.Raw(msgspec.json.encode(args))), ClusterView(counted, here, NOW), evictor)
    return [each.pod.name for each in evictor.evicted]
