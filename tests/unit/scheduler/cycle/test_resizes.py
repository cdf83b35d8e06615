"""Pods that are resized in place: what their placements say, and what is counted for them."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.resizes import ContainerResources, ResizeState, ResizeStatus
from cotenant_scheduler.core import SchedulerCore
from tests.unit.scheduler.builders_scheduler import GIB, NOW, Story, node, pod

LABEL = {"quota.scheduling.koordinator.sh/name": "team"}


def amounts(cpu: str) -> tuple[ContainerResources, ...]:
    wanted = {"cpu": cpu, "memory": "1Gi"}
    return (ContainerResources(name="main", requests=wanted, limits=wanted),)


def placed(story: Story, name: str = "p") -> Placement:
    found = story.placement(name)
    assert found is not None
    return found


def story_with(cpu: str, *, of_node: str = "4") -> Story:
    story = Story()
    story.node(node("a", cpu=of_node))
    story.quota("team", max={"cpu": 6000})
    story.pod(pod("p", cpu=cpu, labels=LABEL))
    story.settle()
    return story


def counted(core: SchedulerCore) -> list[int]:
    """What is requested on the node, of all resources."""
    return sorted(int(amount) for amount in core.nodes.requested[:, core.nodes.rows["a"]] if amount)


def resize(story: Story, cpu: str) -> None:
    story.pod(pod("p", cpu=cpu, labels=LABEL))
    story.settle()


def reports(story: Story, state: ResizeState, admitted: str, **more: Any) -> None:
    found = placed(story).resize
    assert found is not None
    status = ResizeStatus(sequence=found.sequence, state=state, admitted=amounts(admitted), **more)
    story.run("a", "p", RunPhase.RUNNING, resize=status)
    story.settle()


def test_a_pod_that_grows_is_counted_with_what_it_asks_for_at_once() -> None:
    story = story_with("1")
    resize(story, "3")
    found = placed(story)
    assert found.requests["cpu"] == 3000
    assert found.resize is not None
    assert found.resize.admitted == amounts("1")
    assert found.resize.sequence == found.object_sequence
    story.pod(pod("q", cpu="2"))
    story.settle()
    waiting = story.waiting("q")
    assert waiting is not None
    assert "Insufficient cpu" in waiting.message


@pytest.mark.parametrize(
    ("labels", "of_node", "lacking"), [({}, "4", "Insufficient cpu"), (LABEL, "9", "Insufficient quotas, quotaName: team")]
)
def test_a_pod_that_comes_with_the_resize_of_another_is_placed_beside_what_that_asks_for(
    labels: dict[str, str], of_node: str, lacking: str
) -> None:
    story = story_with("1", of_node=of_node)
    story.pod(pod("p", cpu="3", labels=LABEL))
    more = "1" if not labels else "2"
    for name in ("q", "r"):
        story.pod(pod(name, cpu=more, labels=labels))
    decided = story.core.decide(NOW)
    assert story.core.decide(NOW) == decided, "what was counted for a decision is undone"
    story.settle()
    assert placed(story).requests["cpu"] == 3000
    assert sorted(name for name in ("q", "r") if story.placement(name) is not None) == ["q"]
    waiting = story.waiting("r")
    assert waiting is not None
    assert lacking in waiting.message


def test_a_pod_that_grows_and_is_deleted_holds_what_is_stored_for_it_beside_the_pods_placed_then() -> None:
    story = story_with("1")
    story.run("a", "p", RunPhase.RUNNING)
    story.settle()
    story.pod(pod("p", cpu="3", labels=LABEL, deleting=True))
    story.pods(pod("q"), pod("r"))
    story.settle()
    assert (placed(story).phase, placed(story).requests["cpu"]) == (PlacementPhase.TERMINATING, 3000)
    assert (story.node_of("q"), story.node_of("r")) == ("a", None)


def test_what_a_pod_gives_back_is_given_to_others_once_that_is_stored_also_if_it_takes_something_else() -> None:
    """Of 4 GiB it has 3, and 1 when the first resize is done; meanwhile it asks for another CPU."""
    story = Story()
    story.node(node("a", cpu="4", memory="4Gi"))
    story.pod(pod("p", memory="3Gi"))
    story.settle()
    story.pod(pod("p", memory="1Gi"))
    story.settle()
    found = placed(story).resize
    assert found is not None
    wanted = {"cpu": "1", "memory": "1Gi"}
    done = (ContainerResources(name="main", requests=wanted, limits=wanted),)
    status = ResizeStatus(sequence=found.sequence, state=ResizeState.DONE, admitted=done)
    story.run("a", "p", RunPhase.RUNNING, resize=status)
    story.pod(pod("p", cpu="2", memory="1Gi"))
    story.pod(pod("q", memory="2Gi"))
    by_decision = [[e.data.name for e in story.decide() if isinstance(e.data, Placement)] for _ in range(2)]
    assert by_decision == [["p"], ["q"]]
    assert placed(story).requests == {"cpu": 2000, "memory": GIB}


@pytest.mark.parametrize(("state", "left"), [(ResizeState.DEFERRED, 2000), (ResizeState.INFEASIBLE, 1000)])
def test_what_is_still_in_force_counts_while_a_further_resize_is_not_admitted(state: ResizeState, left: int) -> None:
    story = story_with("3")
    resize(story, "1")
    reports(story, ResizeState.IN_PROGRESS, "1", applied=amounts("3"))
    resize(story, "2")
    reports(story, state, "1", applied=amounts("3"))
    assert placed(story).requests["cpu"] == 3000
    reports(story, state, "1")
    assert placed(story).requests["cpu"] == left


def test_a_pod_that_shrinks_gives_its_room_when_the_node_has_done_it() -> None:
    """The room goes to the pod that waits for it without another event."""
    story = story_with("3")
    story.pod(pod("q", cpu="2"))
    resize(story, "1")
    assert placed(story).requests["cpu"] == 3000
    assert story.node_of("q") is None
    reports(story, ResizeState.IN_PROGRESS, "1", applied=amounts("3"))
    assert placed(story).requests["cpu"] == 3000
    assert story.node_of("q") is None
    reports(story, ResizeState.DONE, "1")
    assert placed(story).requests["cpu"] == 1000
    assert placed(story).resize is None
    assert story.node_of("q") == "a"


def test_a_resize_that_the_node_refuses_counts_as_before() -> None:
    story = story_with("1")
    resize(story, "100")
    assert placed(story).requests["cpu"] == 100_000
    reports(story, ResizeState.INFEASIBLE, "1")
    assert placed(story).requests["cpu"] == 1000
    story.pod(pod("q", cpu="3"))
    story.settle()
    assert story.node_of("q") == "a"
    resize(story, "1")
    assert placed(story).requests["cpu"] == 1000


def test_a_deferred_resize_keeps_counting() -> None:
    story = story_with("1")
    resize(story, "3")
    reports(story, ResizeState.DEFERRED, "1")
    assert placed(story).requests["cpu"] == 3000
    assert placed(story).resize is not None


def test_what_the_node_may_have_admitted_counts_until_it_reports_on_the_last_resize() -> None:
    """1, then 3, then 1 again, before the node says anything: it may have admitted 3. A report on the first is not enough."""
    story = story_with("1")
    resize(story, "3")
    first = placed(story).resize
    assert first is not None
    resize(story, "1")
    assert placed(story).requests["cpu"] == 3000
    late = ResizeStatus(sequence=first.sequence, state=ResizeState.DONE, admitted=amounts("3"))
    story.run("a", "p", RunPhase.RUNNING, resize=late)
    story.settle()
    assert placed(story).requests["cpu"] == 3000
    reports(story, ResizeState.DONE, "1")
    assert placed(story).requests["cpu"] == 1000


def test_a_quota_is_charged_what_is_counted_on_the_node() -> None:
    """4 of 6 are used while the pod shrinks, so that a pod of 3 is refused for its quota; then it is placed."""
    story = story_with("4")
    story.node(node("b", cpu="8"))
    story.pod(pod("r", cpu="3", labels=LABEL))
    resize(story, "1")
    refused = story.waiting("r")
    assert refused is not None
    assert refused.reasons[0].code == "quota"
    reports(story, ResizeState.DONE, "1")
    assert story.node_of("r") == "b"


def test_changes_of_labels_say_nothing_of_a_resize() -> None:
    story = story_with("1")
    story.pod(pod("p", cpu="1000m", labels={**LABEL, "more": "1"}))
    story.settle()
    assert placed(story).resize is None


def test_a_pod_that_ends_while_it_is_resized_holds_what_is_counted() -> None:
    story = story_with("3")
    resize(story, "1")
    story.run("a", "p", RunPhase.RUNNING)
    story.pod(pod("p", cpu="1", labels=LABEL, deleting=True))
    story.settle()
    assert placed(story).requests["cpu"] == 3000
    story.pod(pod("q", cpu="2"))
    story.settle()
    assert story.node_of("q") is None
    story.run("a", "p", RunPhase.STOPPED)
    story.settle()
    assert story.node_of("q") == "a"


@pytest.mark.parametrize("state", [None, *ResizeState])
def test_a_loaded_scheduler_counts_the_same(state: ResizeState | None) -> None:
    """A fresh core that reads the last message of each subject, in any order, decides what the other one decides."""
    story = story_with("3")
    resize(story, "1")
    if state is not None:
        reports(story, state, "1" if state in (ResizeState.DONE, ResizeState.IN_PROGRESS) else "3")
    story.pod(pod("q", cpu="2"))
    for order in (None, sorted(story.last), sorted(story.last, reverse=True)):
        loaded = story.reloaded(order)
        decided = [(event.subject, event.data) for event in loaded.decide(story.now)]
        assert decided == [(event.subject, event.data) for event in story.core.decide(story.now)]
        assert counted(loaded) == counted(story.core)
