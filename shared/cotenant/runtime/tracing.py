"""Spans over OTLP, by OpenTelemetry's SDK. Imported only where OTEL_EXPORTER_OTLP_ENDPOINT names a collector.

In: what was done, from when to when, its traceparent and that of what it follows from. Out: one span each. Span and trace ids
are those of the traceparents that the events carry, so the spans of several processes are one tree: the span of an event that
was stored has the id that its traceparent names, and its parent is the span of its first cause.

Sampling is the SDK's: OTEL_TRACES_SAMPLER, by default parentbased_always_on, which follows the flag of the parent.

Bounds: OTEL_BSP_MAX_QUEUE_SIZE (2,048) spans wait to be sent. What is dropped beyond that is counted by the SDK:
`otel_sdk_processor_span_processed_total` with an `error_type`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from cotenant.events.envelope import Event
from cotenant.log.traces import Traces
from cotenant.model.trace_context import parsed, trace_of, traceparent_of

_INTERNAL_METRICS = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"
MAX_CAUSES = 9
"""Of an event, named in its span: its parent, and links to the others."""

Attributes = Mapping[str, AttributeValue]


class _GivenIds(IdGenerator):
    """Gives the ids of a traceparent to the next span."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class Tracing:
    """Sends the spans of one process."""

    def __init__(self, resource: Resource, meters: MeterProvider) -> None:
        os.environ.setdefault(_INTERNAL_METRICS, "true")
        self._ids = _GivenIds()
        self._random = RandomIdGenerator()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), meter_provider=meters))
        self._tracer = self._provider.get_tracer("cotenant")

    def begin(self, parent: str, name: str) -> str:
        """Return the traceparent of a span that begins now: a child of `parent`, or the root of a new trace, whose flag the
        sampler decides. `record` it when it has ended."""
        span_id = self._random.generate_span_id()
        if known := parsed(parent):
            return f"{known[:36]}{span_id:016x}{known[52:]}"
        trace_id = self._random.generate_trace_id()
        return f"00-{trace_id:032x}-{span_id:016x}-{self._flag(trace_id, name)}"

    def root(self, event_id: str, name: str) -> str:
        """Return the traceparent of an event that follows from nothing: ids that follow from its own."""
        made = traceparent_of((), event_id)
        return f"{made[:53]}{self._flag(int(made[3:35], 16), name)}"

    def _flag(self, trace_id: int, name: str) -> str:
        decision = self._provider.sampler.should_sample(None, trace_id, name).decision
        return "01" if decision is Decision.RECORD_AND_SAMPLE else "00"

    def record(
        self,
        name: str,
        traceparent: str,
        parent: str,
        started_ns: int,
        ended_ns: int,
        attributes: Attributes,
        *,
        served: bool = False,
        links: Iterable[str] = (),
        error: str = "",
    ) -> None:
        """Send the span that `traceparent` names. `parent`: the traceparent of its parent, empty for a root; `served`: it
        answers somebody else's request; `links`: the traceparents of what else it follows from; `error`: what went wrong."""
        own = _context(traceparent)
        if own is None:
            return
        self._ids.trace_id, self._ids.span_id = own.trace_id, own.span_id
        above = _context(parent)
        span = self._tracer.start_span(
            name,
            context=set_span_in_context(NonRecordingSpan(above)) if above is not None else None,
            kind=SpanKind.SERVER if served else SpanKind.INTERNAL,
            start_time=started_ns,
            attributes=attributes,
            links=[Link(context) for each in links if (context := _context(each)) is not None],
        )
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(end_time=ended_ns)

    def event(
        self,
        event: Event,
        parent: str,
        started_ns: int,
        ended_ns: int,
        *,
        name: str = "",
        attributes: Attributes | None = None,
        links: Iterable[str] = (),
    ) -> None:
        """Send the span of an event that was stored. `parent`: the traceparent that it continues; `name`: the event's type, if
        none is given."""
        own = event.traceparent or traceparent_of(event.causes, event.id)
        described: Attributes = {
            "cotenant.subject": event.subject,
            "cotenant.ref": event.ref,
            "cotenant.causes": event.causes[:MAX_CAUSES],
            **(attributes or {}),
        }
        above = parent if trace_of(parent) == trace_of(own) else ""
        self.record(name or event.data.TYPE, own, above, started_ns, ended_ns, described, links=links)

    def stored(self, events: Iterable[Event], traces: Traces, started_ns: int, ended_ns: int) -> None:
        """Send one span for each event that a service decided and stored, with links to what else it follows from."""
        for event in events:
            others = [found for ref in event.causes[1:MAX_CAUSES] if (found := traces.at(ref))]
            self.event(event, traces.of(event.causes), started_ns, ended_ns, links=others)

    def shutdown(self) -> None:
        """Send what waits."""
        self._provider.shutdown()


def _context(traceparent: str) -> SpanContext | None:
    known = parsed(traceparent) if traceparent else ""
    if not known:
        return None
    return SpanContext(
        trace_id=int(known[3:35], 16),
        span_id=int(known[36:52], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(known[53:55], 16)),
    )
