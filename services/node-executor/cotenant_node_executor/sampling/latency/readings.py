"""The endpoints of services, and their newest answers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cotenant.domain.service_latency import LatencyEndpoint, LatencyFigures


class AskedService(Struct, frozen=True):
    """A pod's group and where its service answers."""

    group: str
    endpoint: LatencyEndpoint


class ServiceReading(Struct, frozen=True):
    """The newest answer. `problem`: why there is none; the figures are empty then."""

    figures: LatencyFigures = LatencyFigures()
    problem: str = ""


Services = Mapping[str, ServiceReading]
"""By the pod's group; a pod that was not polled yet is missing."""
NO_SERVICES: Services = {}
