"""The gateway's own metrics: requests by verb and status class, time spent, objects, watches' ring, writes and batches.

Counted in plain integers during a request and read by OpenTelemetry on demand, so that a creation does not pay
for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Observation

from cotenant.domain.reservations.lifecycle import phase_figures
from cotenant.events.envelope import Event
from cotenant.events.reservations import ReservationShare, ReservationStatus
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.runtime.process import Host
from cotenant_gateway.shell.durations import HistogramSeries
from cotenant_gateway.shell.gateway import Gateway

ADMISSION_MILLISECONDS = "koord_manager_webhook_webhook_duration_milliseconds"
ADMISSION_LABELS = ("webhook_type", "object_type", "operation", "plugin_name", "status")


class GatewayTelemetry:
    """Registers the instruments and takes observations."""

    def __init__(self, host: Host, gateway: Gateway) -> None:
        self._gateway = gateway
        self._tracing = gateway.tracing = host.telemetry.tracing
        if self._tracing is not None:
            gateway.writer.on_stored = self._stored
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[tuple[str, int], float] = {}
        meter = host.telemetry.meter
        meter.create_observable_counter(
            "cotenant_gateway_requests", [self._count], description="HTTP requests by verb and status class"
        )
        meter.create_observable_counter(
            "cotenant_gateway_request_seconds", [self._spent], unit="s", description="Time until the answer, watches included"
        )
        meter.create_observable_gauge("cotenant_gateway_objects", [self._objects], description="API objects by kind")
        meter.create_observable_gauge(
            "cotenant_gateway_reservations", [self._reservations], description="Reservations by phase"
        )
        host.telemetry.figures.register(meter)
        meter.create_observable_counter(
            "cotenant_gateway_batches", [self._batches], description="Batches of object writes by outcome"
        )
        meter.create_observable_gauge(
            "cotenant_gateway_waiting_writes", [self._waiting], description="Writes that wait for the log: all, and of one flow"
        )
        meter.create_observable_gauge(
            "cotenant_gateway_waiting_flows", [self._flows], description="Flows whose writes wait for the log"
        )
        meter.create_observable_counter(
            "cotenant_gateway_full_flows", [self._full_flows], description="Writes refused as too many of their flow waited"
        )
        # The series of a Prometheus histogram: OpenTelemetry has no observable one.
        parts = {"bucket": self._admission_buckets, "sum": self._admission_sum, "count": self._admission_count}
        for name, callback in parts.items():
            described = "Milliseconds that admission functions took, as Koordinator's webhooks"
            meter.create_observable_gauge(f"{ADMISSION_MILLISECONDS}_{name}", [callback], description=described)
        meter.create_observable_gauge("cotenant_log_bytes", [self._log_bytes], unit="By", description="What LOG takes")
        meter.create_observable_gauge("cotenant_log_limit_bytes", [self._log_limit], unit="By", description="Size limit of LOG")
        meter.create_observable_gauge(
            "cotenant_log_free_bytes", [self._log_free], unit="By", description="Room left on LOG"
        )
        meter.create_observable_gauge(
            "cotenant_gateway_oldest_write_seconds",
            [self._oldest_write],
            unit="s",
            description="Age of the oldest write without an answer",
        )
        meter.create_observable_gauge(
            "cotenant_log_disk_free_bytes", [self._disk_free], unit="By", description="Free on nats-server's disk, where known"
        )
        meter.create_observable_gauge(
            "cotenant_log_full", [self._is_full], description="1 while creations and updates are refused for lack of room"
        )

    def _stored(self, event: Event, parent: str, sent_ns: int) -> None:
        """Send the span of an event of the gateway's own."""
        if self._tracing is not None:
            self._tracing.event(event, parent, sent_ns, time.time_ns())

    def observe(self, verb: str, status: int, seconds: float) -> None:
        """Count one answer. Verbs other than HTTP's own count as OTHER."""
        key = (verb if verb in _VERBS else "OTHER", status // 100)
        self._requests[key] = self._requests.get(key, 0) + 1
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def _count(self, _: CallbackOptions) -> Iterable[Observation]:
        for (verb, status), count in list(self._requests.items()):
            yield Observation(count, {"verb": verb, "status": f"{status}xx"})

    def _spent(self, _: CallbackOptions) -> Iterable[Observation]:
        for (verb, status), seconds in list(self._seconds.items()):
            yield Observation(seconds, {"verb": verb, "status": f"{status}xx"})

    def _objects(self, _: CallbackOptions) -> Iterable[Observation]:
        for kind, collection in self._gateway.core.collections.items():
            yield Observation(len(collection.order), {"resource": kind.plural, "group": kind.group})

    def _reservations(self, _: CallbackOptions) -> Iterable[Observation]:
        counts: dict[str, int] = {}
        for slot in list(self._gateway.core.collections[RESERVATIONS].slots.values()):
            live = [part.data for part in list(slot.parts.values()) if not part.tombstone]
            found = [data.phase for data in live if isinstance(data, (ReservationShare, ReservationStatus))]
            if slot.stored is not None:
                for name, figure in phase_figures(found[0] if found else None).items():
                    counts[name] = counts.get(name, 0) + figure
        for name, count in counts.items():
            yield Observation(count, {"phase": name})

    def _batches(self, _: CallbackOptions) -> Iterable[Observation]:
        writer = self._gateway.writer
        yield Observation(writer.batches - writer.refused_batches, {"outcome": "stored"})
        yield Observation(writer.refused_batches, {"outcome": "refused"})

    def _waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        queue = self._gateway.writer.queue
        yield Observation(len(queue), {"of": "all"})
        yield Observation(queue.longest, {"of": "longest"})

    def _flows(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._gateway.writer.queue.flows)

    def _full_flows(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._gateway.writer.queue.refused_of_flows)

    def _admission_buckets(self, _: CallbackOptions) -> Iterable[Observation]:
        for labels, series in self._admission():
            for end, count in series.up_to():
                yield Observation(count, {**labels, "le": end})

    def _admission_sum(self, _: CallbackOptions) -> Iterable[Observation]:
        for labels, series in self._admission():
            yield Observation(series.milliseconds, labels)

    def _admission_count(self, _: CallbackOptions) -> Iterable[Observation]:
        for labels, series in self._admission():
            yield Observation(sum(series.counts), labels)

    def _admission(self) -> Iterable[tuple[dict[str, str], HistogramSeries]]:
        for key, series in list(self._gateway.durations.series.items()):
            yield dict(zip(ADMISSION_LABELS, key, strict=True)), series

    def _log_bytes(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._gateway.space.room.log.used)

    def _log_limit(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._gateway.space.room.log.limit)

    def _log_free(self, _: CallbackOptions) -> Iterable[Observation]:
        room = self._gateway.space.room.log
        if room.limit:
            yield Observation(max(0, room.limit - room.used))

    def _oldest_write(self, _: CallbackOptions) -> Iterable[Observation]:
        since = self._gateway.writer.oldest_since
        yield Observation(0.0 if since is None else max(0.0, time.monotonic() - since))

    def _disk_free(self, _: CallbackOptions) -> Iterable[Observation]:
        free = self._gateway.space.room.disk_free
        if free is not None:
            yield Observation(free)

    def _is_full(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(int(self._gateway.space.room.is_short))


_VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
