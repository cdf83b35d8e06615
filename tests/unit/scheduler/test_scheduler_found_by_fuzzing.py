"""What fuzzing found: documents under the subjects of other objects, and texts that no version writes."""

from __future__ import annotations

import pytest

from cotenant.events.gangs import PodGroupStatus
from cotenant.model.subjects import object_subject, pod_group_subject, pod_subject
from tests.builders import stored
from tests.unit.scheduler.builders_scheduler import Story, pod


@pytest.mark.parametrize("document", [pod("other"), pod("web", namespace="team")])
def test_the_document_of_another_pod_is_decided_about_under_no_name(document: dict[str, object]) -> None:
    story = Story()
    story.say(pod_subject("default", "web"), stored(document))
    assert list(story.core.decide(story.now)) == []


def test_a_stored_status_of_a_pod_group_with_an_unknown_phase_begins_again() -> None:
    story = Story()
    group = {"metadata": {"name": "g", "namespace": "default", "uid": "u-g"}, "spec": {"minMember": 1}}
    story.say(object_subject("scheduling.sigs.k8s.io", "podgroups", "default", "g"), stored(group))
    rubbish = PodGroupStatus(namespace="default", name="g", uid="u-g", phase="Succeeded")
    story.say(pod_group_subject("default", "g"), rubbish)
    story.later(2)
    story.settle()
    status = story.last[pod_group_subject("default", "g")].data
    assert isinstance(status, PodGroupStatus)
    assert status.phase == "Pending"
