"""A process' telemetry: structured logs, OpenTelemetry metrics as Prometheus text, traces over OTLP.

Traces (`runtime.tracing`) and OTLP metrics are sent only when OTEL_EXPORTER_OTLP_ENDPOINT is set; the SDK's tracing half and
the exporters are not even imported before. Names follow Prometheus' conventions, label sets are bounded: nothing that grows
with the cluster. A log line carries its trace: that of the event in its `extra` (`log.traces.about`),
else that of the task (`model.trace_context.CURRENT`).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import REGISTRY, generate_latest

from cotenant.model.trace_context import CURRENT
from cotenant.runtime.figures import Figures, Value, by_label, show

if TYPE_CHECKING:
    from cotenant.runtime.tracing import Tracing

SHUTDOWN_SECONDS = 3.0
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds in seconds: a batch takes milliseconds, and 10 s are the longest that a client waits."""
OUTCOMES = ("stored", "refused", "no_space", "unanswered")
"""Of a batch."""


def _trace_of(record: logging.LogRecord) -> tuple[str, str]:
    """Return the trace id and the span id of a line, empty where it belongs to no trace."""
    text = getattr(record, "traceparent", "") or CURRENT.get()
    return text[3:35], text[36:52]


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace, span = _trace_of(record)
        if trace:
            line |= {"trace_id": trace, "span_id": span}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """A line for people; that of a trace ends in its ids, before the traceback if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        line = super().formatMessage(record)
        trace, span = _trace_of(record)
        return f"{line} trace_id={trace} span_id={span}" if trace else line


def configure_logging(level: str, style: str) -> None:
    """Log to stderr, as text for people or as JSON lines for collectors."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("aiohttp.access", "nats"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class Telemetry:
    """The instruments that every service has."""

    def __init__(self, service: str, replica: str) -> None:
        resource = Resource.create({"service.name": f"cotenant-{service}", "service.instance.id": replica})
        self._endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
        readers: list[MetricReader] = [PrometheusMetricReader(scope_info_enabled=False)]
        self.tracing: Tracing | None = None
        """None without a collector."""
        if self._endpoint:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
        self._provider = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        if self._endpoint:
            from cotenant.runtime.tracing import Tracing

            self.tracing = Tracing(resource, self._provider)
        meter = self._provider.get_meter("cotenant")
        self.meter = meter
        self.figures = Figures()
        # Plain numbers, read when metrics are: the SDK takes some 10 us for each addition, and a decision makes three.
        self.folded = 0
        """Events folded into the core."""
        self.decided = 0
        """Events stored by this service."""
        self.batches = dict.fromkeys(OUTCOMES, 0)
        """Batches by outcome."""
        self.dead_letters = meter.create_counter("cotenant_dead_letters", description="Messages that could not be used")
        self.decide_seconds = meter.create_histogram(
            "cotenant_decide_seconds",
            unit="s",
            description="Time that one decision took",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.store_seconds = meter.create_histogram(
            "cotenant_store_seconds",
            unit="s",
            description="Time from sending a batch to its acknowledgement",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.dead_letters.add(0)  # the SDK does not show a counter before its first use

    @property
    def exports(self) -> bool:
        """Whether metrics are sent to a collector, besides the page."""
        return bool(self._endpoint)

    def of_deciding_service(self) -> None:
        """Show the metrics that only services which decide have, from the start on."""
        counts: tuple[tuple[str, str, Callable[[], Iterable[Value]]], ...] = (
            ("cotenant_events_folded", "Events folded into the core", lambda: [(self.folded, {})]),
            ("cotenant_events_decided", "Events stored by this service", lambda: [(self.decided, {})]),
            ("cotenant_batches", "Batches by outcome", lambda: by_label("outcome", self.batches)),
        )
        for name, description, read in counts:
            show(self.meter, name, description, read, counter=True)

    def prometheus_text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(REGISTRY)

    def shutdown(self) -> None:
        """Send what is pending, at most for SHUTDOWN_SECONDS: a silent collector does not delay the exit."""
        last_words = threading.Thread(target=self._shut_down, name="telemetry-shutdown", daemon=True)
        last_words.start()
        last_words.join(SHUTDOWN_SECONDS)

    def _shut_down(self) -> None:
        if self.tracing is not None:
            self.tracing.shutdown()
        self._provider.shutdown()
