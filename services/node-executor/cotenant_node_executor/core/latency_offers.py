"""The placed pods that offer their own latency.

In: decoded placements. Out: the endpoints to poll. A pod with an unreadable annotation, which admission refuses, is not
polled: strategies report it.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.domain.service_latency import ANNOTATION_ENDPOINT, parse_latency_endpoint
from cotenant_node_executor.core.placed import DecodedPlacement
from cotenant_node_executor.sampling.latency.readings import AskedService


def offers_latency(placed: DecodedPlacement | None) -> bool:
    """Whether a pod has the annotation."""
    return placed is not None and placed.view is not None and ANNOTATION_ENDPOINT in placed.view.annotations


def asked_services(placed: Iterable[DecodedPlacement]) -> tuple[AskedService, ...]:
    """The endpoints to poll, by group."""
    found: dict[str, AskedService] = {}
    for each in placed:
        if each.view is None or each.refusal or not offers_latency(each):
            continue
        try:
            endpoint = parse_latency_endpoint(each.view.annotations[ANNOTATION_ENDPOINT])
        except ValueError:
            continue
        found[each.view.group] = AskedService(each.view.group, endpoint)
    return tuple(found[group] for group in sorted(found))
