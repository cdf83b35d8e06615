"""Metrics of a gateway's clients: connections, open streams by kind, reserved bytes, connections closed and refused."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from cotenant_gateway.http.clients.connections import Connections
from cotenant_gateway.http.clients.limits import StreamKind
from cotenant_gateway.http.clients.streams import OpenStreams


def register_clients(meter: Meter, connections: Connections, streams: OpenStreams) -> None:
    """Register the instruments, which are read on demand."""

    def observed_streams(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(streams.count(kind), {"kind": kind.value}) for kind in StreamKind]

    def observed_connections(_: CallbackOptions) -> Iterable[Observation]:
        idle = len(connections.idle)
        return [
            Observation(len(connections.open) - idle, {"state": "busy"}),
            Observation(idle, {"state": "idle"}),
        ]

    def observed_bytes(_: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(connections.requests.held, {"of": "requests"}),
            Observation(connections.answers.held, {"of": "answers"}),
        ]

    def observed_closed(_: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(connections.refused, {"why": "too_many"}),
            Observation(connections.cut_off, {"why": "slow"}),
        ]

    meter.create_observable_gauge(
        "cotenant_gateway_open_streams", [observed_streams], description="Watches, followed events, followed logs, explanations"
    )
    meter.create_observable_gauge("cotenant_gateway_connections", [observed_connections], description="Connections by state")
    meter.create_observable_gauge(
        "cotenant_gateway_client_bytes", [observed_bytes], unit="By", description="Requests' bodies, and answers not taken yet"
    )
    meter.create_observable_counter(
        "cotenant_gateway_clients_closed", [observed_closed], description="Connections refused, and those of slow clients ended"
    )
