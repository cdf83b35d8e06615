"""Not mended: a decision in which the queue's head changes says other figures of why pods wait than the same decision made again.

The first pass keeps the reasons of classes that it had closed before; the room of the new head counts in the second pass alone. The
placements are the same. Found by Hypothesis.
"""

from __future__ import annotations

from typing import Any

from cotenant.events.resizes import ResizeState
from tests.unit.scheduler.cycle.test_room_taken import Cluster

DONE = {"reports": ResizeState.DONE, "deleted": True}
SCRIPT: list[tuple[Any, ...]] = [
    ([], [("for", (2, 2)), ("for", (3, 3)), ("for", (1, 2))]),
    ([], [("for", (3, 3)), ("plain", (2, 3)), ("for", (1, 1))]),
    (
        [
            (20, {**DONE, "asks": (3, 2)}),
            (1, {"asks": (1, 1), "deleted": True, "reports": ResizeState.INFEASIBLE}),
        ],
        [("acts", (2, 3))],
    ),
    ([], [("a", (3, 3)), ("plain", (2, 2))]),
    ([(5, {**DONE, "asks": (3, 3)}), (15, {**DONE, "asks": (1, 3)})], [("for", (3, 1))]),
    (
        [(9, {"deleted": True, "asks": (3, 3)}), (16, {**DONE, "mode": "Runnable", "asks": (2, 1)})],
        [("plain", (2, 1)), ("plain", (1, 3)), ("b", (2, 3))],
    ),
    ([(9, {**DONE, "mode": "Runnable", "asks": (1, 2)})], [("for", (1, 3)), ("a", (1, 2))]),
    ([(0, {**DONE, "asks": (1, 3)})], [("plain", (3, 3)), ("plain", (3, 1)), ("plain", (2, 1))]),
    ([(3, {**DONE, "asks": (3, 2)})], [("for", (1, 3)), ("plain", (2, 3)), ("plain", (1, 1))]),
]


def test_a_decision_made_again_says_the_same_of_pods_that_wait() -> None:
    cluster = Cluster()
    for changed, come in SCRIPT:
        cluster.perform(changed, come)
        cluster.story.core.decide(cluster.story.now)
        cluster.decide()
    cluster.perform([(0, {"asks": (1, 3)})], [])
    core, now = cluster.story.core, cluster.story.now
    first = list(core.decide(now))
    assert list(core.decide(now)) == first
