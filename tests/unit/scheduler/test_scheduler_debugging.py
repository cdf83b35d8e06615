"""What the scheduler tells people who look for a fault: tables of a pod, gangs, overdue pods."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cotenant.events.placements import Waiting
from cotenant.events.requests import DebugAnswer, SchedulerQuestion
from cotenant_scheduler.debugging import answer
from cotenant_scheduler.definition import DEFINITION
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import Story, node, pod


def ask(story: Story, about: str, name: str = "", **more: Any) -> DebugAnswer:
    question = SchedulerQuestion(about=about, namespace="default", name=name, **more)
    (body,) = [found for found in answer(story.core, story.now, msgspec.json.encode(question)) if found is not None]
    return msgspec.json.decode(body, type=DebugAnswer)


def cells(table: str) -> list[list[str]]:
    """Head and lines of a Markdown table."""
    head, rule, *lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]
    assert set(rule) == {"---"}
    return [head, *lines]


def small() -> Story:
    story = Story()
    story.nodes(node("a", cpu="4"), node("b", cpu="8"), node("c", cpu="1"), node("d", unschedulable=True))
    story.pod(pod("p", cpu="2", schedulingGates=[{"name": "later"}]))
    story.settle()
    return story


def test_scores_are_those_of_the_plugins_and_their_sum_is_the_total() -> None:
    story = small()
    head, *lines = cells(ask(story, "scores", "p").text)
    assert head[:4] == ["#", "Pod", "Node", "Score"]
    assert {"NodeResourcesFit", "LoadAwareScheduling", "PodTopologySpread"} <= set(head)
    assert [line[:3] for line in lines] == [["0", "default/p", "b"], ["1", "default/p", "a"]]
    for line in lines:
        assert int(line[3]) == sum(int(cell) for cell in line[4:])
    story.pod(pod("p", cpu="2"))
    story.settle()
    placement = story.placement("p")
    assert placement is not None
    figures = {figure.name: figure.value for figure in placement.figures}
    assert (placement.node, figures["score"]) == ("b", int(lines[0][3])), "what it shows is what it does"
    assert figures["score.NodeResourcesFit"] == int(lines[0][head.index("NodeResourcesFit")])


def test_filters_name_the_one_that_refuses_each_node() -> None:
    _, *lines = cells(ask(small(), "filters", "p").text)
    assert [line[2:5] for line in lines] == [
        ["c", "NodeResourcesFit", "Insufficient cpu"],
        ["d", "NodeUnschedulable", "node(s) were unschedulable"],
    ]
    assert "short by 1" in lines[0][5]


def test_a_table_has_as_many_lines_as_are_asked_for() -> None:
    assert len(cells(ask(small(), "scores", "p", rows=1).text)) == 2
    assert len(cells(ask(small(), "filters", "p", rows=1).text)) == 2


def test_asking_changes_no_decision() -> None:
    asked, other = small(), small()
    for about in ("scores", "filters"):
        ask(asked, about, "p")
    for story in (asked, other):
        story.pod(pod("p", cpu="2"))
    ask(asked, "scores", "p")
    assert asked.settle() == other.settle()


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({"about": "scores", "namespace": "default", "name": "nobody"}, "pod default/nobody: there is none"),
        ({"about": "filters", "namespace": "default", "name": "odd"}, "pod default/odd: the pod cannot be read"),
        ({"about": "weather"}, "'weather' is none of scores, filters, gangs, gang, reservations, node, load"),
        ({"about": "gang", "namespace": "default", "name": "none"}, "there is no gang default/none"),
        ({"about": "reservations", "name": "z"}, "there is no node z"),
        ({"about": "node", "name": "z"}, "cannot find node z"),
        ({"about": 7}, "the question cannot be read"),
        ([], "the question cannot be read"),
    ],
)
def test_what_cannot_be_answered_says_why(question: object, error: str) -> None:
    story = small()
    story.pod(pod("odd", requests={"cpu": "lots"}))
    (body,) = [found for found in answer(story.core, story.now, json.dumps(question).encode()) if found is not None]
    assert msgspec.json.decode(body, type=DebugAnswer).error.startswith(error)


def member(name: str, at_least: int = 3, **more: Any) -> dict[str, Any]:
    return pod(
        name,
        annotations={
            "gang.scheduling.koordinator.sh/name": "train",
            "gang.scheduling.koordinator.sh/min-available": str(at_least),
        },
        **more,
    )


def test_gangs_are_shown_with_koordinators_fields() -> None:
    story = small()
    story.pods(member("m0", cpu="100m"), member("m1", cpu="100m"))
    story.settle()
    waiting = json.loads(ask(story, "gang", "train").text)
    assert waiting["name"] == "default/train"
    assert (waiting["minRequiredNumber"], waiting["totalChildrenNum"], waiting["mode"]) == (3, 3, "Strict")
    assert waiting["waitTime"] == 600_000_000_000
    assert (waiting["pendingChildren"], waiting["boundChildren"]) == (["default/m0", "default/m1"], [])
    assert (waiting["onceResourceSatisfied"], waiting["hasGangInit"]) == (False, True)
    assert waiting["gangFrom"] == "GangFromPodAnnotation"
    story.pod(member("m2", cpu="100m"))
    story.settle()
    answered = ask(story, "gangs")
    assert answered.json
    (placed,) = json.loads(answered.text).values()
    assert (placed["pendingChildren"], len(placed["boundChildren"])) == ([], 3)
    assert placed["onceResourceSatisfied"] is True


def figures(story: Story) -> dict[str, float]:
    return {gauge.name: value for gauge in DEFINITION.gauges for value, _ in gauge.read(story.core)}


def test_gang_groups_in_the_queue_are_counted_every_ten_seconds() -> None:
    story = small()
    assert figures(story) == {"scheduler_scheduling_timeout": 0, "scheduler_waiting_gang_group_number": 0}
    story.later(11)
    story.pods(member("m0"), member("m1"))
    story.settle()
    assert figures(story)["scheduler_waiting_gang_group_number"] == 1


@pytest.mark.parametrize(("timeout", "overdue"), [(30, 3), (0, 0), (100, 0)])
def test_pods_that_nothing_was_decided_about_are_overdue(timeout: float, overdue: int) -> None:
    story = Story(SchedulerConfig(scheduling_timeout_seconds=timeout))
    story.node(node("a", cpu="1"))
    story.pod(pod("told", cpu="2"))
    story.settle()
    assert story.waiting("told") is not None
    for i in range(3):
        story.pod(pod(f"p{i}", cpu="100m"))
    story.later(40)
    story.core.decide(story.now)  # nothing of it is stored
    assert figures(story)["scheduler_scheduling_timeout"] == overdue
    story.settle()
    story.later(11)
    story.core.decide(story.now)
    assert figures(story)["scheduler_scheduling_timeout"] == 0


def backlog(story: Story, *, low: int = 1) -> None:
    """More pods of a high priority than one decision places, before others that are never come to."""
    story.node(node("a", cpu="1000", memory="4000Gi", pods="100000"))
    story.pods(*[pod(f"low-{i}", cpu=f"{100 + i}m", memory="1Mi", priority=1) for i in range(low)])
    for i in range(1100):
        story.pod(pod(f"high-{i}", cpu="10m", memory="1Mi", priority=9000))


def test_a_pod_that_decisions_do_not_come_to_is_reported_once_with_a_line_for_the_log() -> None:
    story = Story()
    backlog(story)
    first = story.core.decide(story.now)
    assert not [event for event in first if isinstance(event.data, Waiting)], "it is not overdue yet"
    story.later(35)
    events = story.decide()
    waiting = story.waiting("low-0")
    assert waiting is not None
    assert [(reason.code, reason.detail) for reason in waiting.reasons] == [
        ("overdue", "the scheduler has not come to it for 36 s: it is behind other pods in the queue")
    ]
    assert story.core.warnings(events) == [f"pod default/low-0: {waiting.message}"]
    assert figures(story)["scheduler_scheduling_timeout"] > 0
    for i in range(1100, 2200):
        story.pod(pod(f"high-{i}", cpu="10m", memory="1Mi", priority=9000))
    assert not [event for event in story.decide() if isinstance(event.data, Waiting)], "it was reported"
    story.settle()
    assert story.node_of("low-0") == "a"
    assert story.waiting("low-0") is None


def test_reports_of_overdue_pods_have_a_bound_and_begin_with_the_oldest() -> None:
    story = Story()
    backlog(story, low=15)
    story.later(35)
    events = story.decide()
    reported = [event.data.name for event in events if isinstance(event.data, Waiting)]
    assert len(events) <= 999
    assert reported == sorted(f"low-{i}" for i in range(15))[:9]


def test_a_refused_pod_gets_its_reason_though_decisions_do_not_come_to_the_end_of_the_queue() -> None:
    story = Story()
    story.pod(pod("large", cpu="5000", priority=9500))
    backlog(story)
    story.later(35)
    story.decide()
    waiting = story.waiting("large")
    assert waiting is not None
    assert waiting.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_without_a_timeout_nothing_is_reported() -> None:
    story = Story(SchedulerConfig(scheduling_timeout_seconds=0))
    backlog(story)
    story.later(3600)
    assert not [event for event in story.decide() if isinstance(event.data, Waiting)]
