"""What the scheduler shows of reservations to people who look for a fault: Koordinator's debug API, and its metrics."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cotenant.events.node.runs import ContainerRun, RunPhase
from cotenant.events.requests import DebugAnswer, SchedulerQuestion
from cotenant_scheduler import gauges
from cotenant_scheduler.debugging import answer
from cotenant_scheduler.definition import DEFINITION
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod

WEB = {"app": "web"}


def items(story: ReservedStory, of: str) -> list[dict[str, Any]]:
    question = msgspec.json.encode(SchedulerQuestion(about="reservations", name=of))
    (body,) = [found for found in answer(story.core, story.now, question) if found is not None]
    found: list[dict[str, Any]] = json.loads(msgspec.json.decode(body, type=DebugAnswer).text)["items"]
    return found


def figures(story: ReservedStory, name: str) -> dict[tuple[str, ...], float]:
    """The values of a gauge by its labels, in the order of the labels' names."""
    (gauge,) = [gauge for gauge in DEFINITION.gauges if gauge.name == name]
    return {tuple(labels[key] for key in sorted(labels)): value for value, labels in gauge.read(story.core)}


def story_with_owners() -> ReservedStory:
    """On n1 a reservation that two pods use, on n2 one that nobody does; and one that no node takes."""
    story = ReservedStory()
    story.nodes(node("n1", cpu="8"), node("n2", cpu="8"))
    inside = {"node.koordinator.sh/reservation": '{"resources": {"cpu": "1"}}'}
    pinned = {"nodeName": "n1"}
    story.reservation(reservation("r", allocateOnce=False, allocatePolicy="Aligned", annotations=inside, template=pinned))
    story.reservation(reservation("free", app="other", template={"nodeName": "n2"}))
    story.reservation(reservation("large", app="nobody", cpu="80"))
    story.settle()
    story.pods(pod("web-0", cpu="1", labels=WEB), pod("web-1", cpu="500m", labels=WEB), pod("apart", cpu="1"))
    story.settle()
    assert (story.used("web-0"), story.used("web-1"), story.used("apart")) == ("r", "r", "")
    return story


def test_the_reservations_of_a_node_are_shown_with_koordinators_fields() -> None:
    story = story_with_owners()
    (shown,) = items(story, "n1")
    assert [assigned["name"] for assigned in shown["assignedPods"]] == ["web-0", "web-1"]
    assert shown["assignedPods"][1]["requests"]["cpu"] == "500m"
    del shown["assignedPods"]
    assert shown == {
        "name": "r",
        "namespace": "",
        "uid": "uid-r",
        "kind": "Reservation",
        "available": True,
        "allocateOnce": False,
        "allocatable": {"cpu": "4", "memory": "4Gi"},
        "reserved": {"cpu": "1"},
        "allocated": {"cpu": "1500m", "memory": "2Gi"},
        "owners": [{"labelSelector": {"matchLabels": WEB}}],
        "allocatePolicy": "Aligned",
    }
    (unused,) = items(story, "n2")
    assert (unused["name"], unused["allocateOnce"], unused["allocated"]) == ("free", True, {})


def test_a_reservation_that_is_over_is_not_available() -> None:
    story = story_with_owners()
    story.reservation(reservation("brief", app="nobody", cpu="1", ttl="2h", template={"nodeName": "n2"}))
    story.settle()
    assert [shown["available"] for shown in items(story, "n2")] == [True, True]
    story.later(2 * 3600)
    story.core.decide(story.now)  # nothing of it is stored
    assert [(shown["name"], shown["available"]) for shown in items(story, "n2")] == [("brief", False), ("free", True)]


def test_a_pod_that_acts_as_a_reservation_is_one_of_its_node() -> None:
    story = ReservedStory()
    story.nodes(node("n1", cpu="8"))
    owners = [{"labelSelector": {"matchLabels": WEB}}]
    story.pod(
        pod(
            "holder",
            cpu="4",
            labels={"scheduling.koordinator.sh/operating-mode": "Reservation"},
            annotations={"scheduling.koordinator.sh/reservation-owners": json.dumps(owners)},
        )
    )
    story.settle()
    ready = (ContainerRun(name="main", state="running", ready=True),)
    story.run("n1", "holder", RunPhase.RUNNING, containers=ready)
    story.settle()
    (shown,) = items(story, "n1")
    assert (shown["kind"], shown["namespace"], shown["name"]) == ("Pod", "default", "holder")
    assert (shown["owners"], shown["allocatePolicy"], shown["available"]) == (owners, "Aligned", True)
    story.pod(pod("web-0", cpu="2", labels=WEB))
    story.settle()
    (shown,) = items(story, "n1")
    assert (shown["available"], [assigned["name"] for assigned in shown["assignedPods"]]) == (False, ["web-0"])


def test_metrics_name_the_phase_of_each_reservation() -> None:
    found = figures(story_with_owners(), "scheduler_reservation_status_phase")
    assert {labels for labels, value in found.items() if value} == {
        ("free", "Available"),
        ("large", "Pending"),
        ("r", "Available"),
    }
    assert {phase for _, phase in found} == {"Available", "Failed", "Pending", "Succeeded"}


def test_metrics_have_what_a_reservation_holds_and_gives() -> None:
    story = story_with_owners()
    story.later(2)
    story.settle()  # its figures follow its placements
    found = figures(story, "scheduler_reservation_resource")
    assert {labels: value for labels, value in found.items() if labels[0] == "r"} == {
        ("r", "cpu", "allocatable", "core"): 4.0,
        ("r", "cpu", "allocated", "core"): 1.5,
        ("r", "cpu", "utilization", "ratio"): 0.375,
        ("r", "memory", "allocatable", "Gi"): 4.0,
        ("r", "memory", "allocated", "Gi"): 2.0,
        ("r", "memory", "utilization", "ratio"): 0.5,
    }
    assert not any(labels[0] == "large" for labels in found)


def test_metrics_show_a_bounded_number_of_reservations() -> None:
    story = ReservedStory()
    for index in range(gauges.MAX_RESERVATIONS_SHOWN + 3):
        story.reservation(reservation(f"r-{index:04}"))
    story.settle()
    found = figures(story, "scheduler_reservation_status_phase")
    assert len({name for name, _ in found}) == gauges.MAX_RESERVATIONS_SHOWN
