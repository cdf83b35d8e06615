"""A pod's latency annotations are read at admission, of new and of live pods."""

from __future__ import annotations

import pytest

from cotenant.domain.service_latency import ANNOTATION_ENDPOINT, ANNOTATION_GOAL
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, causes, manifest

URL = "http://unix:/run/web.sock:/latency"


def test_an_endpoint_with_a_goal_is_taken() -> None:
    World().create("pods", manifest(annotations={ANNOTATION_ENDPOINT: URL, ANNOTATION_GOAL: "20ms"}))


@pytest.mark.parametrize(
    ("annotations", "named", "why"),
    [
        ({ANNOTATION_ENDPOINT: "http://10.0.0.1:80/", ANNOTATION_GOAL: "20ms"}, ANNOTATION_ENDPOINT, "expected http://127.0.0.1"),
        ({ANNOTATION_GOAL: "1e18"}, ANNOTATION_GOAL, "is not a duration"),
        ({ANNOTATION_ENDPOINT: URL}, ANNOTATION_ENDPOINT, f"needs {ANNOTATION_GOAL} beside it"),
    ],
)
def test_what_cannot_be_read_is_refused_and_named(annotations: dict[str, str], named: str, why: str) -> None:
    with pytest.raises(ApiError) as caught:
        World().create("pods", manifest(annotations=annotations))
    assert why in causes(caught.value)[f"metadata.annotations[{named}]"]


def test_a_live_pod_does_not_get_an_unreadable_one_either() -> None:
    world = World()
    world.create("pods", manifest(annotations={ANNOTATION_GOAL: "20ms"}))
    with pytest.raises(ApiError) as caught:
        world.patch("pods", "web", {"metadata": {"annotations": {ANNOTATION_GOAL: "soon"}}})
    assert f"metadata.annotations[{ANNOTATION_GOAL}]" in causes(caught.value)
