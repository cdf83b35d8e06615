"""What a load folds at once is counted as what is folded message by message; what is kept of a placement is all of it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Figure, Placement
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.state.stored_placements import PlacementView
from tests.unit.scheduler.builders_scheduler import GIB, NOW, Story, batch_pod, node, over_the_wire, pod


def grown_story(chance: random.Random) -> Story:
    """Nodes with and without reports, some of which know pods; placements, some of them over."""
    story = Story()
    gpus: dict[str, Any] = {"example.com/gpu": "2"}
    story.nodes(*(node(f"n{i}", cpu="8", **(gpus if i % 2 else {})) for i in range(4)))
    for i in range(4):
        story.batch(f"n{i}", 4000)
    for i in range(24):
        match chance.randrange(4):
            case 0:
                story.pod(batch_pod(f"p{i}", cpu="500"))
            case 1:
                story.pod(pod(f"p{i}", requests={"cpu": "250m", "example.com/gpu": "1"}))
            case _:
                story.pod(pod(f"p{i}", cpu="500m", priority=9500))
        if i % 6 == 5:
            story.settle()
            placed = story.placed()
            for name in chance.sample(sorted(placed), min(3, len(placed))):
                # What the pod uses is more or less than what is estimated for it.
                story.metric(placed[name], 1000, GIB, age=chance.choice([0, 90]), **{name: (chance.randrange(900), GIB)})
            for name in chance.sample(sorted(placed), min(2, len(placed))):
                story.run(placed[name], name, chance.choice([RunPhase.RUNNING, RunPhase.SUCCEEDED]))
            story.later(1)
    return story


def columns(core: SchedulerCore) -> dict[str, dict[str, list[int]]]:
    """Every node's figures, as a decision reads them."""
    table, load = core.nodes, core.nodes.load
    views = {"node": load.node_view, "prod": load.prod_view, "score": load.score_view, "limit": load.limit}
    return {
        name: {
            **{
                resource: [int(table.allocatable[dim, row]), int(table.requested[dim, row])]
                for resource, dim in table.dims.items()
            },
            "nonzero": np.asarray(table.nonzero[:, row]).tolist(),
            **{view: np.asarray(column[:, row]).tolist() for view, column in views.items()},
        }
        for name, row in table.rows.items()
    }


@pytest.mark.parametrize("seed", range(20))
def test_a_load_in_any_order_counts_as_message_by_message(seed: int) -> None:
    chance = random.Random(seed)
    story = grown_story(chance)
    subjects = sorted(story.last)
    chance.shuffle(subjects)
    one_by_one = SchedulerCore()
    for subject in subjects:
        one_by_one.apply(over_the_wire(story.last[subject]))
        one_by_one.decide(story.now)
        one_by_one.take_back()
    in_two = SchedulerCore()
    middle = chance.randrange(len(subjects))
    for part in (subjects[:middle], subjects[middle:]):
        for subject in part:
            in_two.apply(over_the_wire(story.last[subject]))
        in_two.decide(story.now)
        in_two.take_back()
    at_once = story.reloaded(subjects)
    at_once.decide(story.now)
    at_once.take_back()
    story.core.decide(story.now)
    story.core.take_back()
    assert columns(at_once) == columns(in_two) == columns(one_by_one) == columns(story.core)


def test_a_placement_that_was_loaded_is_stored_again_with_all_it_had() -> None:
    story = Story()
    story.node(node("n1"))
    story.executor("n1", cpu=8000)
    story.pod(pod("p1"))
    story.settle()
    before = story.placement("p1")
    assert before is not None
    assert len(before.figures) > 1
    story.core = story.reloaded()
    story.pod(pod("p1", labels={"app": "web"}))
    [again] = story.decide()
    assert isinstance(again.data, Placement)
    assert again.data.figures == before.figures
    assert (again.data.requests, again.data.bound_at) == ({"cpu": 1000, "memory": GIB}, NOW)


def test_a_placement_that_was_loaded_and_has_to_end_is_stored_without_its_figures_which_its_cause_has() -> None:
    story = Story()
    story.node(node("n1"))
    story.executor("n1", cpu=8000)
    story.pod(pod("p1"))
    story.settle()
    before = story.placement("p1")
    assert before is not None
    stored = next(event for event in story.last.values() if event.data is before)
    story.core = story.reloaded()
    story.pod_deleted("p1")
    [terminating] = story.decide()
    assert isinstance(terminating.data, Placement)
    assert terminating.data.figures == ()
    assert stored.ref in terminating.causes
    assert (terminating.data.pod, terminating.data.requests, terminating.data.bound_at) == (
        before.pod,
        {"cpu": 1000, "memory": GIB},
        NOW,
    )


def test_figures_of_any_size_come_back() -> None:
    story = Story()
    story.node(node("n1"))
    story.pod(pod("p1"))
    story.settle()
    placed = story.placement("p1")
    assert placed is not None
    figures = (Figure(name="score", value=-1), Figure(name="node.memory.used", value=1 << 50), Figure(name="score", value=0))
    core = SchedulerCore()
    for event in story.last.values():
        if isinstance(event.data, Placement):
            data = Placement(node="n1", namespace="default", name="p1", uid=placed.uid, bound_at=NOW, figures=figures)
            story.say(event.subject, data)
            core.apply(over_the_wire(story.last[event.subject]))
            break
    [kept] = core.pods.records["default", "p1"].placements.values()
    assert kept.stored.whole().figures == figures
    assert kept.data.figures == ()


def test_the_view_of_a_placement_has_every_field_of_it_but_the_figures_as_they_are() -> None:
    whole, view = ({field.name: field for field in msgspec.structs.fields(kind)} for kind in (Placement, PlacementView))
    assert [*view] == [*whole]
    for name in whole.keys() - {"figures"}:
        assert view[name].type == whole[name].type, name
        assert view[name].default == whole[name].default, name
