"""Pods that have been in the queue for too long, as metrics show them, and how many events placing a pod takes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cotenant_scheduler.cycle.queue import events_of
from cotenant_scheduler.monitor import SchedulerMonitor
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import NOW, Story, node, pod
from tests.unit.scheduler.cycle.test_gangs import member


def queued(*names: str, age: float = 0) -> Story:
    """Pods in the queue that no decision has looked at yet, stored so many seconds ago."""
    story = Story()
    for name in names:
        story.pod(pod(name), age=age)
    story.core.settle()
    return story


@pytest.mark.parametrize(("age", "overdue"), [(60, 0), (60.001, 2)])
def test_a_pod_is_overdue_when_its_time_is_over(age: float, overdue: int) -> None:
    monitor = SchedulerMonitor(60)
    assert (monitor.overdue, monitor.waiting_groups) == (0, 0)
    monitor.look(queued("a", "b", age=age).core.queue.classes.values(), NOW)
    assert monitor.overdue == overdue


def test_a_pod_that_knows_why_it_waits_is_not_overdue_and_without_a_time_none_is() -> None:
    story = queued("a", "b", age=100)
    story.settle()
    story.pod(pod("c"), age=100)
    story.core.settle()
    for timeout, overdue in ((60, 1), (0, 0)):
        monitor = SchedulerMonitor(timeout)
        monitor.look(story.core.queue.classes.values(), NOW)
        assert monitor.overdue == overdue


def test_one_that_was_not_tried_is_found_behind_another_that_knows_why_it_waits() -> None:
    story = queued("a", age=100)
    story.settle()
    classes = story.core.queue.classes.values()
    monitor = SchedulerMonitor(60)
    assert not monitor.has_overdue(classes, NOW)
    story.pod(pod("b", cpu="2"), age=100)
    story.core.settle()
    assert [next(alike.pods())[1].key[1] for alike in classes] == ["a", "b"]
    assert monitor.has_overdue(classes, NOW)


def test_the_queue_is_checked_every_ten_seconds() -> None:
    monitor = SchedulerMonitor(60)
    classes = queued("a", age=55).core.queue.classes.values()
    seen = []
    for seconds in (0, 9.999, 10, 19.999):
        monitor.look(classes, NOW + timedelta(seconds=seconds))
        seen.append(monitor.overdue)
    assert seen == [0, 0, 1, 1]


def test_groups_that_wait_are_counted() -> None:
    story = Story()
    story.pods(member("g0", "g"), member("h0", "h"), member("h1", "h"), pod("alone"))
    story.core.settle()
    monitor = SchedulerMonitor(60)
    monitor.look(story.core.queue.classes.values(), NOW)
    assert monitor.waiting_groups == 2


def test_placing_a_pod_takes_one_event_and_one_for_each_message_that_ends() -> None:
    """A waiting event is one; a reservation that is used up is its share and its status."""
    story = ReservedStory()
    story.node(node("a", cpu="8"))
    story.reservation(reservation("r", cpu="2"))
    story.settle()
    large = {"cpu": "9"}
    story.pods(pod("plain", requests=large), pod("owner", requests=large, labels={"app": "web"}))
    story.core.settle()
    records = [story.core.pods.records["default", name] for name in ("plain", "owner")]
    assert [events_of(record) for record in records] == [1, 3]
    story.settle()
    assert [events_of(record) for record in records] == [2, 4]
