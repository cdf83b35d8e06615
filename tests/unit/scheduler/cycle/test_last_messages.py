"""The last message of a subject that the scheduler writes, as its state has it: what a withdrawn batch is put back to."""

from __future__ import annotations

import pytest

from cotenant.model.subjects import node_subject, pod_group_subject
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.cycle.test_gangs import in_pod_group, pod_group


def test_the_state_has_the_last_message_of_each_subject_that_it_writes() -> None:
    story = ReservedStory()
    story.node(node("a", cpu="8"))
    pod_group(story, least=1)
    story.reservation(reservation("r", cpu="2"))
    story.reservation(reservation("waits", cpu="99"))
    story.pods(pod("p"), pod("large", cpu="99"), in_pod_group("m"))
    story.settle()
    written = {
        "node.a.placement.default.p",
        "node.a.placement.default.m",
        "waiting.default.large",
        "node.a.reservation.r",
        "reservations.waits",
        pod_group_subject("default", "g"),
    }
    assert written <= story.last.keys()
    for subject in written:
        found = story.core._state.last(subject)
        assert found is not None, subject
        assert (found.subject, found.data) == (subject, story.last[subject].data)
        if subject.startswith("node."):
            assert found.sequence == story.last[subject].sequence
        else:
            assert found.time == story.last[subject].time


@pytest.mark.parametrize(
    "subject",
    [
        "node.a.placement.default.other",
        "node.b.placement.default.p",
        "node.a.placement.default.large",
        "waiting.default.other",
        "waiting.default.p",
        "node.a.reservation.other",
        "node.b.reservation.r",
        "reservations.other",
        "reservations.r",
        "podgroups.default.other",
        "somebody.else",
    ],
)
def test_there_is_none_of_what_is_not_there_and_of_what_is_not_read(subject: str) -> None:
    story = ReservedStory()
    story.nodes(node("a", cpu="8"), node("b", cpu="1"))
    story.reservation(reservation("r", cpu="2"))
    story.pods(pod("p", cpu="2"), pod("large", cpu="99"))
    story.settle()
    assert story.core._state.last(subject) is None


def test_what_another_service_writes_is_refused() -> None:
    with pytest.raises(ValueError, match="is not written by the scheduler"):
        ReservedStory().core._state.last(node_subject("a"))
