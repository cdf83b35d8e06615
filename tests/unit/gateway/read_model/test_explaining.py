"""Explanations walk from a decision back to its samples, within bounds, and say what is lost."""

from __future__ import annotations

from cotenant.events.envelope import Event, Payload
from cotenant.events.node.metrics import (
    AggregatedUsage,
    HostApplicationMetric,
    ModelPeaks,
    NodeMetricComputed,
    ProdPrediction,
    Usage,
)
from cotenant.events.node.resources import NodeResources, Term
from cotenant.events.node.usage import Series, UsageSample
from cotenant.events.placements import Figure, Placement, Waiting, WaitingReason
from cotenant.explain.causes import MAX_EVENTS, CauseWalk, concerns, event_line, explain_pod
from cotenant.explain.sentences import figures, sentence
from tests.causes import lookup_all
from tests.unit.gateway.builders_gateway import NOW


def event(sequence: int, subject: str, data: Payload, *causes: str, stream: str = "LOG") -> Event:
    return Event(subject=subject, data=data, sequence=sequence, stream=stream, causes=causes, time=NOW)


SAMPLE = event(
    7,
    "usage.n1",
    UsageSample(node="n1", offsets_ms=(-1000, 0), node_usage=Series(cpu_milli=(1000, 3000), memory_bytes=(1 << 30, 1 << 30))),
    stream="USAGE",
)
METRIC = event(20, "metrics.n1", NodeMetricComputed(node="n1", node_usage=Usage(cpu_milli=2000)), "USAGE:7")
RESOURCES = event(
    21,
    "node.n1.resources",
    NodeResources(node="n1", batch_cpu_milli=1500, terms=(Term(name="hp-used", cpu_milli=2000, source="LOG:20"),)),
    "LOG:20",
    "LOG:3",
)
PLACED = event(
    22,
    "node.n1.placement.default.web",
    Placement(node="n1", namespace="default", name="web", uid="u", figures=(Figure(name="score", value=83),)),
    "LOG:21",
)


def test_the_chain_leads_from_the_placement_to_the_sample_with_figures() -> None:
    walk = lookup_all(CauseWalk([PLACED]), {found.ref: found for found in (SAMPLE, METRIC, RESOURCES)})
    explanation = explain_pod("default", "web", [PLACED], walk)
    assert [(link.depth, link.ref) for link in explanation.links] == [
        (0, "LOG:22"),
        (1, "LOG:21"),
        (2, "LOG:20"),
        (3, "USAGE:7"),
        (2, "LOG:3"),
    ]
    assert explanation.links[0].figures == {"score": "83"}
    assert "2.00 cores" in explanation.links[3].sentence
    assert explanation.links[4].lost
    assert explanation.summary == "runs on n1"


def test_a_waiting_pod_is_explained_by_node_group() -> None:
    waiting = Waiting(
        namespace="default",
        name="web",
        uid="u",
        nodes=4,
        reasons=(
            WaitingReason(code="insufficient", count=3, resource="kubernetes.io/batch-cpu", detail="short by 1500m"),
            WaitingReason(code="load", count=1, resource="cpu", detail="usage 71% > 65%"),
        ),
    )
    root = event(5, "waiting.default.web", waiting)
    explanation = explain_pod("default", "web", [root], CauseWalk([root]))
    assert explanation.summary == "waits: 0/4 nodes: 3 batch-cpu short by 1500m, 1 cpu usage 71% > 65%"


def test_a_shared_cause_is_shown_with_its_causes_once() -> None:
    other = event(23, "waiting.default.web", Waiting(namespace="default", name="web", uid="u"), "LOG:21")
    walk = lookup_all(CauseWalk([PLACED, other]), {found.ref: found for found in (SAMPLE, METRIC, RESOURCES)})
    links = explain_pod("default", "web", [PLACED, other], walk).links
    assert sum(1 for link in links if link.ref == "USAGE:7") == 1
    assert any(link.repeated and link.ref == "LOG:21" for link in links)


def test_the_walk_is_bounded() -> None:
    wide = event(
        10_000, "waiting.default.web", Waiting(namespace="default", name="web", uid="u"), *(f"LOG:{n}" for n in range(1, 900))
    )
    walk = CauseWalk([wide])
    assert walk.cut
    assert len(walk.wanted()) < MAX_EVENTS


def test_events_concern_the_objects_that_they_are_about() -> None:
    assert concerns(PLACED, "pod", "default", "web")
    assert not concerns(PLACED, "pod", "other", "web")
    assert concerns(RESOURCES, "node", "", "n1")
    assert not concerns(METRIC, "pod", "", "n1")
    assert concerns(PLACED, "", "", "")


def test_an_event_is_told_with_place_time_sentence_and_causes() -> None:
    line = event_line(RESOURCES)
    assert (line.stream, line.sequence, line.causes) == ("LOG", 21, ("LOG:20", "LOG:3"))
    assert "batch-cpu 1500m" in line.sentence
    assert figures(RESOURCES) == {"hp-used": "cpu 2000m, memory 0.0 MiB from LOG:20"}
    assert sentence(METRIC).startswith("node n1 uses cpu 2.00 cores")


def test_a_metric_shows_its_means_the_percentiles_of_each_window_and_of_each_model() -> None:
    def used(cpu_milli: int) -> Usage:
        return Usage(cpu_milli=cpu_milli, memory_bytes=cpu_milli << 20)

    metric = NodeMetricComputed(
        node="n1",
        update_time=NOW,
        aggregate_duration_seconds=60,
        node_usage=used(1000),
        system_usage=used(200),
        aggregated_node_usages=(
            AggregatedUsage(duration_seconds=300, avg=used(10), p50=used(20), p90=used(30), p95=used(40), p99=used(50)),
        ),
        cold_windows=(1800,),
        host_applications=(HostApplicationMetric(name="yarn", usage=used(70)),),
        prediction=ProdPrediction(
            models=(ModelPeaks(model="__node__", p60=used(1), p90=used(2), p95=used(3), p98=used(4), max=used(5)),)
        ),
    )
    assert figures(event(20, "metrics.n1", metric)) == {
        "mean over 60s": "node 1.00 cores/1000.0 MiB, system 0.20 cores/200.0 MiB",
        "node over 300s": "avg 0.01 cores/10.0 MiB, p50 0.02 cores/20.0 MiB, p90 0.03 cores/30.0 MiB, p95 0.04 cores/40.0 MiB,"
        " p99 0.05 cores/50.0 MiB",
        "node over 1800s": "no percentiles yet: the samples span less than half of it",
        "application yarn": "0.07 cores/70.0 MiB",
        "model __node__": "p60 0.00 cores/1.0 MiB, p90 0.00 cores/2.0 MiB, p95 0.00 cores/3.0 MiB, p98 0.00 cores/4.0 MiB,"
        " max 0.01 cores/5.0 MiB",
    }
