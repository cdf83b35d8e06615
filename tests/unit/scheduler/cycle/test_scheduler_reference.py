"""The fast path places exactly as the plain reference does, and its state is a function of the last messages alone."""

from __future__ import annotations

import json
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, PlacementPhase
from tests.unit.scheduler.builders_scheduler import GIB, Story, batch_pod, node, pod
from tests.unit.scheduler.reference.passes import schedule

NODES = [f"n{i}" for i in range(7)]
TAINTS = [
    {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
    {"key": "spot", "value": "", "effect": "PreferNoSchedule"},
    {"key": "old", "value": "", "effect": "PreferNoSchedule"},
]
TOLERATIONS = [
    {"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"},
    {"key": "spot", "operator": "Exists"},
]

names = st.sampled_from(NODES)
node_documents = st.builds(
    node,
    names,
    cpu=st.sampled_from(["2", "4", "7500m", "16"]),
    memory=st.sampled_from(["4Gi", "9Gi", "64Gi"]),
    pods=st.sampled_from(["3", "110"]),
    labels=st.fixed_dictionaries({"zone": st.sampled_from(["a", "b"])}),
    taints=st.lists(st.sampled_from(TAINTS), max_size=2),
    unschedulable=st.booleans().filter(lambda b: b) | st.just(False) | st.just(False),
    images=st.dictionaries(st.sampled_from(["web:1", "db:latest"]), st.sampled_from([10, 400, 2500]), max_size=2),
)
numbers = st.integers(0, 40)
preferred = st.lists(
    st.builds(
        lambda zone, weight: {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]},
        },
        st.sampled_from("ab"),
        st.integers(1, 100),
    ),
    max_size=2,
)
hints = st.fixed_dictionaries(
    {}, optional={"nodeNames": st.lists(names, max_size=4), "preferredNodeNames": st.lists(names, max_size=3)}
)
extras = st.fixed_dictionaries(
    {},
    optional={
        "annotations": st.builds(lambda hint: {"scheduling.koordinator.sh/scheduling-hint": json.dumps(hint)}, hints),
        "nodeSelector": st.fixed_dictionaries({"zone": st.sampled_from(["a", "b"])}),
        "tolerations": st.lists(st.sampled_from(TOLERATIONS), max_size=2),
        "affinity": st.builds(
            lambda terms: {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}, preferred
        ),
    },
)
pod_documents = st.one_of(
    st.builds(
        lambda i, image, cpu, memory, priority, extra: pod(
            f"p{i}", image=image, cpu=cpu, memory=memory, priority=priority, **extra
        ),
        numbers,
        st.sampled_from(["", "web:1", "db", "registry:5000/other"]),
        st.sampled_from(["100m", "1", "1300m", "3"]),
        st.sampled_from(["100Mi", "1Gi", "5Gi"]),
        st.sampled_from([None, 0, 1000, 9500]),
        extras,
    ),
    st.builds(
        lambda i, cpu, extra: batch_pod(f"b{i}", cpu=cpu, **extra), numbers, st.sampled_from(["500", "2k"]), extras
    ),
    st.builds(lambda i: pod(f"e{i}", requests={}), numbers),
)
steps = st.one_of(
    st.tuples(st.just("node"), node_documents),
    st.tuples(st.just("pod"), pod_documents),
    st.tuples(st.just("pod"), pod_documents),
    st.tuples(st.just("pod"), pod_documents),
    st.tuples(st.just("batch"), names, st.integers(0, 9000)),
    st.tuples(st.just("metric"), names, st.integers(0, 9000), st.integers(0, 8 * GIB), st.integers(0, 200)),
    st.tuples(st.just("end"), st.integers(0, 100)),
    st.tuples(st.just("unplace"), st.integers(0, 100)),
    st.tuples(st.just("later"), st.integers(1, 100)),
    st.tuples(st.just("decide")),
)


quota_steps = st.one_of(
    steps,
    st.tuples(st.just("quota"), st.sampled_from(["red", "blue"]), st.integers(0, 6000)),
    st.tuples(
        st.just("pod"),
        st.builds(
            lambda i, quota, gated: pod(
                f"q{i}",
                labels={"quota.scheduling.koordinator.sh/name": quota},
                schedulingGates=[{"name": "wait"}] if gated else [],
            ),
            numbers,
            st.sampled_from(["red", "blue", "none"]),
            st.booleans(),
        ),
    ),
)
"""Steps that the reference does not know."""


def beginning() -> tuple[Story, set[str]]:
    """Four nodes of two zones, most of them measured, one with batch capacity; eight pods placed half a minute ago."""
    story = Story()
    story.nodes(*(node(name, cpu="6", labels={"zone": "ab"[i % 2]}) for i, name in enumerate(NODES[:4])))
    for i, name in enumerate(NODES[:3]):
        story.metric(name, 700 * i, i * GIB)
    story.batch(NODES[1], 4000)
    first = [pod(f"p{i}", cpu="1300m" if i % 2 else "300m") for i in range(8)]
    story.pods(*first)
    story.settle()
    story.later(30)
    return story, {document["metadata"]["name"] for document in first}


def perform(story: Story, step: tuple[object, ...], known: set[str]) -> None:
    match step:
        case ("node", dict() as document):
            story.node(document)
        case ("pod", dict() as document):
            # A pod's object that exists is not written again here: its spec is immutable.
            if document["metadata"]["name"] not in known:
                known.add(document["metadata"]["name"])
                story.pod(document)
        case ("batch", str() as name, int() as cpu):
            story.batch(name, cpu)
        case ("metric", str() as name, int() as cpu, int() as memory, int() as age):
            reported = {
                pod_name: (cpu // 9, memory // 9)
                for pod_name, node_name in sorted(story.placed().items())
                if node_name == name and len(pod_name) == 2
            }
            story.metric(name, cpu, memory, age=age, **reported)
        case ("end", int() as index) if placed := sorted(story.placed().items()):
            pod_name, node_name = placed[index % len(placed)]
            story.run(node_name, pod_name, RunPhase.SUCCEEDED)
        case ("unplace", int() as index) if placed := sorted(story.placed().items()):
            pod_name, _ = placed[index % len(placed)]
            story.pod_deleted(pod_name)
            story.settle()
        case ("quota", str() as name, int() as cpu):
            story.quota(name, max={"cpu": cpu})
        case ("later", int() as seconds):
            story.later(seconds)
        case ("decide",) if story.checked:
            check(story)
        case ("decide",):
            story.decide()


def check(story: Story) -> None:
    """Both schedulers decide on the same messages."""
    expected = schedule(story.last.values(), story.now)
    made: dict[str, str] = {}
    for event in story.settle():
        if isinstance(event.data, Placement) and event.data.phase is PlacementPhase.BOUND and event.data.bound_at == story.now:
            made[event.data.name] = event.data.node
    assert made == expected.placed
    assert story.nominated() == expected.nominated
    assert story.kept() == expected.kept


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=60))
def test_the_core_places_as_the_reference_does(script: list[tuple[object, ...]]) -> None:
    story, known = beginning()
    story.checked = True
    for step in script:
        perform(story, step, known)
    check(story)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(quota_steps, min_size=5, max_size=50), st.integers(0, 1 << 30))
def test_a_fresh_core_that_folds_the_last_messages_in_any_order_decides_the_same(
    script: list[tuple[object, ...]], seed: int
) -> None:
    story, known = beginning()
    for step in script:
        perform(story, step, known)
    subjects = sorted(story.last)
    random.Random(seed).shuffle(subjects)
    fresh = story.reloaded(subjects)
    assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))
    # What both think of every node shows in where the next pods go, and with which figures.
    for i in range(12):
        newcomer = story.pod(batch_pod(f"new{i}") if i % 3 == 0 else pod(f"new{i}", cpu="300m"))
        fresh.apply(newcomer)
    assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))
    story.later(400)
    assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(quota_steps, min_size=5, max_size=40))
def test_repeated_deliveries_and_repeated_decisions_change_nothing(script: list[tuple[object, ...]]) -> None:
    story, known = beginning()
    for step in script:
        perform(story, step, known)
    before = list(story.core.decide(story.now))
    for subject in sorted(story.last):
        story.core.apply(story.last[subject])
    assert list(story.core.decide(story.now)) == before
