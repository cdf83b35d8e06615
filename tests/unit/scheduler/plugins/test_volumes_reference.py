"""Pods with claims go where the plain reference lets them, however claims, volumes, classes and pods come and go."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.scheduler.builders_scheduler import node
from tests.unit.scheduler.builders_volumes import VolumeStory, on_nodes, using
from tests.unit.scheduler.reference.volumes import StorageWorld

CLAIMS, VOLUMES = ["c0", "c1", "c2", "c3"], ["v0", "v1", "v2", "v3", "v4"]
CLASSES = ["local", "made", "now"]
claims, sizes = st.sampled_from(CLAIMS), st.sampled_from(["1Gi", "5Gi", "9Gi"])
zones = st.sampled_from([None, "x", "y", "x__y"])
steps = st.one_of(
    st.tuples(
        st.just("claim"),
        claims,
        sizes,
        st.sampled_from(CLASSES),
        st.sampled_from(["", "", "", *VOLUMES]),
        st.sampled_from(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"]),
    ),
    st.tuples(
        st.just("volume"),
        st.sampled_from(VOLUMES),
        sizes,
        st.sampled_from(CLASSES),
        st.sampled_from([(), ("a",), ("b",), ("b", "c")]),
        zones,
        st.sampled_from(["", "csi.example.com", "other.example.com"]),
    ),
    st.tuples(st.just("pod"), st.lists(claims, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("pod"), st.lists(claims, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("limit"), st.sampled_from("abc"), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("delete claim"), claims),
    st.tuples(st.just("delete volume"), st.sampled_from(VOLUMES)),
)


def beginning() -> VolumeStory:
    story = VolumeStory()
    for name, zone in (("a", "x"), ("b", "y"), ("c", None)):
        labels = {"kubernetes.io/hostname": name, **({"topology.kubernetes.io/zone": zone} if zone else {})}
        story.node(node(name, labels=labels))
    story.storage_class("local", provisioner="kubernetes.io/no-provisioner")
    story.storage_class("made")
    story.storage_class("now", wait=False)
    for name in CLAIMS[:2]:
        story.claim(name, of="made")
    story.settle()
    return story


def perform(story: VolumeStory, step: tuple[Any, ...], number: int) -> None:
    match step:
        case ("claim", name, size, of, volume, mode):
            story.claim(name, size=size, of=of, volume=volume, modes=(mode,))
        case ("volume", name, size, of, nodes, zone, driver):
            more: dict[str, Any] = {"nodeAffinity": on_nodes(*nodes)} if nodes else {}
            labels = {"topology.kubernetes.io/zone": zone} if zone else {}
            modes = ("ReadWriteOnce", "ReadWriteOncePod")
            story.volume(name, size=size, of=of, labels=labels, driver=driver, modes=modes, **more)
        case ("pod", names):
            story.pod(using(f"p{number:02}", *names))
        case ("limit", name, count):
            story.csi_node(name, csi_example_com=count)
        case ("delete", index) if known := sorted(story.placed()):
            story.pod_deleted(known[index % len(known)])
        case ("delete claim", name):
            story.claim_deleted(name)
        case ("delete volume", name):
            story.volume_deleted(name)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([("limit", "a", 1), ("limit", "b", 0), ("limit", "c", 0), ("pod", ["c1"]), ("delete claim", "c1"), ("pod", ["c0"])])
@given(st.lists(steps, min_size=6, max_size=30))
def test_pods_with_claims_go_where_the_reference_lets_them(script: list[tuple[Any, ...]]) -> None:
    story = beginning()
    for number, step in enumerate(script):
        if step[0] != "pod":
            # Pods that wait are tried again meanwhile: the reference is asked about new ones.
            for name in sorted(set(_queued(story)) - set(story.placed())):
                story.pod_deleted(name)
            perform(story, step, number)
            story.settle()
            continue
        document = using(f"p{number:02}", *step[1])
        allowed = StorageWorld(story.last.values()).allowed(document)
        perform(story, step, number)
        story.settle()
        found = story.node_of(f"p{number:02}")
        assert (found in allowed) if allowed else found is None, (found, allowed)
    fresh = story.reloaded(sorted(story.last))
    assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))


def _queued(story: VolumeStory) -> list[str]:
    return [name for (_, name), record in story.core.pods.records.items() if record.facts is not None]
