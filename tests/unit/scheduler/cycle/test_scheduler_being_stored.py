"""What is decided on a batch that is still being stored is what is decided once it is stored; refused, nothing of it stays."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cotenant.events.node.runs import RunPhase
from tests.unit.scheduler.builders_scheduler import Story, as_stored, node, pod

TERM = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "host"}
OF_TEAM_X = {"namespaceSelector": {"matchLabels": {"team": "x"}}}


def apart(scope: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**TERM, **scope}]}}}


def fact(story: Story, chance: random.Random) -> None:
    """Some foreign message."""
    number = chance.randrange(12)
    name, namespace = f"p{number}", "red" if number % 3 == 0 else "default"
    place = f"n{chance.randrange(4)}"
    match chance.randrange(9):
        case 0 | 1 | 2:
            wanted = chance.choice(["500m", "1", "3"])
            labels = {"app": "a"} if number % 2 else {}
            spec = chance.choice([{}, {}, apart(OF_TEAM_X), apart({})])
            uid = chance.choice([f"uid-{name}", f"other-{name}"])
            story.pod(pod(name, namespace=namespace, cpu=wanted, uid=uid, labels=labels, **spec))
        case 3:
            story.pod_deleted(name, namespace)
        case 4:
            story.metric(place, chance.randrange(3000))
        case 5:
            unschedulable = chance.random() < 0.2
            story.node(node(place, cpu=chance.choice(["2", "4"]), labels={"host": place}, unschedulable=unschedulable))
        case 6:
            placed = story.placed()
            if name in placed:
                phase = chance.choice([RunPhase.RUNNING, RunPhase.SUCCEEDED])
                story.run(placed[name], name, phase, namespace=namespace)
        case 7:
            story.executor(place, cpu=3000)
        case 8:
            story.namespace(chance.choice(["red", "default"]), team=chance.choice("xy"))


@pytest.mark.parametrize("seed", range(60))
def test_deciding_ahead_equals_deciding_afterwards_and_withdrawing_leaves_nothing(seed: int) -> None:
    chance = random.Random(seed)
    story = Story()
    story.nodes(*(node(f"n{i}", cpu="4", labels={"host": f"n{i}"}) for i in range(3)))
    decided = confirmed = withdrawn = 0
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            fact(story, chance)
        story.later(chance.choice([0, 1, 40]))
        batch = story.begin_storing()
        if not batch:
            continue
        decided += 1
        for _ in range(chance.randrange(3)):
            fact(story, chance)
        ahead = story.core.decide(story.now)
        more = chance.randrange(2)
        for _ in range(more):
            fact(story, chance)
        if chance.random() < 0.4:
            story.core.withdraw()
            withdrawn += 1
        else:
            first = story.end_storing(batch)
            confirmed += 1
            if not more:
                assert as_stored(ahead, first - 1) == as_stored(story.reloaded().decide(story.now))
        assert as_stored(story.core.decide(story.now)) == as_stored(story.reloaded().decide(story.now))
    assert decided > 10
    assert confirmed
    assert withdrawn


def test_a_stop_reported_before_a_terminating_placement_is_stored_again_is_not_about_that_one() -> None:
    """The pod is resized while it ends. Its executor reports the stop again, as that report precedes the new placement on LOG;
    decided otherwise ahead, the decision could not be recomputed."""
    story = Story()
    story.node(node("a"))
    story.executor("a")
    story.pod(pod("p"))
    story.settle()
    story.run("a", "p", RunPhase.RUNNING)
    story.pod(pod("p", deleting=True))
    story.settle()
    story.pod(pod("p", cpu="2", deleting=True))
    batch = story.begin_storing()
    assert [event.subject for event in batch] == ["node.a.placement.default.p"]
    story.run("a", "p", RunPhase.STOPPED)
    assert story.core.decide(story.now) == []
    story.core.withdraw()
    [gone] = story.core.decide(story.now)
    assert gone.tombstone, "of the placement that is stored the report speaks"
    story.core.assume(batch)
    story.end_storing(batch)
    assert story.core.decide(story.now) == story.reloaded().decide(story.now) == []
    story.run("a", "p", RunPhase.STOPPED)
    assert [event.tombstone for event in story.settle()] == [True]
