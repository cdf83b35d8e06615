"""Explanations walk from a decision back to its samples, within bounds, and say what is lost."""

from __future__ import annotations

from cotenant.events.envelope import Event, Payload
from cotenant.events.node.metrics import NodeMetricComputed, Usage
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
