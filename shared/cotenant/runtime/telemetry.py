"""What a process shows of itself: structured logs, OpenTelemetry metrics as Prometheus text, traces over OTLP.

Traces and OTLP metrics are sent only when OTEL_EXPORTER_OTLP_ENDPOINT is set; the SDK's tracing half and the exporters are not
even imported before. Label sets are bounded: a metric carries the service and nothing that grows with the cluster.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import REGISTRY, generate_latest

from cotenant.events.envelope import Event, span_id, trace_id

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(level: str, style: str) -> None:
    """Log to stderr, as text for people or as JSON lines for collectors."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("aiohttp.access", "nats"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # It warns each time that a TLS connection ends from the other side.
    logging.getLogger("asyncio").setLevel(logging.ERROR)


class Telemetry:
    """The instruments that every service has."""

    def __init__(self, service: str, replica: str) -> None:
        resource = Resource.create({"service.name": f"cotenant-{service}", "service.instance.id": replica})
        self._endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
        readers: list[MetricReader] = [PrometheusMetricReader()]
        self._tracing: TracerProvider | None = None
        if self._endpoint:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
            self._tracing = TracerProvider(resource=resource)
            self._tracing.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._provider = MeterProvider(metric_readers=readers, resource=resource)
        meter = self._provider.get_meter("cotenant")
        self.meter = meter
        self.folded = meter.create_counter("cotenant_events_folded", description="Events folded into the core")
        self.decided = meter.create_counter("cotenant_events_decided", description="Events stored by this service")
        self.batches = meter.create_counter("cotenant_batches", description="Atomic batches by outcome")
        self.dead_letters = meter.create_counter("cotenant_dead_letters", description="Messages that could not be used")
        self.decide_seconds = meter.create_histogram(
            "cotenant_decide_seconds", unit="s", description="Time that one decision took"
        )
        self.store_seconds = meter.create_histogram(
            "cotenant_store_seconds", unit="s", description="Time from sending a batch to its acknowledgement"
        )
        self._name = service

    def prometheus_text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(REGISTRY)

    @property
    def traces(self) -> bool:
        """Whether anybody receives traces."""
        return self._tracing is not None

    def trace_stored(self, events: Sequence[Event], started_ns: int, ended_ns: int) -> None:
        """Send one span a stored event (at most 64 a batch), with the trace id that its causes give it."""
        if self._tracing is None:
            return
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

        tracer = self._tracing.get_tracer("cotenant")
        for event in events[:64]:
            parent = SpanContext(
                trace_id=int(trace_id(event.causes[0] if event.causes else "", event.id), 16),
                span_id=int(span_id(event.id), 16),
                is_remote=True,
                trace_flags=TraceFlags(TraceFlags.SAMPLED),
            )
            span = tracer.start_span(
                event.data.TYPE,
                context=set_span_in_context(NonRecordingSpan(parent)),
                start_time=started_ns,
                attributes={"cotenant.subject": event.subject, "cotenant.ref": event.ref, "cotenant.causes": event.causes},
            )
            span.end(end_time=ended_ns)

    def shutdown(self) -> None:
        """Send what is pending."""
        self._provider.shutdown()
        if self._tracing is not None:
            self._tracing.shutdown()
