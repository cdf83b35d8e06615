"""What preempted pods give back to a reservation and to its node, and pods that only look like reserve pods."""

from __future__ import annotations

import pytest

from cotenant.domain.reservations.names import ANNOTATION_RESERVATION_NODE, ANNOTATION_RESERVE_POD
from cotenant.domain.reservations.reserve_pod import ANNOTATION_POLICY
from cotenant_scheduler.plugins.reservation.fitting import Victims, judged
from tests.unit.scheduler.builders_scheduler import Story, node, pod
from tests.unit.scheduler.plugins.test_reservation_rooms import room


@pytest.mark.parametrize(("memory", "fits"), [(9, True), (10, False)])
@pytest.mark.parametrize(
    "victims",
    [
        Victims(on_node={"cpu": 1}, inside={"uid-r": {"memory": 5}}),
        Victims(on_node={"memory": 5}, inside={"uid-r": {"cpu": 1}}),
        Victims(on_node={"memory": 2}, inside={"uid-r": {"memory": 3}}),
    ],
)
def test_each_resource_is_given_back_by_itself(victims: Victims, memory: int, fits: bool) -> None:
    """Of the room's 5 nothing is left; the node has 4, and the victims use 5."""
    held = room(allocatable={"memory": 5}, allocated={"memory": 5})
    result = judged({"memory": memory}, {"memory": 4, "cpu": 0}, 1, [held], required=True, victims=victims)
    assert result.fits == fits


@pytest.mark.parametrize("annotations", [{ANNOTATION_RESERVE_POD: "true"}, {ANNOTATION_POLICY: "Aligned"}])
def test_a_pod_is_a_reserve_pod_only_with_both_annotations(annotations: dict[str, str]) -> None:
    story = Story()
    story.nodes(node("a"), node("b"))
    story.pod(pod("busy", cpu="4", nodeName="b"))
    story.pod(pod("plain", annotations={**annotations, ANNOTATION_RESERVATION_NODE: "b"}))
    story.settle()
    assert story.node_of("plain") == "a", "it has more room, and nothing binds the pod to b"
