"""Which namespaces an affinity term is about: those it lists, and those whose labels its namespaceSelector selects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.events.objects import ObjectStored
from tests.unit.scheduler.builders_scheduler import Story, node, pod

TEAM_X = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
HAS_NO_TEAM = {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}
EVERYWHERE: dict[str, Any] = {"namespaceSelector": {}}


def named(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def required(kind: str, scope: dict[str, Any]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "host", **scope}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def app(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    return pod(name, namespace=namespace, labels={"app": "a"}, **spec)


def apart(scope: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": required("podAntiAffinity", scope)}


def together(scope: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": required("podAffinity", scope)}


def one_node() -> Story:
    story = Story()
    story.node(node("n0", labels={"host": "n0"}))
    return story


def is_like_a_fresh_core(story: Story) -> bool:
    for i in range(3):
        story.pod(app(f"newcomer{i}", ["own", "red", "blue"][i], **apart(TEAM_X)))
    return list(story.core.decide(story.now)) == list(story.reloaded().decide(story.now))


RULES: list[tuple[dict[str, Any], str, bool]] = [
    ({}, "own", True),
    ({}, "red", False),
    ({"namespaces": []}, "own", True),
    ({"namespaces": ["red"]}, "red", True),
    ({"namespaces": ["red"]}, "own", False),
    (EVERYWHERE, "own", True),
    (EVERYWHERE, "without-object", True),
    ({"namespaces": ["red"], **EVERYWHERE}, "blue", True),
    (TEAM_X, "red", False),
    (TEAM_X, "blue", True),
    (TEAM_X, "own", False),
    (TEAM_X, "without-object", False),
    ({"namespaces": ["red"], **TEAM_X}, "red", True),
    ({"namespaces": ["red"], **TEAM_X}, "blue", True),
    ({"namespaces": ["red"], **TEAM_X}, "own", False),
    (HAS_NO_TEAM, "without-object", True),
    (HAS_NO_TEAM, "red", False),
    (named("without-object"), "without-object", True),
    (named("red"), "red", True),
    (named("red"), "blue", False),
]


@pytest.mark.parametrize(("scope", "where", "selected"), RULES)
@pytest.mark.parametrize("labelled_first", [True, False])
def test_a_term_is_about_the_namespaces_it_lists_and_those_it_selects(
    scope: dict[str, Any], where: str, selected: bool, labelled_first: bool
) -> None:
    story = one_node()

    def label() -> None:
        story.namespace("red", team="y")
        # An object cannot give its namespace another name.
        story.namespace("blue", team="x", **{"kubernetes.io/metadata.name": "red"})

    if labelled_first:
        label()
    story.pod(app("there", where))
    story.settle()
    story.pod(pod("asks", namespace="own", **apart(scope)))
    if not labelled_first:
        label()
    story.settle()
    assert story.node_of("asks", "own") == (None if selected else "n0")


def test_a_pod_that_waits_is_placed_when_the_namespace_that_keeps_it_away_has_other_labels() -> None:
    story = one_node()
    story.namespace("red", team="x")
    story.pod(app("there", "red"))
    story.settle()
    story.pod(pod("asks", namespace="own", **apart(TEAM_X)))
    story.settle()
    waiting = story.waiting("asks", "own")
    assert waiting is not None
    assert "objects.core.namespaces._.*" in waiting.wakes_on
    story.namespace("red", team="x", stage="test")
    assert not story.settle()
    story.namespace("red", team="y")
    story.settle()
    assert story.node_of("asks", "own") == "n0"
    assert is_like_a_fresh_core(story)


def test_a_namespace_whose_object_is_gone_has_no_labels_left() -> None:
    story = one_node()
    story.namespace("red", team="x")
    story.pod(app("there", "red"))
    story.settle()
    story.pod(pod("asks", namespace="own", **apart(TEAM_X)))
    story.settle()
    assert story.node_of("asks", "own") is None
    story.namespace_deleted("red")
    story.settle()
    assert story.node_of("asks", "own") == "n0"


def test_a_namespace_whose_object_cannot_be_read_has_no_labels_left() -> None:
    story = one_node()
    subject = story.namespace("red", team="x").subject
    story.pod(app("there", "red"))
    story.settle()
    story.say(subject, ObjectStored(object=msgspec.Raw(b'{"metadata":{"labels":3}}')))
    assert "is not used" in story.core.refused[subject]
    story.pod(pod("asks", namespace="own", **apart(TEAM_X)))
    story.settle()
    assert story.node_of("asks", "own") == "n0"
    assert is_like_a_fresh_core(story)


def test_a_placed_pod_keeps_away_who_comes_to_be_selected_by_its_term() -> None:
    story = one_node()
    story.pod(pod("holder", namespace="own", **apart(TEAM_X)))
    story.pod(app("before", "red"))
    story.settle()
    assert story.node_of("before", "red") == "n0"
    story.namespace("red", team="x")
    story.pod(app("after", "red"))
    story.settle()
    assert story.node_of("after", "red") is None
    story.namespace("red")
    story.settle()
    assert story.node_of("after", "red") == "n0"


def test_a_pod_finds_company_when_a_namespace_gets_its_label() -> None:
    story = one_node()
    story.pod(app("there", "red"))
    story.pod(pod("asks", namespace="own", **together(TEAM_X)))
    story.settle()
    assert story.node_of("asks", "own") is None
    story.namespace("red", team="x")
    story.settle()
    assert story.node_of("asks", "own") == "n0"
    assert is_like_a_fresh_core(story)


def test_a_pod_that_is_selected_itself_by_its_term_may_be_the_first_of_its_kind() -> None:
    story = one_node()
    story.pod(app("first", "red", **together(TEAM_X)))
    story.settle()
    assert story.node_of("first", "red") is None
    story.namespace("red", team="x")
    story.settle()
    assert story.node_of("first", "red") == "n0"


def test_a_placement_that_is_folded_behind_a_change_of_labels_counts_as_what_it_is_now() -> None:
    story = one_node()
    story.pod(pod("holder", namespace="own", **apart(TEAM_X)))
    story.settle()
    story.pod(app("there", "red"))
    decided = list(story.core.decide(story.now))
    assert [event.subject for event in decided] == ["node.n0.placement.red.there"]
    story.namespace("red", team="x")
    for event in decided:
        story.say(event.subject, event.data)
    story.pod(pod("asks", namespace="own", **apart(TEAM_X)))
    story.settle()
    assert story.node_of("asks", "own") is None
    assert is_like_a_fresh_core(story)
    story.pod_deleted("there", "red")
    story.settle()
    assert story.node_of("asks", "own") == "n0"


def test_a_placement_that_is_folded_behind_the_first_term_about_its_pod_counts_for_it() -> None:
    story = one_node()
    story.pod(app("there", "red"))
    decided = list(story.core.decide(story.now))
    story.pod(pod("asks", namespace="red", **apart({})))
    for event in decided:
        story.say(event.subject, event.data)
    story.settle()
    assert story.node_of("asks", "red") is None
    assert is_like_a_fresh_core(story)


def test_what_is_assumed_and_taken_back_leaves_nothing_when_labels_changed_meanwhile() -> None:
    story = one_node()
    story.pod(pod("holder", namespace="own", **apart(TEAM_X)))
    story.settle()
    story.pod(app("there", "red"))
    batch = story.core.decide(story.now)
    story.core.assume(batch)
    story.namespace("red", team="x")
    story.core.withdraw()
    story.settle()
    assert story.node_of("there", "red") is None
    assert is_like_a_fresh_core(story)
