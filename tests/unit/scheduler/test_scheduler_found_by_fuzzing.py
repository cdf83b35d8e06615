"""What fuzzing found: a pod's document under another pod's subject was decided about again and again."""

from __future__ import annotations

import pytest

from cotenant.model.subjects import pod_subject
from tests.builders import stored
from tests.unit.scheduler.builders_scheduler import Story, pod


@pytest.mark.parametrize("document", [pod("other"), pod("web", namespace="team")])
def test_the_document_of_another_pod_is_decided_about_under_no_name(document: dict[str, object]) -> None:
    story = Story()
    story.say(pod_subject("default", "web"), stored(document))
    assert list(story.core.decide(story.now)) == []
