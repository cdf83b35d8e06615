"""Whom pods of higher priority have end, and where they land, is what the plain reference says."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, PlacementPhase
from tests.unit.scheduler.builders_scheduler import Story, batch_pod, node, pod
from tests.unit.scheduler.reference.passes import schedule

NODES = ["a", "b", "c"]
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "x"}},
}


def side(app: str, key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


wants = st.one_of(
    st.just({}),
    st.just({}),
    st.just({}),
    st.just({"preemptionPolicy": "Never"}),
    st.just({"labels": {"scheduling.koordinator.sh/preemption-policy": "Never"}}),
    st.just(
        {"preemptionPolicy": "Never", "labels": {"scheduling.koordinator.sh/preemption-policy": "PreemptLowerPriority"}}
    ),
    st.just({"nodeSelector": {"zone": "y"}}),
    st.builds(
        lambda app, key: {"affinity": {"podAntiAffinity": side(app, key)}},
        st.sampled_from("xy"),
        st.sampled_from(["zone", "host"]),
    ),
    st.builds(lambda app: {"affinity": {"podAffinity": side(app, "zone")}}, st.sampled_from("xy")),
    st.just({"topologySpreadConstraints": [SPREAD]}),
)
labels = st.fixed_dictionaries(
    {},
    optional={
        "app": st.sampled_from("xy"),
        "scheduling.koordinator.sh/disable-preemptible": st.sampled_from(["true", "false"]),
    },
)
wanted_pods = st.builds(
    lambda number, cpu, priority, marks, more: pod(
        f"p{number:02}", cpu=cpu, memory="1Gi", priority=priority, **{**more, "labels": {**marks, **more.get("labels", {})}}
    ),
    st.integers(0, 40),
    st.sampled_from(["500m", "1", "2", "3500m"]),
    st.sampled_from([1, 5, 5, 9]),
    labels,
    wants,
)
early_pods = st.lists(
    st.builds(
        lambda cpu, priority, marks: {"cpu": cpu, "priority": priority, "labels": marks},
        st.sampled_from(["500m", "1", "1500m"]),
        st.sampled_from([None, 1, 2, 5]),
        labels,
    ),
    min_size=8,
    max_size=20,
)
"""They are there first and fill most of the nodes."""
steps = st.one_of(
    st.tuples(st.just("pod"), wanted_pods),
    st.tuples(st.just("pod"), wanted_pods),
    st.tuples(st.just("pod"), wanted_pods),
    st.tuples(
        st.just("pod"), st.builds(lambda i, cpu: batch_pod(f"b{i}", cpu=cpu), st.integers(0, 9), st.sampled_from(["1k", "3k"]))
    ),
    st.tuples(st.just("budget"), st.sampled_from("xy"), st.integers(0, 2)),
    st.tuples(st.just("evict"), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("cordon"), st.sampled_from(NODES), st.booleans()),
    st.tuples(st.just("withdraw"), st.integers(0, 40)),
    st.tuples(st.just("later"), st.sampled_from([1, 3, 9])),
    st.tuples(st.just("decide")),
    st.tuples(st.just("decide")),
)


def early_pod(cpu: str, priority: int | None = None, *, protected: bool = False) -> dict[str, Any]:
    marks = {"scheduling.koordinator.sh/disable-preemptible": "true"} if protected else {}
    return {"cpu": cpu, "priority": priority, "labels": marks}


FULL = [
    early_pod("500m"),
    early_pod("1"),
    early_pod("500m", protected=True),
    early_pod("1", protected=True),
    early_pod("1500m", 2),
    early_pod("1500m"),
    early_pod("1", protected=True),
    early_pod("1", 1),
    early_pod("1", 2),
    early_pod("1", protected=True),
    early_pod("500m"),
    early_pod("500m"),
    early_pod("1500m", 2),
    early_pod("1", 2),
    early_pod("1500m", 2),
]
LATER = [
    ("evict", 0),
    ("pod", pod("p00", cpu="500m", memory="1Gi", priority=1)),
    ("pod", pod("p01", cpu="2", memory="1Gi", priority=5)),
]
"""When its victims have had their time, e13 is nominated to another node: the room that it leaves is e12's, not p00's."""


BEHIND_THE_HEAD = [
    ("pod", pod("p01", cpu="500m", memory="1Gi", priority=9)),
    ("decide",),
    ("evict", 0),
    ("decide",),
    ("pod", pod("p02", cpu="500m", memory="1Gi", priority=5, preemptionPolicy="Never")),
    ("pod", pod("p03", cpu="500m", memory="1Gi", priority=5)),
    ("decide",),
]
"""p01 and then p02, for which room is kept, take what e08 leaves on c; p03 is behind them and preempts e07 on b."""


WITHOUT_COMPANION = [
    ("pod", pod("p00", cpu="1", memory="1Gi", priority=9)),
    ("decide",),
    ("evict", 0),
    ("decide",),
    ("withdraw", 0),
    ("pod", pod("p01", cpu="1", memory="1Gi", priority=5, affinity={"podAffinity": side("x", "zone")})),
    ("decide",),
]
"""No room is kept for p01 on c, where e08 ends: no pod of app x is there."""


LARGE_AMONG_SMALL = [
    early_pod("500m"),
    early_pod("500m"),
    early_pod("1500m"),
    early_pod("1500m", protected=True),
    early_pod("500m"),
    early_pod("500m"),
    early_pod("500m"),
    early_pod("1", 1),
    early_pod("1500m", protected=True),
    early_pod("500m"),
    early_pod("1500m", 1),
    early_pod("1500m", 1),
    early_pod("500m"),
    early_pod("1", 1),
]
"""p00 and p02 are nominated to c at first; p00 lands on b, and c is then large enough for p01 beside p02, less e07 and e11."""


def machine(name: str, cordoned: bool = False) -> dict[str, Any]:
    zone = {"a": "x", "b": "y", "c": "y"}[name]
    return node(name, cpu="4", memory="16Gi", labels={"zone": zone, "host": name}, unschedulable=cordoned)


def beginning(early: list[dict[str, Any]]) -> tuple[Story, dict[str, dict[str, Any]]]:
    """The log, and the documents on it by name."""
    story = Story()
    story.nodes(*(machine(name) for name in NODES))
    for name in NODES:
        story.executor(name)
    story.batch("b", 4000)
    documents = {f"e{i:02}": pod(f"e{i:02}", memory="64Mi", **more) for i, more in enumerate(early)}
    for document in documents.values():
        story.pod(document)
        story.settle()
        story.later(1)
    return story, documents


def victims(story: Story) -> list[str]:
    found = (victim.name for nomination in story.nominated().values() for victim in nomination.victims)
    return sorted({name for name in found if name in story.placed()})


def perform(story: Story, documents: dict[str, dict[str, Any]], step: tuple[Any, ...]) -> None:
    match step:
        case ("pod", dict() as document):
            name = document["metadata"]["name"]
            if name not in documents:
                documents[name] = document
                story.pod(document)
        case ("budget", str() as app, int() as allowed):
            story.budget(app, {"app": app}, allowed=allowed)
        case ("evict", int() as index) if names := victims(story):
            name = names[index % len(names)]
            document = documents[name]
            story.pod({**document, "metadata": {**document["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}})
            story.settle()
        case ("end", int() as index):
            ending = sorted(
                event.data.name
                for event in story.last.values()
                if isinstance(event.data, Placement) and event.data.phase is PlacementPhase.TERMINATING
            )
            if ending:
                name = ending[index % len(ending)]
                story.run(story.placed()[name], name, RunPhase.STOPPED)
                story.settle()
                story.pod_deleted(name)
                documents.pop(name)
        case ("cordon", str() as name, bool() as cordoned):
            story.node(machine(name, cordoned))
        case ("withdraw", int() as index) if waiting := sorted(set(documents) - set(story.placed())):
            name = waiting[index % len(waiting)]
            story.pod_deleted(name)
            documents.pop(name)
        case ("later", int() as seconds):
            story.later(seconds)
        case ("decide",):
            check(story)


def check(story: Story) -> None:
    expected = schedule(story.last.values(), story.now)
    before = story.placed()
    stored = story.settle()
    made = {
        event.data.name: event.data.node
        for event in stored
        if isinstance(event.data, Placement) and event.data.phase is PlacementPhase.BOUND and event.data.name not in before
    }
    assert made == expected.placed
    assert story.nominated() == expected.nominated
    assert story.kept() == expected.kept


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(early_pods, st.lists(steps, min_size=6, max_size=40))
@example(FULL, LATER)
@example([early_pod("1500m", 1)] * 6 + [early_pod("1", 1)] * 3, BEHIND_THE_HEAD)
@example([early_pod("1500m", 1)] * 6 + [early_pod("1", 1)] * 3, WITHOUT_COMPANION)
def test_the_core_nominates_as_the_reference_does(early: list[dict[str, Any]], script: list[tuple[Any, ...]]) -> None:
    story, documents = beginning(early)
    for step in script:
        perform(story, documents, step)
    story.settle()
    story.later(11)
    check(story)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(early_pods, st.lists(steps, min_size=6, max_size=30), st.integers(0, 1 << 30))
def test_a_fresh_core_nominates_the_same_whatever_order_it_loads_in(
    early: list[dict[str, Any]], script: list[tuple[Any, ...]], seed: int
) -> None:
    story, documents = beginning(early)
    for step in script:
        if step == ("decide",):
            story.decide()
        else:
            perform(story, documents, step)
    subjects = sorted(story.last)
    random.Random(seed).shuffle(subjects)
    fresh = story.reloaded(subjects)
    for _ in range(3):
        assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))
        story.later(11)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(early_pods, st.lists(wanted_pods, min_size=1, max_size=6))
@example(LARGE_AMONG_SMALL, [pod(f"p{i:02}", cpu=cpu, memory="1Gi") for i, cpu in enumerate(("1", "3500m", "500m"))])
def test_the_nominated_land_once_all_victims_are_gone(early: list[dict[str, Any]], late: list[dict[str, Any]]) -> None:
    story, documents = beginning(early)
    for document in late:
        # Of one priority, as a higher one may take what a lower one waits for, and without wishes about other pods: the one
        # that a pod must be with may be another one's victim.
        document["spec"]["priority"] = 9
        for field in ("affinity", "topologySpreadConstraints"):
            document["spec"].pop(field, None)
        documents[document["metadata"]["name"]] = document
    story.pods(*(documents[name] for name in sorted(documents) if name not in story.placed()))
    story.settle()
    nominated = {name: found for name, found in story.nominated().items() if documents[name]["spec"]["priority"] == 9}
    for nomination in nominated.values():
        assert all(victim.priority < 9 for victim in nomination.victims)
    for _ in early:
        # The room that ends may let a pod be nominated that could not before, and has victims of its own.
        for name in victims(story):
            story.pod_deleted(name)
            story.run(story.placed()[name], name, RunPhase.STOPPED)
        story.settle()
        if not victims(story):
            break
    assert set(nominated) <= set(story.placed())
