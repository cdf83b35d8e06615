"""A NodeMetric as the log's reader decodes it for this service: less than what is stored, and the same decision."""

from __future__ import annotations

import json

import msgspec
import pytest

from cotenant.events import Event, NodeMetricComputed
from cotenant.events.envelope import MessageDecoders, decode_event, encode_event
from cotenant.events.node.metrics import (
    AggregatedUsage,
    Contention,
    HostApplicationMetric,
    MeanDigest,
    ModelPeaks,
    PodMetric,
    ProdPrediction,
    SlotDigest,
    Usage,
    WindowDigest,
)
from cotenant.model.subjects import metrics_subject
from cotenant_batch_resource_calculator.definition import DEFINITION
from cotenant_batch_resource_calculator.metric_view import AggregatedUsageView, NodeMetricView, PodMetricView
from cotenant_batch_resource_calculator.risk import services_milli
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import GIB, NOON, Bench

STRATEGY = json.dumps({
    "enable": True,
    "midUnallocatedPercent": 10,
    "extensions": {"forecast": "timeOfDay", "riskBudget": {"brokenPercent": 1, "leastHours": 3}},
})


def used(cores: int) -> Usage:
    return Usage(cpu_milli=1000 * cores, memory_bytes=cores * GIB)


def full_report(services_peak: Usage | None) -> NodeMetricComputed:
    window = AggregatedUsage(duration_seconds=300, p50=used(20), p90=used(30), p95=used(31), p99=used(33), avg=used(21))
    pod = PodMetric(namespace="default", name="web", uid="web", priority="koord-prod", qos="LS", usage=used(12))
    return NodeMetricComputed(
        node="a",
        update_time=NOON,
        node_usage=used(25),
        system_usage=used(3),
        aggregated_node_usages=(window,),
        aggregated_system_usages=(window,),
        pods=(
            msgspec.structs.replace(pod, contention=Contention(cpu_some=7)),
            msgspec.structs.replace(pod, name="left", uid="left", priority="koord-mid", usage=used(4)),
        ),
        host_applications=(HostApplicationMetric(name="yarn", priority="koord-batch", qos="BE", usage=used(6)),),
        prod_reclaimable=used(9),
        prod_peak=used(27),
        services_peak=services_peak,
        prediction=ProdPrediction(models=(ModelPeaks(model="__node__", p95=used(30)),)),
        digest=WindowDigest(slots=SlotDigest(width_ms=30_000, closed=b"12"), means=MeanDigest(width_ms=60_000)),
    )


def as_read(data: NodeMetricComputed) -> NodeMetricView:
    raw = encode_event(Event(subject=metrics_subject("a"), data=data, id="1", source="/cell/metrics-ingest/0", time=NOON))
    decoders = MessageDecoders(DEFINITION.views)
    found = decode_event(raw, subject=metrics_subject("a"), stream="LOG", sequence=1, decoders=decoders).data
    assert isinstance(found, NodeMetricView)
    return found


@pytest.mark.parametrize("services_peak", [None, used(26)])
def test_a_metric_that_is_read_in_part_leads_to_the_decision_of_the_whole_one(services_peak: Usage | None) -> None:
    whole = full_report(services_peak)
    part = as_read(whole)
    assert services_milli(part) == services_milli(whole) != 0
    decided = []
    for data in (whole, part):
        bench = Bench()
        bench.configure(STRATEGY)
        bench.node()
        bench.place("web", cpu="20", memory="20Gi")
        bench.place("young", cpu="2", memory="2Gi")
        bench.store(metrics_subject("a"), data)
        decided.append(bench.core.decide(NOON))
    assert decided[0] == decided[1]
    assert decided[0]


@pytest.mark.parametrize(
    ("view", "of"), [(NodeMetricView, NodeMetricComputed), (PodMetricView, PodMetric), (AggregatedUsageView, AggregatedUsage)]
)
def test_a_view_has_the_names_and_defaults_of_what_it_shows(view: type[msgspec.Struct], of: type[msgspec.Struct]) -> None:
    stored = {field.encode_name: field for field in msgspec.structs.fields(of)}
    for field in msgspec.structs.fields(view):
        assert field.encode_name in stored
        assert (field.default, field.required) == (stored[field.encode_name].default, stored[field.encode_name].required)
