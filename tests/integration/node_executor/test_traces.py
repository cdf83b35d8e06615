"""One trace from an HTTP request to the control group, and one from a usage sample to what follows from it.

Real processes on a real server, each told of one collector, which is real too: it decodes what OTLP/HTTP brings.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from cotenant.log.contract import LOG
from cotenant.log.nats.log import read_all
from cotenant.runtime.process import serve_http
from tests.builders import container, pod_document
from tests.integration.gateway.gateway_process import PODS, GatewayProcess, body_of
from tests.integration.node_executor.executor_harness import INTERPRETER, WAIT_SECONDS, Harness
from tests.nats_server import NatsServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

GIVEN = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
COLOCATION = (
    '{"enable": true, "cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 100,'
    ' "metricReportIntervalSeconds": 1, "metricAggregateDurationSeconds": 2, "resourceDiffThreshold": 0.001}'
)
THRESHOLDS = '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 80}}'
OBJECTS = f"""
- path: /apis/node.k8s.io/v1/runtimeclasses
  document: {{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {{name: process}}, handler: process,
    scheduling: {{tolerations: [{{operator: Exists}}]}}}}
- path: /api/v1/namespaces/koordinator-system/configmaps
  document: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: slo-controller-config}},
    data: {{colocation-config: '{COLOCATION}', resource-threshold-config: '{THRESHOLDS}'}}}}
"""


ROUTE = "/api/v1/namespaces/{namespace}/pods"
CHAIN = {
    ("node-executor", "cotenant.usage.v1"),
    ("metrics-ingest", "cotenant.nodemetric.v1"),
    ("batch-resource-calculator", "cotenant.noderesources.v1"),
    ("node-executor", "resources seen"),
}


class Span(NamedTuple):
    """What a test asks of a span."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, str]
    seconds: float


class Collector:
    """Takes spans over OTLP/HTTP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.arrived = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        """POST /v1/traces."""
        message = ExportTraceServiceRequest.FromString(await request.read())
        async with self.arrived:
            for of_process in message.resource_spans:
                service = _texts(of_process.resource.attributes)["service.name"]
                for scope in of_process.scope_spans:
                    self.spans += [_span(service, span) for span in scope.spans]
            self.arrived.notify_all()
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")

    async def ignore(self, request: web.Request) -> web.Response:
        """POST /v1/metrics."""
        await request.read()
        return web.Response()

    async def until(self, what: str, found: Callable[[], Any]) -> Any:
        """Wait (bounded) until something is true of the spans."""
        async with self.arrived:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    while not (result := found()):
                        await self.arrived.wait()
            except TimeoutError:
                seen = sorted({(span.service, span.name) for span in self.spans})
                raise AssertionError(f"not within {WAIT_SECONDS} s: {what}; seen: {seen}") from None
            return result

    def of_trace(self, trace: str) -> list[Span]:
        return [span for span in self.spans if span.trace == trace]


def _texts(attributes: Any) -> dict[str, str]:
    return {each.key: each.value.string_value or str(each.value.int_value) for each in attributes}


def _span(service: str, span: Any) -> Span:
    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    return Span(service.removeprefix("cotenant-"), span.name, *ids, _texts(span.attributes), seconds)


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """A collector of which every process that is started hears."""
    made = Collector()
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.post("/v1/traces", made.take), web.post("/v1/metrics", made.ignore)])
    runner, url = await serve_http(app, "127.0.0.1", 0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    yield made
    await runner.cleanup()


def service(name: str, *flags: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", f"cotenant_{name}", *flags])


@pytest.fixture
async def services(collector: Collector, nats_server: NatsServer) -> AsyncIterator[None]:
    """All deciding services that the traces go through."""
    options = {
        "scheduler": [],
        "quota_tree": [],
        "metrics_ingest": ["--set", "report_interval_seconds=1", "--set", "aggregate_duration_seconds=2"],
        "batch_resource_calculator": [],
    }
    running = [service(name, "--nats", nats_server.url, "--http-port", "-1", *more) for name, more in options.items()]
    yield
    for process in running:
        process.terminate()
    for process in running:
        assert await asyncio.to_thread(process.wait, WAIT_SECONDS) == 0


@pytest.fixture
async def gateway(collector: Collector, nats_server: NatsServer) -> AsyncIterator[GatewayProcess]:
    """A gateway that knows the process runtime, and colocation."""
    made = GatewayProcess(nats_server.url)
    await made.ready()
    async with made.session() as session:
        for each in yaml.safe_load(OBJECTS):
            async with session.post(each["path"], json=each["document"]) as answer:
                await body_of(answer, 201)
    yield made
    await asyncio.to_thread(made.close)


def pod(name: str, script: str, qos: str, amounts: dict[str, str]) -> dict[str, Any]:
    command = [INTERPRETER, "-u", "-c", script]
    return pod_document(
        name,
        namespace="",
        uid="",
        labels={"koordinator.sh/qosClass": qos},
        containers=[container(command=command, requests=amounts, limits=amounts if qos == "BE" else None)],
        runtimeClassName="process",
        priorityClassName="koord-batch" if qos == "BE" else "koord-prod",
        restartPolicy="Never",
        terminationGracePeriodSeconds=1,
    )


async def create(session: aiohttp.ClientSession, document: dict[str, Any], traceparent: str = "") -> None:
    headers = {"traceparent": traceparent} if traceparent else {}
    async with session.post(PODS, json=document, headers=headers) as answer:
        await body_of(answer, 201)


def one(spans: list[Span], service: str, name: str) -> Span | None:
    return next((span for span in spans if (span.service, span.name) == (service, name)), None)


@pytest.mark.usefixtures("services")
async def test_one_trace_goes_from_a_request_to_the_control_group_and_one_from_a_sample_to_the_suppression(
    collector: Collector, gateway: GatewayProcess, harness: Harness
) -> None:
    harness.start()
    burn = "while True: pass"
    # A service that burns for a while, now and then, so that batch is held back and what the node lends changes.
    waves = "import time\nwhile True:\n    end = time.time() + 3\n    while time.time() < end: pass\n    time.sleep(3)"
    async with gateway.session() as session:
        await create(session, pod("service", waves, "LS", {"cpu": "100m", "memory": "64Mi"}), f"00-{GIVEN}-{CALLER}-01")
        batch = {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "64Mi"}
        await create(session, pod("burner", burn, "BE", batch))

        def whole() -> list[Span] | None:
            spans = collector.of_trace(GIVEN)
            names = {(span.service, span.name) for span in spans}
            return spans if {("node-executor", "pod running"), ("node-executor", "cgroup write")} <= names else None

        spans = await collector.until("the pod runs, and its values are written", whole)
        await collector.until("the request has ended", lambda: one(collector.of_trace(GIVEN), "gateway", f"POST {ROUTE}"))
    spans = collector.of_trace(GIVEN)
    request = one(spans, "gateway", f"POST {ROUTE}")
    assert request is not None
    assert request.parent == CALLER
    assert request.attributes["http.response.status_code"] == "201"
    assert request.attributes["user.name"]
    admission, stored = one(spans, "gateway", "admission"), one(spans, "gateway", "cotenant.object.v1")
    placed, runs = one(spans, "scheduler", "cotenant.placement.v1"), one(spans, "node-executor", "pod running")
    written = one(spans, "node-executor", "cgroup write")
    assert admission is not None
    assert stored is not None
    assert placed is not None
    assert runs is not None
    assert written is not None
    assert (admission.parent, stored.parent) == (request.id, request.id)
    assert placed.parent == stored.id
    assert (runs.parent, written.parent) == (placed.id, placed.id)
    ids = {span.id for span in spans}
    assert len(ids) == len(spans), "each span is sent once"
    assert {span.parent for span in spans} <= ids | {CALLER}, "no parent is missing"
    assert all(0 <= span.seconds < WAIT_SECONDS for span in spans)

    # What is on the log says the same, for whoever goes from a decision to its trace.
    events = await read_all(harness.log, LOG, ["objects.core.pods.default.service", "node.*.placement.default.service"])
    assert {event.traceparent[3:35] for event in events} == {GIVEN}

    def suppressed() -> list[Span] | None:
        for sample in [span for span in collector.spans if span.name == "cotenant.usage.v1"]:
            spans = collector.of_trace(sample.trace)
            names = {(span.service, span.name) for span in spans}
            topics = {span.attributes.get("cotenant.topic") for span in spans}
            if names >= CHAIN and "suppress" in topics:
                return spans
        return None

    spans = await collector.until("a sample is aggregated, lent from, and batch is held back for it", suppressed)
    sample = one(spans, "node-executor", "cotenant.usage.v1")
    metric = one(spans, "metrics-ingest", "cotenant.nodemetric.v1")
    lent = one(spans, "batch-resource-calculator", "cotenant.noderesources.v1")
    seen = one(spans, "node-executor", "resources seen")
    held = next(span for span in spans if span.attributes.get("cotenant.topic") == "suppress")
    assert sample is not None
    assert metric is not None
    assert lent is not None
    assert seen is not None
    assert sample.parent == ""
    assert (metric.parent, held.parent) == (sample.id, sample.id)
    assert lent.parent == metric.id
    assert seen.parent == lent.id
