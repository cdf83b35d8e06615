"""Affinity, anti-affinity and spread among pods: as the plain reference has them, whatever the order of things."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.events.placements import Placement, PlacementPhase
from cotenant_scheduler.plugins.pod_relations import PodRelations
from tests.unit.scheduler.builders_scheduler import Story, node, pod
from tests.unit.scheduler.reference.passes import schedule

apps = st.sampled_from("ab")
keys = st.sampled_from(["zone", "host"])


def selector(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}


NAMESPACES = ["default", "red", "blue"]
namespaces = st.sampled_from(NAMESPACES)
namespace_labels = st.sampled_from([None, {}, {"team": "x"}, {"team": "y"}, {"team": "x", "stage": "test"}])
"""None: the namespace has no object."""
relabelled = st.lists(st.tuples(namespaces, namespace_labels), max_size=3)
namespace_selector = st.sampled_from(
    [
        {},
        {"matchLabels": {"team": "x"}},
        {"matchLabels": {"kubernetes.io/metadata.name": "red"}},
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]},
        {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        {"matchLabels": {"team": "x"}, "matchExpressions": [{"key": "stage", "operator": "DoesNotExist"}]},
    ]
)
scope: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries(
    {}, optional={"namespaces": st.lists(namespaces, max_size=2), "namespaceSelector": namespace_selector}
)
label_keys = st.sampled_from(
    [{}, {}, {"matchLabelKeys": ["rev"]}, {"mismatchLabelKeys": ["rev"]}, {"matchLabelKeys": ["none"]}]
)
term = st.builds(
    lambda app, key, about, own: {"labelSelector": selector(app), "topologyKey": key, **about, **own},
    apps,
    keys,
    scope,
    label_keys,
)
preferred_term = st.builds(lambda weight, t: {"weight": weight, "podAffinityTerm": t}, st.integers(1, 100), term)
side = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.lists(term, min_size=1, max_size=2),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(preferred_term, min_size=1, max_size=2),
    },
)
constraint = st.builds(
    lambda app, key, skew, hard, least, policies: {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": selector(app),
        **({"minDomains": least} if hard and least else {}),
        **policies,
    },
    apps,
    keys,
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 4),
    st.sampled_from(
        [{}, {}, {"nodeAffinityPolicy": "Ignore"}, {"nodeTaintsPolicy": "Honor"}, {"matchLabelKeys": ["rev", "none"]}]
    ),
)
wants = st.one_of(
    st.just({}),
    st.builds(lambda s: {"affinity": {"podAffinity": s}}, side),
    st.builds(lambda s: {"affinity": {"podAntiAffinity": s}}, side),
    st.builds(lambda c: {"topologySpreadConstraints": c}, st.lists(constraint, min_size=1, max_size=2)),
    st.builds(lambda c, z: {"topologySpreadConstraints": [c], "nodeSelector": {"zone": z}}, constraint, st.sampled_from("xy")),
)
asked = st.tuples(st.none() | apps, st.sampled_from([None, 5]), wants, st.integers(1, 3), st.just("default") | namespaces)
pods = st.lists(asked, min_size=1, max_size=8)
Asked = tuple[str | None, int | None, dict[str, Any], int, str]
Relabelled = list[tuple[str, dict[str, str] | None]]
nodes = st.lists(st.tuples(st.sampled_from([None, "x", "y", "z"]), st.booleans()), min_size=1, max_size=6)


def told(zones: list[tuple[str | None, bool]]) -> Story:
    story = Story()
    for i, (zone, named) in enumerate(zones):
        labels = {**({"zone": zone} if zone else {}), **({"host": f"n{i}"} if named else {})}
        taints = [{"key": "dedicated", "value": "", "effect": "NoSchedule"}] if i == 3 else []
        story.node(node(f"n{i}", labels=labels, taints=taints))
    return story


def relabel(story: Story, changes: Relabelled) -> None:
    for namespace, labels in changes:
        if labels is None:
            story.namespace_deleted(namespace)
        else:
            story.namespace(namespace, **labels)


def ask(story: Story, wanted: list[Asked], first: str) -> None:
    number = 0
    for app, priority, wants_of_pod, count, namespace in wanted:
        for _ in range(count):
            number += 1
            labels = {**({"app": app} if app else {}), **({"rev": "ab"[number % 2]} if number % 3 else {})}
            name, small = f"{first}{number:02}", {"cpu": "100m", "memory": "64Mi"}
            story.pod(pod(name, requests=small, namespace=namespace, labels=labels, priority=priority, **wants_of_pod))


def check(story: Story) -> None:
    expected = schedule(story.last.values(), story.now)
    before = set(story.placed())
    made = {
        event.data.name: event.data.node
        for event in story.settle()
        if isinstance(event.data, Placement) and event.data.phase is PlacementPhase.BOUND and event.data.name not in before
    }
    assert made == expected.placed
    assert story.nominated() == expected.nominated
    assert story.kept() == expected.kept


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes, pods, pods, st.integers(0, 10), relabelled, relabelled)
def test_pods_with_relations_go_where_the_reference_puts_them(
    zones: list[tuple[str | None, bool]],
    early: list[Asked],
    late: list[Asked],
    gone: int,
    labels: Relabelled,
    then: Relabelled,
) -> None:
    story = told(zones)
    relabel(story, labels)
    ask(story, early, "p")
    check(story)
    if placed := sorted(story.placed()):
        name = placed[gone % len(placed)]
        story.pod_deleted(name, next(n for n in NAMESPACES if story.placement(name, n)))
        story.settle()
    story.later(1)
    relabel(story, then)
    check(story)
    ask(story, late, "q")
    check(story)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes, pods, pods, st.floats(0, 1), st.integers(0, 1 << 30), relabelled, relabelled)
def test_a_fresh_core_decides_the_same_whatever_order_it_loads_in(
    zones: list[tuple[str | None, bool]],
    early: list[Asked],
    late: list[Asked],
    gone: float,
    seed: int,
    labels: Relabelled,
    then: Relabelled,
) -> None:
    chance = random.Random(seed)
    story = told(zones)
    relabel(story, labels)
    ask(story, early, "p")
    story.settle()
    relabel(story, then[:1])
    ask(story, late, "q")
    for namespace, name in sorted(story.core.pods.records):
        if chance.random() < gone:
            story.pod_deleted(name, namespace)
    relabel(story, then[1:])
    subjects = sorted(story.last)
    chance.shuffle(subjects)
    fresh = story.reloaded(subjects)
    assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))
    story.settle()
    assert list(story.reloaded().decide(story.now)) == list(story.core.decide(story.now))


def test_a_selector_is_forgotten_with_the_last_pod_that_holds_it() -> None:
    story = told([("x", True)])
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector("a"), "topologyKey": "host"}]
        }
    }
    story.pods(pod("holder", affinity=apart), pod("other-holder", affinity=apart))
    story.settle()
    story.pods(pod("alone", labels={"app": "a"}), pod("huge", cpu="99", labels={"app": "a"}), pod("vast", cpu="99"))
    story.settle()
    assert story.node_of("alone") is None
    story.pod_deleted("holder")
    story.settle()
    assert story.node_of("alone") is None
    story.pod_deleted("other-holder")
    story.settle()
    assert story.node_of("alone") == "n0"
    huge, vast = story.waiting("huge"), story.waiting("vast")
    assert huge is not None
    assert vast is not None
    assert (huge.message, huge.wakes_on) == (vast.message, vast.wakes_on)
    [relations] = [counter for counter in story.core.nodes.counters if isinstance(counter, PodRelations)]
    assert not relations.placed.holders(preferred=False)
    story.pod(pod("holder", affinity=apart))
    story.settle()
    assert story.node_of("holder") is None
    story.pod_deleted("alone")
    story.settle()
    assert story.node_of("holder") == "n0"


def test_one_pod_makes_room_for_another_in_the_same_decision() -> None:
    story = told([("x", True), ("y", True)])
    together = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector("a"), "topologyKey": "zone"}]
        }
    }
    story.pod(pod("follower", priority=9, affinity=together))
    story.pod(pod("leader", labels={"app": "a"}))
    made = [event.data.name for event in story.decide() if isinstance(event.data, Placement)]
    assert made == ["leader", "follower"]
    assert story.node_of("leader") == story.node_of("follower")


def test_who_is_kept_away_is_told_why() -> None:
    story = told([("x", True)])
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector("a"), "topologyKey": "host"}]
        }
    }
    story.pods(*(pod(f"p{i}", labels={"app": "a"}, affinity=apart) for i in range(2)))
    story.settle()
    waiting = story.waiting("p1")
    assert waiting is not None
    assert waiting.message == "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."


def test_a_placed_pod_is_read_once_again_when_a_selector_comes_that_selects_it() -> None:
    story = told([("x", True)])
    story.pod(pod("one", labels={"app": "a"}))
    story.settle()
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector("a"), "topologyKey": "host"}]
        }
    }
    story.pod(pod("two", affinity=apart))
    story.settle()
    record = story.core.pods.records["default", "one"]
    assert record.facts is not None
    assert record.facts.shape is not None
    assert record.facts.shape.selected_by
    assert [placed.facts for placed in record.placements.values()] == [record.facts]
